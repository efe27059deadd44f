"""`hqlt evaluate`: scores, lesions, probes and long contexts of trained cells."""

import json
import os

import pytest
from typer.testing import CliRunner

import hqlt_lab as lab
from hqlt_lab.api import load_experiment, resolve_tracking_store
from hqlt_lab.api.trained_cells import require_reported_folders
from hqlt_lab.cli.app import app
from hqlt_lab.errors import StoreError, TrainingError
from hqlt_lab.rundir.evaluations import EVALUATIONS_FILE, list_evaluations, read_evaluations, read_long_context_curves
from hqlt_lab.rundir.outcome import read_outcome
from hqlt_lab.rundir.sync_state import read_sync_state
from hqlt_lab.track.tracking_store import StoreConnection
from hqlt_lab.train.cell_evaluator import CellEvaluator
from tests.issues import raises_issue

STUDY = """
question: Who does the work?
task: {name: parity, train_length: [3, 8], test_length: [8, 16], eval_size: 64}
model:
  {width: 8, heads: 2, layers: 2, mlp_width: 8, timing: {name: synchronous, window: 4}, mixer: vector, positions: none,
   dropout: 0.1}
train: {steps: 20, batch_size: 16, lr: 3e-2, valid_every: 10, log_every: 10}
trainer: {accelerator: cpu, precision: bf16-mixed}
launcher: {workers: 1, threads: 1}
arms: {vector: {}, alone: {model.mixer: fw_only}}
seeds: 2
"""


