"""Files and folders of the repository that pages name in backticks exist."""

import re

import pytest

from tests.project.doc_pages import GUIDE, ROOT

PAGES = [*(page for page in GUIDE if page.parent.name != "reference"), ROOT / "CONTRIBUTING.md", ROOT / "README.md"]
FOLDERS = ("hqlt_lab", "components", "registry", "tests", "benchmarks", "docs", "experiments")
# such as `ops/scan/chunked.py` and `report/stats/`, but not `valid/accuracy`; runs/ is written by commands
PATH = re.compile(r"`(?!runs/)((?:\w+/)+\w+\.(?:py|yaml|txt)|(?:\w+/){2,})`")


@pytest.fixture(scope="module")
def paths():
    """All files and folders of the repository, each with a leading slash."""
    return ["/" + path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_on_a_page_exist(page, paths):
    missing = [name for name in PATH.findall(page.read_text()) if not is_part_of(name, paths)]
    assert not missing, f"{page.relative_to(ROOT)} names files that do not exist: {', '.join(missing)}"


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", ROOT / "docs/design.md"], ids=lambda page: page.name)
def test_modules_named_without_a_folder_exist(page, paths):
    """Only these two pages are tested: on others a name without a folder may be a file that the reader creates."""
    named = set(re.findall(r"`(\w+\.py)`", page.read_text()))
    assert len(named) > 3
    assert [name for name in sorted(named) if not is_part_of(name, [*paths, "/setup.py"])] == []


def is_part_of(name, paths):
    return any(path.endswith("/" + name.rstrip("/")) for path in paths)


def test_tests_named_on_the_page_of_faults_exist(paths):
    named = re.findall(r"`(test_\w+\.py)`", (ROOT / "docs/faults.md").read_text())
    assert len(named) > 10
    assert [name for name in named if not is_part_of(name, paths)] == []
