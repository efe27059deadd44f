"""What the README says is what happens."""

import json
import re
import shutil
import subprocess
import sys

import pytest

import hqlt_lab as lab
from hqlt_lab.registry import KINDS, available
from tests.house.pages import ROOT, commands, shrink, typed

README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_of_the_readme_runs_from_top_to_bottom(tmp_path):
    (tmp_path / "readme.py").write_text("\n".join(blocks("python")))
    subprocess.run([sys.executable, "-W", "error", "readme.py"], cwd=tmp_path, check=True)


def test_the_python_of_the_streaming_page_says_what_it_prints():
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/streaming.md").read_text(), re.DOTALL)
    told = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert f"# {told.stdout.strip()}:" in script


def test_the_python_of_the_page_on_probes_says_what_it_prints():
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/probes.md").read_text(), re.DOTALL)
    told = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert f"# {told.stdout.strip()}:" in script


def test_the_python_of_the_page_on_agents_says_what_it_prints():
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/rl.md").read_text(), re.DOTALL)
    told = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert f"# {told.stdout.strip()}:" in script


def test_composing_a_model_takes_five_lines_and_a_new_rule_less_than_sixty():
    compose, rule, _ = blocks("python")
    assert len([line for line in compose.splitlines() if line]) <= 5
    assert len(rule.splitlines()) < 60


def test_the_make_targets_of_the_readme_exist():
    targets = {line.split()[1] for line in commands(README) if line.startswith("make ")}
    assert targets and all(f"\n{target}:" in (ROOT / "Makefile").read_text() for target in targets)


@pytest.fixture(scope="module")
def small_world(tmp_path_factory):
    """The experiments of the house, with so little to train that every command can be typed."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "experiments", folder / "experiments")
    file = folder / "experiments/first_run.yaml"
    shrunk = {
        r"steps: \d+, batch_size: \d+": "steps: 2, batch_size: 2",
        r"eval_size: \d+": "eval_size: 8",
        "40, 256": "40, 48",
    }
    shrink(file, shrunk)
    maze = {
        r"steps: \d+, batch_size: \d+": "steps: 40, batch_size: 2",
        r"length: \d+": "length: 3",
        r"warmup_episodes: \d+": "warmup_episodes: 2",
        "seeds: 3": "seeds: 1",
    }
    shrink(folder / "experiments/small/t_maze.yaml", maze)
    return folder


DEMO = "hqlt run experiments/first_run.yaml"  # once everything is installed
PAGES = ["README.md", *(f"docs/{page}.md" for page in ("experiments", "studies", "probes", "reports", "rl", "mlflow"))]


def test_the_page_on_data_does_what_it_says(tmp_path):
    page = (ROOT / "docs/data.md").read_text()
    for line in commands(page):
        assert typed(line, tmp_path), line
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    words = [sys.executable, "-W", "error", "-c", script]
    told = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"# {told.stdout.strip()}\n" in script


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_docs_works(page, small_world):
    lines = [DEMO if line == "make demo" else line for line in commands((ROOT / page).read_text())]
    lines = [line for line in lines if line.startswith("hqlt ")]
    assert lines
    for line in lines:
        told = typed(line, small_world)
        assert told or "forget" in line, line


@pytest.mark.slow
def test_the_page_on_language_models_does_what_it_says(tmp_path):
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    file = tmp_path / "experiments/small/language.yaml"
    shrunk = (("steps: 240, batch_size: 16", "steps: 2, batch_size: 2"), ("eval_size: 128", "eval_size: 2"))
    for found, instead in shrunk:
        assert found in file.read_text()
        file.write_text(file.read_text().replace(found, instead))
    page = (ROOT / "docs/language.md").read_text()
    key = follow(page, tmp_path)
    for script in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        words = [sys.executable, "-W", "error", "-c", script.replace("KEY", key)]
        told = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert f"# {told.stdout.strip()}\n" in script


def follow(page, folder):
    """Type a page's commands; KEY is the cell that the first of them trains, and is returned."""
    key = "KEY"
    for line in commands(page):
        limited = f"{line} --limit-documents 200" if line.startswith("hqlt data prepare") else line
        assert typed(limited.replace("KEY", key), folder), line
        key = next((cell.parent.name for cell in folder.glob("runs/single/*/*/cell.json")), key)
    return key


@pytest.mark.slow
def test_the_page_beyond_training_does_what_it_says(tmp_path):
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    key = follow((ROOT / "docs/long_context.md").read_text(), tmp_path)
    (kept,) = tmp_path.glob(f"runs/single/recall/{key}/long_context.json")
    assert {curve["along"] for curve in json.loads(kept.read_text())} == {"pairs", "gap", "context"}


@pytest.mark.slow
def test_the_python_of_the_guide_runs(small_world):
    typed("hqlt run experiments/first_run.yaml", small_world)
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/studies.md").read_text(), re.DOTALL)
    (small_world / "guide.py").write_text(script)
    told = subprocess.run([sys.executable, "guide.py"], cwd=small_world, capture_output=True, text=True, check=True)
    assert "within 2 steps" in told.stdout.lower()


def test_the_readme_lists_parts_that_exist():
    for kind in KINDS:
        row = next(line for line in README.splitlines() if line.startswith(f"| `{kind}`"))
        assert set(re.findall(r"`(\w+)`", row)[1:]) <= set(available(kind))


def test_the_baselines_of_the_readme_build():
    for row in README.splitlines():
        if row.startswith(("| HQLT of", "| DeltaNet", "| Transformer++")):
            settings = ", ".join(re.findall(r"`([^`]+)`", row))
            assert eval(f"build(width=16, heads=2, {settings})", {"build": lab.build_model})
