"""Mutation testing: plant known bugs one at a time and report which of them the closest tests catch.

    python -m tests.mutation.run_mutants                    all mutants of `mutants.py`
    python -m tests.mutation.run_mutants clip scan          those whose name contains one of these words

Each mutant is one replaced piece of text.  It is applied in a temporary copy of the repository, so the working tree is
never changed.  The closest tests run in that copy; a mutant is caught if they fail.  The
name of the first failing test is printed, which shows whether it fails because of the mutant.  The exit code is 1 if
any escapes.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutation.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
COPIED = ("hqlt_lab", "components", "registry", "tests", "experiments", "docs", "pyproject.toml")
FAILING_TEST = re.compile(r"^(?:FAILED|ERROR) \S+?::(\w+)", re.MULTILINE)  # a line of pytest's summary
TESTS_FAILED = 1  # pytest's exit code; others mean that the tests could not run
TIME_LIMIT = 600  # seconds; a mutant may cause an endless loop, which counts as caught


def copy_repository(folder: Path) -> None:
    """Copy the sources and tests into a folder, with links that make them importable as one package."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    package = folder / "import_path" / "hqlt_lab"
    package.mkdir(parents=True)
    for path in [*(folder / "hqlt_lab").iterdir(), folder / "components", folder / "registry"]:
        (package / path.name).symlink_to(path)


def apply_mutant(mutant: Mutant, folder: Path) -> None:
    """Replace the original text by the mutated one.  Raise ValueError if it does not occur exactly once."""
    file = folder / mutant.file
    text = file.read_text()
    if text.count(mutant.original) != 1:
        raise ValueError(f"{mutant.name}: {mutant.original!r} occurs {text.count(mutant.original)} times")
    file.write_text(text.replace(mutant.original, mutant.replacement))


def run_closest_tests(mutant: Mutant, folder: Path) -> tuple[int, str]:
    """Run pytest on the closest tests in the copy; return its exit code and the name of the first failing test."""
    # PYTHONSAFEPATH: the working folder would come first in sys.path and hide the links to components and registry
    import_path = os.pathsep.join([str(folder / "import_path"), str(folder)])
    environment = os.environ | {"PYTHONPATH": import_path, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow and not gpu"]
    try:
        result = subprocess.run(
            [*command, *mutant.tests], cwd=folder, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT
        )
    except subprocess.TimeoutExpired:
        return TESTS_FAILED, "time limit exceeded"
    failing_tests = FAILING_TEST.findall(result.stdout)
    return result.returncode, failing_tests[0] if failing_tests else ""


def main(words: list[str]) -> int:
    selected = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    escaped = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copy_repository(folder)
        for mutant in selected:
            apply_mutant(mutant, folder)
            start = time.monotonic()
            code, failing_test = run_closest_tests(mutant, folder)
            shutil.copy(ROOT / mutant.file, folder / mutant.file)
            verdict = {0: "ESCAPED", TESTS_FAILED: "caught"}.get(code, f"tests could not run (pytest exit code {code})")
            print(f"{mutant.name:55} {verdict:8} {time.monotonic() - start:5.0f} s  {failing_test}", flush=True)
            if code != TESTS_FAILED:
                escaped.append(mutant.name)
    print(f"{len(selected) - len(escaped)} of {len(selected)} mutants caught; escaped: {', '.join(escaped) or 'none'}")
    return bool(escaped)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
