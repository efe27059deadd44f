"""Commands and Python code of the README and the guide work and print what the pages show."""

import json
import re
import shutil
import subprocess
import sys

import pytest

import hqlt_lab as lab
from hqlt_lab.registry import KINDS, find_builtin_modules
from tests.project.doc_pages import ROOT, bash_commands, replace_in_file, run_hqlt

README = (ROOT / "README.md").read_text()


def readme_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_python_of_the_readme_runs_and_its_rule_passes_the_checks(tmp_path):
    check = 'lab.check_component("update_rule", "write_or_not", quick=True).assert_passed()'
    (tmp_path / "readme.py").write_text("\n".join([*readme_blocks("python"), check]))
    subprocess.run([sys.executable, "-W", "error", "readme.py"], cwd=tmp_path, check=True)


def python_output(script, folder=None):
    command = [sys.executable, "-W", "error", "-c", script]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def page_scripts(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_python_of_the_streaming_page_prints_what_it_says():
    (script,) = page_scripts("docs/streaming.md")
    assert f"# {python_output(script)}:" in script


def test_python_of_the_probes_page_prints_what_it_says():
    (script,) = page_scripts("docs/probes.md")
    assert f"# {python_output(script)}:" in script


def test_python_of_the_rl_page_prints_what_it_says():
    (script,) = page_scripts("docs/rl.md")
    assert f"# {python_output(script)}:" in script


def test_readme_composes_a_model_in_five_lines_and_a_new_rule_in_less_than_sixty():
    compose, rule = readme_blocks("python")
    assert len([line for line in compose.splitlines() if line]) <= 5
    assert len(rule.splitlines()) < 60


def test_make_targets_of_the_readme_exist():
    targets = {line.split()[1] for line in bash_commands(README) if line.startswith("make ")}
    assert targets and all(f"\n{target}:" in (ROOT / "Makefile").read_text() for target in targets)


@pytest.fixture(scope="module")
def short_experiments(tmp_path_factory):
    """A folder with shortened experiments, in which the demo was run, so that every command of the docs works."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "experiments", folder / "experiments")
    file = folder / "experiments/first_run.yaml"
    replacements = {
        r"steps: \d+, batch_size: \d+": "steps: 2, batch_size: 2",
        r"eval_size: \d+": "eval_size: 8",
        "40, 256": "40, 48",
    }
    replace_in_file(file, replacements)
    t_maze_replacements = {
        r"steps: \d+, batch_size: \d+": "steps: 40, batch_size: 2",
        r"length: \d+": "length: 3",
        r"warmup_episodes: \d+": "warmup_episodes: 2",
        "seeds: 3": "seeds: 1",
    }
    replace_in_file(folder / "experiments/small/t_maze.yaml", t_maze_replacements)
    run_hqlt(DEMO, folder)
    return folder


DEMO = "hqlt run experiments/first_run.yaml"  # the command of `make demo`
GUIDE_PAGES = ("experiments", "plan", "matching", "studies", "compare", "probes", "reports", "rl", "mlflow")
PAGES = ["README.md", *(f"docs/{page}.md" for page in GUIDE_PAGES)]


def test_data_page_does_what_it_says(tmp_path):
    page = (ROOT / "docs/data.md").read_text()
    for line in bash_commands(page):
        assert run_hqlt(line, tmp_path), line
    (script,) = page_scripts("docs/data.md")
    assert f"# {python_output(script, tmp_path)}\n" in script


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_docs_work(page, short_experiments):
    lines = [DEMO if line == "make demo" else line for line in bash_commands((ROOT / page).read_text())]
    lines = [line for line in lines if line.startswith("hqlt ")]
    assert lines
    for line in lines:
        output = run_hqlt(line, short_experiments)
        assert output or "forget" in line, line


@pytest.mark.slow
def test_language_page_does_what_it_says(tmp_path):
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    file = tmp_path / "experiments/small/language.yaml"
    replacements = (("steps: 240, batch_size: 16", "steps: 2, batch_size: 2"), ("eval_size: 128", "eval_size: 2"))
    for old, new in replacements:
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))
    key = run_page_commands((ROOT / "docs/language.md").read_text(), tmp_path)
    for script in page_scripts("docs/language.md"):
        assert f"# {python_output(script.replace('KEY', key), tmp_path)}\n" in script


def run_page_commands(page, folder):
    """Run the commands of a page; KEY stands for the cell that the first of them trains, and is returned."""
    key = "KEY"
    for line in bash_commands(page):
        limited = f"{line} --limit-documents 200" if line.startswith("hqlt data prepare") else line
        assert run_hqlt(limited.replace("KEY", key), folder), line
        key = next((cell.parent.name for cell in folder.glob("runs/single/*/*/cell.json")), key)
    return key


@pytest.mark.slow
def test_long_context_page_does_what_it_says(tmp_path):
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    key = run_page_commands((ROOT / "docs/long_context.md").read_text(), tmp_path)
    (file,) = tmp_path.glob(f"runs/single/recall/{key}/long_context.json")
    assert {curve["axis"] for curve in json.loads(file.read_text())} == {"pairs", "gap", "context"}


@pytest.mark.slow
def test_python_of_the_studies_page_runs(short_experiments):
    (script,) = page_scripts("docs/studies.md")
    (short_experiments / "guide.py").write_text(script)
    command = [sys.executable, "guide.py"]
    result = subprocess.run(command, cwd=short_experiments, capture_output=True, text=True, check=True)
    assert "(median of 3 seeds)" in result.stdout


def test_readme_names_every_built_in_component_and_no_other():
    for kind in KINDS:
        row = next(line for line in README.splitlines() if line.startswith(f"| `{kind}`"))
        assert sorted(re.findall(r"`(\w+)`", row)[1:]) == sorted(find_builtin_modules(kind))


def test_baselines_of_the_readme_can_be_built():
    for row in README.splitlines():
        if row.startswith(("| HQLT of", "| DeltaNet", "| Transformer++")):
            settings = ", ".join(re.findall(r"`([^`]+)`", row))
            assert eval(f"build(width=16, heads=2, {settings})", {"build": lab.build_model})
