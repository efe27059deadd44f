"""Mutation testing: plant known bugs one at a time and report which of them the closest tests catch.

    python -m tests.mutation.run_mutants                    all mutants of `mutants.py`
    python -m tests.mutation.run_mutants clip scan          those whose name contains one of these words

Each mutant is one replaced piece of text.  It is applied in a temporary copy of the repository, so the working tree is
never changed.  The closest tests run in that copy; a mutant is caught if one of them fails.  This test is printed.
At the end these tests run without a mutant; a mutant whose test fails then too is not caught.  The exit code is 1 if
any mutant escapes.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutation.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
COPIED = ("hqlt_lab", "components", "registry", "tests", "benchmarks", "experiments", "docs", "pyproject.toml")
FAILING_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+?::.+?)(?: - |$)", re.MULTILINE)  # a line of pytest's summary
TESTS_FAILED = 1  # pytest's exit code; others mean that the tests could not run
# seconds; a mutant may cause an endless loop, which counts as caught.  On a busy machine tests wait without computing.
CPU_LIMIT, TIME_LIMIT = 600, 3600


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


def apply_mutant(mutant: Mutant, folder: Path) -> str:
    """Apply the mutant and return the text of its file before.  Raise ValueError if `original` is not there once."""
    file = folder / mutant.file
    text = file.read_text()
    if text.count(mutant.original) != 1:
        raise ValueError(f"{mutant.name}: {mutant.original!r} occurs {text.count(mutant.original)} times")
    file.write_text(text.replace(mutant.original, mutant.replacement))
    return text


def run_tests(folder: Path, arguments: Sequence[str], has_limit: bool) -> tuple[int, list[str]]:
    """Run pytest in the copy; return its exit code and the ids of the failing tests.

    If it exceeds the limits of time, the code is TESTS_FAILED and there are no ids.
    """
    # PYTHONSAFEPATH: the working folder would come first in sys.path and hide the links to components and registry
    import_path = os.pathsep.join([str(folder / "import_path"), str(folder)])
    environment = os.environ | {"PYTHONPATH": import_path, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow and not gpu"]
    if has_limit:
        command = ["prlimit", f"--cpu={CPU_LIMIT}", *command]
    timeout = TIME_LIMIT if has_limit else None
    try:
        result = subprocess.run(
            [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return TESTS_FAILED, []
    if result.returncode == -signal.SIGKILL:
        return TESTS_FAILED, []
    return result.returncode, FAILING_TEST.findall(result.stdout)


def find_catching_test(mutant: Mutant, folder: Path) -> str | None:
    """Apply the mutant and return the id of the first of its tests that fails, or None if it escapes."""
    start, text = time.monotonic(), apply_mutant(mutant, folder)
    code, failing_tests = run_tests(folder, (*mutant.tests, "-x"), has_limit=True)
    (folder / mutant.file).write_text(text)
    verdict = {0: "ESCAPED", TESTS_FAILED: "caught"}.get(code, f"tests could not run (pytest exit code {code})")
    test = failing_tests[0] if failing_tests else "time limit exceeded" if code == TESTS_FAILED else ""
    print(f"{mutant.name:55} {verdict:8} {time.monotonic() - start:5.0f} s  {test}", flush=True)
    return test if code == TESTS_FAILED else None


def main(words: list[str]) -> int:
    selected = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copy_repository(folder)
        tests = {mutant.name: find_catching_test(mutant, folder) for mutant in selected}
        catching_tests = sorted({test for test in tests.values() if test and "::" in test})
        code, broken_tests = run_tests(folder, catching_tests, has_limit=False) if catching_tests else (0, [])
    for test in broken_tests:
        print(f"fails without a mutant too: {test}")
    escaped = [name for name, test in tests.items() if test is None or test in broken_tests]
    print(f"{len(selected) - len(escaped)} of {len(selected)} mutants caught; escaped: {', '.join(escaped) or 'none'}")
    return bool(escaped) or code not in (0, TESTS_FAILED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
