"""Follow the tutorials of the guide step by step in a temporary folder, with little training."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.project.doc_pages import (
    COMPONENT_PAGES,
    ROOT,
    bash_commands,
    code_blocks,
    command_lines,
    component_page_files,
    replace_in_file,
    run_hqlt,
)

pytestmark = pytest.mark.slow
SHORTER_TRAINING = {r"steps: \d+, batch_size: \d+": "steps: 12, batch_size: 4", r"eval_size: \d+": "eval_size: 16"}


def read_page(name):
    return (ROOT / f"docs/{name}.md").read_text()


@pytest.fixture(scope="module")
def demo_folder(tmp_path_factory):
    """A folder in which the demo was run with short training."""
    folder = tmp_path_factory.mktemp("demo")
    shutil.copytree(ROOT / "experiments", folder / "experiments")
    replace_in_file(folder / "experiments/first_run.yaml", SHORTER_TRAINING | {"40, 256": "40, 48"})
    assert "run experiments/first_run.yaml" in (ROOT / "Makefile").read_text()  # the command of `make demo`
    run_hqlt("hqlt run experiments/first_run.yaml", folder)
    return folder


def test_get_started_page_trains_only_the_new_arm(demo_folder):
    file = demo_folder / "experiments/first_run.yaml"
    outputs = {}
    for block in code_blocks(read_page("get_started")):
        if block.language == "yaml":
            replace_in_file(file, {r"(  linear_attention: .*\n)": rf"\1{block.text}"})
        for line in command_lines(block) if block.language == "bash" else []:
            if line.startswith("hqlt "):
                outputs[line] = run_hqlt(line, demo_folder)
    assert "12 of 15 cells are finished; 3 to train" in outputs["hqlt run experiments/first_run.yaml"]
    assert "gated_delta" in outputs["hqlt status experiments/first_run.yaml"]
    file.write_text(file.read_text().replace("name: gated_delta", "name: gated_dleta"))
    with pytest.raises(AssertionError, match="Did you mean 'gated_delta'"):
        run_hqlt("hqlt plan experiments/first_run.yaml", demo_folder)


def test_filters_and_python_of_the_mlflow_page_find_runs(demo_folder, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    blocks = code_blocks(read_page("mlflow"))
    (script,) = [block.text for block in blocks if block.language == "python"]
    result = subprocess.run([sys.executable, "-c", script], cwd=demo_folder, capture_output=True, text=True, check=True)
    assert "synchronous" in result.stdout
    (filters,) = [block.text.splitlines() for block in blocks if block.language == "text"]
    store = mlflow.MlflowClient(f"sqlite:///{demo_folder}/runs/mlflow.db")  # not `set_tracking_uri`, which is global
    study = store.get_experiment_by_name("first_run").experiment_id
    counts = [len(store.search_runs([study], line)) for line in filters]
    cells = len(list(demo_folder.glob("runs/studies/first_run/cells/*/outcome.json")))
    assert counts[0] == cells >= 12 and counts[2] == cells // 3 and counts[3] == 0
    easier = filters[1].replace("> 95", "> -200")  # after a few steps no accuracy is above 95
    assert len(store.search_runs([study], easier)) == 3


def test_tags_metrics_and_artifacts_of_the_mlflow_page_exist(demo_folder):
    import sqlite3

    with sqlite3.connect(demo_folder / "runs/mlflow.db") as store:
        tags = {name for (name,) in store.execute("select key from tags")}
        metrics = {name.split("/")[0] for (name,) in store.execute("select key from latest_metrics")}
    rows = [line for line in read_page("mlflow").splitlines() if line.startswith("| `hqlt.")]
    assert len(rows) >= 8 and set(re.findall(r"`(hqlt\.[a-z_]+)`", "".join(rows))) <= tags
    assert {"train", "valid", "test", "probe", "speed", "cost"} <= metrics
    for name in ("cell.json", "outcome.json", "log.txt", "determinism.json", "probes.jsonl"):
        assert list(demo_folder.glob(f"runs/artifacts/first_run/*/artifacts/{name}")), name


def test_own_component_is_checked_compared_and_reported(tmp_path):
    files = component_page_files()
    commands = [line for page in COMPONENT_PAGES for line in bash_commands(page.read_text())]
    for line in [line for line in commands if line.startswith("hqlt new")]:
        run_hqlt(line, tmp_path)
    assert {"my_rule.py", "rwkv6.py"} <= {file.name for file in tmp_path.iterdir()}
    for name in set(files) - {"pyproject.toml"}:
        (tmp_path / name).write_text(files[name])
    replace_in_file(tmp_path / "replace.yaml", SHORTER_TRAINING | {"seeds: 3": "seeds: 1", r"\[40, 128\]": "[40, 44]"})
    outputs = {}
    others = [line for line in commands if not line.startswith("hqlt new")]
    for line in others:
        if "replace.yaml" in line:  # from here on the pages do not need --with
            (tmp_path / "pyproject.toml").write_text(files["pyproject.toml"])
        quick = " --quick" if "check" in line and "rwkv6" not in line and "--quick" not in line else ""
        outputs[line] = run_hqlt(line + quick, tmp_path)
    assert all("failed" not in outputs[line] for line in others if "check" in line)
    check_table = outputs["hqlt --with rwkv6.py check update_rule rwkv6"]
    assert re.search(r"combines with every component +passed +\d+ combinations", check_table)
    assert "9 cells" in outputs["hqlt plan replace.yaml"] and "9/9" in outputs["hqlt run replace.yaml"]
    assert outputs["hqlt evaluate replace.yaml --lesion fw"].count("rwkv6") == 3
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_rule.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