def run_evaluate(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["evaluate", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def study_folder(tmp_path_factory):
    """The working directory, in which a study was run."""
    folder, original_folder = tmp_path_factory.mktemp("evaluate"), os.getcwd()
    os.chdir(folder)
    (folder / "work.yaml").write_text(STUDY)
    lab.run("work.yaml")
    yield folder
    os.chdir(original_folder)


def cell_folders(arm):
    return require_reported_folders(load_experiment("work.yaml"), "runs", [f"arm={arm}"])


def test_arms_of_a_file_are_scored_intact_and_lesioned_unless_they_have_one_memory(study_folder):
    output = run_evaluate("work.yaml", "--lesion", "fw", "--probe")
    assert "alone: lesion: " in output
    assert "test without fw" in output and "test/normalized_accuracy" in output and "share by head" in output
    first, second = (read_evaluations(folder) for folder in cell_folders("vector"))
    assert set(first) == set(second) == {"test", "test without fw"}
    assert not any(read_evaluations(folder) for folder in cell_folders("alone"))


@pytest.mark.parametrize("split", ["test", "valid"])
def test_intact_model_has_the_scores_of_the_end_of_training(study_folder, split):
    run_evaluate("work.yaml", "--split", split)
    for folder in [*cell_folders("vector"), *cell_folders("alone")]:
        outcome, scores = read_outcome(folder).metrics, read_evaluations(folder)[split]
        assert set(scores) <= set(outcome) and f"{split}/loss" in scores
        assert scores == {name: outcome[name] for name in scores}
        assert outcome["valid/loss"] != outcome["test/loss"]


def test_restored_model_has_no_dropout(study_folder):
    _, module = CellEvaluator(cell_folders("vector")[0]).restore()
    assert not any(layer.training for layer in module.model.modules())


def test_scores_of_a_lesion_are_printed_and_logged_to_mlflow(study_folder):
    folder = cell_folders("vector")[0]
    (evaluation,) = json.loads(run_evaluate(folder.name, "--lesion", "kv", "--split", "short", "--json"))
    lesioned, intact = evaluation["scores"]["short without kv"], evaluation["scores"]["short"]
    assert lesioned["short/loss"] != intact["short/loss"]
    run = StoreConnection(resolve_tracking_store("runs")).open_client().get_run(read_sync_state(folder).run)
    assert run.data.metrics["without_kv/short/loss"] == pytest.approx(lesioned["short/loss"])
    assert run.data.metrics["short/loss"] == pytest.approx(intact["short/loss"])


def test_evaluations_and_probes_of_a_file_are_logged_to_its_runs(study_folder):
    lab.evaluate("work.yaml", lesion="fw", again=True)
    client = StoreConnection(resolve_tracking_store("runs")).open_client()
    for folder in cell_folders("vector"):
        run = client.get_run(read_sync_state(folder).run)
        expected_loss = read_evaluations(folder)["test without fw"]["test/loss"]
        points = client.get_metric_history(run.info.run_id, "without_fw/test/loss")
        assert max(points, key=lambda point: point.timestamp).value == pytest.approx(expected_loss)
        assert {"probes.jsonl", EVALUATIONS_FILE} <= {file.path for file in client.list_artifacts(run.info.run_id)}
        assert "probe/layer_1/share" in run.data.metrics


def test_stored_evaluations_are_reused_unless_again_is_set(study_folder):
    folder = cell_folders("vector")[1]

    def list_test_evaluations():
        return [evaluation for evaluation in list_evaluations(folder) if evaluation.split == "test"]

    lab.evaluate(folder, lesion="fw")
    before = list_test_evaluations()
    assert not lab.evaluate(folder, lesion="fw").cells[0].new and list_test_evaluations() == before
    assert lab.evaluate(folder, lesion="fw", again=True).cells[0].new
    after = list_test_evaluations()
    assert [evaluation.metrics for evaluation in after] == [evaluation.metrics for evaluation in before]
    assert min(evaluation.time for evaluation in after) > max(evaluation.time for evaluation in before)


def test_probes_have_a_share_for_every_layer_and_head(study_folder):
    (evaluation,) = lab.evaluate(cell_folders("vector")[0], probe=True).cells
    assert [len(layer["share"]) for layer in evaluation.probes.layers] == [2, 2]
    assert all(0 < share < 1 for layer in evaluation.probes.layers for share in layer["share"])


def test_cell_that_cannot_be_evaluated_is_an_error(study_folder):
    with raises_issue("lesion", "lesion_of_single_memory"):
        lab.evaluate(cell_folders("alone")[0], lesion="fw")
    with pytest.raises(StoreError, match="No trained cell matches 'nowhere'"):
        lab.evaluate("nowhere")
    folder = cell_folders("alone")[1]
    (folder / "outcome.json").rename(folder / "away.json")
    with pytest.raises(TrainingError, match="the cell has not finished training"):
        lab.evaluate(folder)
    (folder / "away.json").rename(folder / "outcome.json")
    (study_folder / "other.yaml").write_text(STUDY)
    with pytest.raises(StoreError, match="other: none of these cells has been trained in runs"):
        lab.evaluate("other.yaml")


def test_long_context_curves_are_computed_once_and_stored_with_the_cell_and_in_mlflow(study_folder):
    output = run_evaluate("work.yaml", "--only", "arm=vector", "--long", "4")
    assert "accuracy_by_length, trained up to 8" in output and "state_bytes_by_context" in output
    folder = cell_folders("vector")[0]
    curves = {curve.title: curve for curve in read_long_context_curves(folder)}
    assert [x for x, _ in curves["accuracy_by_length"].points] == [8, 16, 32]
    client = StoreConnection(resolve_tracking_store("runs", None)).open_client()
    logged = client.get_metric_history(read_sync_state(folder).run, "long/accuracy_by_length")
    assert [(point.step, point.value) for point in logged] == curves["accuracy_by_length"].points
    assert run_evaluate("work.yaml", "--only", "arm=vector", "--long", "4") == output
    assert read_long_context_curves(folder) == [*curves.values()]
    run_evaluate("work.yaml", "--only", "arm=vector", "--long", "2")
    assert [x for x, _ in read_long_context_curves(folder)[0].points] == [8, 16]


def test_damaged_evaluations_file_is_an_error_that_names_it(study_folder):
    folder = cell_folders("alone")[0]
    (folder / EVALUATIONS_FILE).write_text("{")
    with pytest.raises(StoreError, match=r"evaluations.json: the file is damaged .* Remove the file"):
        lab.evaluate(folder)
    (folder / EVALUATIONS_FILE).unlink()
