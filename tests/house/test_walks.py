"""The guide is followed as a newcomer would, in a folder of one's own, with little to train."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.house.pages import ROOT, blocks_of, commands, lines_of, shrink, typed

pytestmark = pytest.mark.slow
LESS = {r"steps: \d+, batch_size: \d+": "steps: 12, batch_size: 4", r"eval_size: \d+": "eval_size: 16"}


def page(name):
    return (ROOT / f"docs/{name}.md").read_text()


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A folder in which the demo was run, as far as a page is concerned."""
    folder = tmp_path_factory.mktemp("started")
    shutil.copytree(ROOT / "experiments", folder / "experiments")
    shrink(folder / "experiments/first_run.yaml", LESS | {"40, 256": "40, 48"})
    assert "run experiments/first_run.yaml" in (ROOT / "Makefile").read_text()  # what `make demo` types
    typed("hqlt run experiments/first_run.yaml", folder)
    return folder


def test_getting_started_trains_the_new_arm_and_nothing_else(started):
    file = started / "experiments/first_run.yaml"
    told = {}
    for block in blocks_of(page("get_started")):
        if block.language == "yaml":
            shrink(file, {r"(  linear_attention: .*\n)": rf"\1{block.text}"})
        for line in lines_of(block) if block.language == "bash" else []:
            if line.startswith("hqlt "):
                told[line] = typed(line, started)
    assert "12 of 15 cells are settled; 3 to train" in told["hqlt run experiments/first_run.yaml"]
    assert "gated_delta" in told["hqlt status experiments/first_run.yaml"]
    file.write_text(file.read_text().replace("name: gated_delta", "name: gated_dleta"))
    with pytest.raises(AssertionError, match="Did you mean 'gated_delta'"):
        typed("hqlt plan experiments/first_run.yaml", started)


def test_the_filters_and_the_python_of_the_page_on_mlflow_find_runs(started, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    blocks = blocks_of(page("mlflow"))
    (script,) = [block.text for block in blocks if block.language == "python"]
    ran = subprocess.run([sys.executable, "-c", script], cwd=started, capture_output=True, text=True, check=True)
    assert "synchronous" in ran.stdout
    (filters,) = [block.text.splitlines() for block in blocks if block.language == "text"]
    store = mlflow.MlflowClient(f"sqlite:///{started}/runs/mlflow.db")  # not `set_tracking_uri`, which others would see
    study = store.get_experiment_by_name("first_run").experiment_id
    found = [len(store.search_runs([study], line)) for line in filters]
    cells = len(list(started.glob("runs/studies/first_run/cells/*/outcome.json")))
    assert found[0] == cells >= 12 and found[2] == cells // 3 and found[3] == 0
    easier = filters[1].replace("> 95", "> -200")  # after a few steps nobody counts
    assert len(store.search_runs([study], easier)) == 3


def test_what_the_page_on_mlflow_lists_is_there(started):
    import sqlite3

    with sqlite3.connect(started / "runs/mlflow.db") as store:
        tags = {name for (name,) in store.execute("select key from tags")}
        metrics = {name.split("/")[0] for (name,) in store.execute("select key from latest_metrics")}
    row = next(line for line in page("mlflow").splitlines() if line.startswith("| tags |"))
    assert set(re.findall(r"`(hqlt\.[a-z_]+)`", row)) <= tags
    assert {"train", "valid", "test", "probe", "speed", "cost"} <= metrics
    for name in ("cell.json", "outcome.json", "log.txt", "canary.json", "probes.jsonl"):
        assert list(started.glob(f"runs/artifacts/first_run/*/artifacts/{name}")), name


def test_a_part_of_ones_own_is_checked_crossed_and_reported(tmp_path):
    files = {block.title: block.text for block in blocks_of(page("your_own_part")) if block.title}
    first, *others = commands(page("your_own_part"))
    assert "mamba2.py is there" in typed(first, tmp_path)
    for name in set(files) - {"pyproject.toml"}:
        (tmp_path / name).write_text(files[name])
    shrink(tmp_path / "replace.yaml", LESS | {"seeds: 3": "seeds: 1", r"\[40, 128\]": "[40, 44]"})
    told = {}
    for line in others:
        if "replace.yaml" in line:  # from here on the page does without --with
            (tmp_path / "pyproject.toml").write_text(files["pyproject.toml"])
        brief = " --quick" if "check" in line and "mamba2" not in line else ""
        told[line] = typed(line + brief, tmp_path)
    assert all("failed" not in told[line] for line in others if "check" in line)
    assert "126 compositions" in told["hqlt --with mamba2.py check update_rule mamba2"]
    assert "9 cells" in told["hqlt plan replace.yaml"] and "9/9" in told["hqlt run replace.yaml"]
    assert told["hqlt evaluate replace.yaml --lesion fw"].count("mamba2") == 3
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mamba2.py"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
