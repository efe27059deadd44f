"""Count the source files that a run of an experiment executes, from the command line to the report.

    python tests/project/count_files.py [FILE] [--list]      default: experiments/first_run.yaml with 4 steps and 1 seed

Runs `hqlt run FILE` in a temporary folder and prints how many files of each package are executed, by the coordinator
and by the workers. A file counts if one of its functions is called after the imports. A file that is only imported does
not count: bodies of modules and classes, and registrations of components, are not calls. Run it from the folder of the
repository.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("hqlt_lab", "components", "registry")
SMALL_RUN = (
    "--set=train.steps=4",
    "--set=train.valid_every=2",
    "--set=train.checkpoint_every=2",
    "--set=task.eval_size=8",
    "--set=train.batch_size=8",
    "--only=seed=0",
)

# Python imports a module of this name at the start of every process.  Forked workers inherit the profile function.
SITE_MODULE = """
import os, sys, threading

ROOT, LOG = os.environ["COUNTED_ROOT"], os.environ["COUNTED_LOG"]
CO_OPTIMIZED = 1  # set for functions, not for the bodies of modules and classes
counted = set()


def is_importing(frame):
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def record_call(frame, event, argument):
    code, process = frame.f_code, os.getpid()
    if event != "call" or (code, process) in counted or not code.co_filename.startswith(ROOT):
        return
    if code.co_flags & CO_OPTIMIZED and not is_importing(frame):
        counted.add((code, process))
        with open(LOG, "a") as log:
            log.write(f"{process}\\t{code.co_filename}\\n")


threading.setprofile(record_call)
sys.setprofile(record_call)
"""


def list_executed_files(file: Path, options: tuple[str, ...] = SMALL_RUN) -> dict[str, set[Path]]:
    """Return the files whose functions are called by `hqlt run FILE`: of the coordinator, and of all other processes.

    Paths are relative to the repository.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "calls.txt"
        (folder / "sitecustomize.py").write_text(SITE_MODULE)
        variables = {"PYTHONPATH": str(folder), "COUNTED_ROOT": f"{ROOT}{os.sep}", "COUNTED_LOG": str(log)}
        storage = ["--runs", str(folder / "runs"), "--tracking", f"sqlite:///{folder}/mlflow.db", "--workers", "1"]
        command = [sys.executable, "-m", "hqlt_lab.cli", "run", str(file), *options, *storage]
        process = subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.DEVNULL)
        if process.wait():
            raise SystemExit(f"hqlt run {file} failed with exit code {process.returncode}.")
        files_by_process: dict[str, set[Path]] = defaultdict(set)
        for line in log.read_text().splitlines():
            process_id, _, path = line.partition("\t")
            role = "coordinator" if int(process_id) == process.pid else "workers"
            files_by_process[role].add(Path(path).relative_to(ROOT))
    return {role: {path for path in files if path.parts[0] in PACKAGES} for role, files in files_by_process.items()}


def package_name(path: Path) -> str:
    """Return the package of a file, such as hqlt_lab/study or components."""
    return "/".join(path.parts[: 2 if path.parts[0] == "hqlt_lab" and len(path.parts) > 2 else 1])


def main() -> None:
    arguments = [argument for argument in sys.argv[1:] if argument != "--list"]
    file = Path(arguments[0]) if arguments else ROOT / "experiments/first_run.yaml"
    files_by_process = list_executed_files(file)
    all_files = set().union(*files_by_process.values())
    if "--list" in sys.argv:
        print(*sorted(all_files), sep="\n")
    for package, count in sorted(Counter(map(package_name, all_files)).items()):
        print(f"{count:4d} {package}")
    print(*(f"{len(files)} files in {role}" for role, files in sorted(files_by_process.items())), sep=", ", end=", ")
    print(f"{len(all_files)} in all")


if __name__ == "__main__":
    main()
