"""`hqlt evaluate`: trained cells, asked again."""

import json
import os

import pytest
from typer.testing import CliRunner

import hqlt_lab as lab
from hqlt_lab.api import load_experiment, tracker_of
from hqlt_lab.api.trained import chosen_folders
from hqlt_lab.cli.app import app
from hqlt_lab.errors import ConfigError, StoreError, TrainingError
from hqlt_lab.track.sent import read_sent
from hqlt_lab.track.store import Store
from hqlt_lab.train.evaluations import FILE, evaluations_in, read_evaluations
from hqlt_lab.train.long_context_file import curves_in
from hqlt_lab.train.outcome import read_outcome

STUDY = """
question: Who does the work?
task: {name: parity, train_length: [3, 8], test_length: [8, 16], eval_size: 64}
model:
  {width: 8, heads: 2, layers: 2, mlp_width: 8, timing: {name: synchronous, window: 4}, mixer: vector, positions: none}
train: {steps: 20, batch_size: 16, lr: 3e-2, valid_every: 10, log_every: 10}
trainer: {accelerator: cpu, precision: bf16-mixed}
launcher: {workers: 1, threads: 1}
arms: {vector: {}, alone: {model.mixer: fw_only}}
seeds: 2
"""


def typed(*words: str) -> str:
    told = CliRunner().invoke(app, ["evaluate", *words], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    return told.output


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which a study was run."""
    folder, before = tmp_path_factory.mktemp("evaluate"), os.getcwd()
    os.chdir(folder)
    (folder / "work.yaml").write_text(STUDY)
    lab.run("work.yaml")
    yield folder
    os.chdir(before)


def cells(arm):
    return chosen_folders(load_experiment("work.yaml"), "runs", [f"arm={arm}"])


def test_a_file_shows_its_arms_whole_and_lesioned_and_says_which_have_nothing_to_lesion(place):
    told = typed("work.yaml", "--lesion", "fw", "--probe")
    assert "alone: lesion: this model has fw alone" in told
    assert "test without fw" in told and "test/normalised_accuracy" in told and "share by head" in told
    first, second = (read_evaluations(folder) for folder in cells("vector"))
    assert set(first) == set(second) == {"test", "test without fw"}
    assert not any(read_evaluations(folder) for folder in cells("alone"))


def test_what_is_intact_scores_what_it_scored_at_the_end_of_training(place):
    typed("work.yaml")
    for folder in [*cells("vector"), *cells("alone")]:
        outcome = read_outcome(folder).metrics
        assert read_evaluations(folder)["test"] == {name: outcome[name] for name in outcome if name[:5] == "test/"}


def test_a_lesion_is_told_and_to_mlflow_too(place):
    folder = cells("vector")[0]
    (answer,) = json.loads(typed(folder.name, "--lesion", "kv", "--split", "short", "--json"))
    found = answer["scores"]["short without kv"]
    assert found["short/loss"] != answer["scores"]["short"]["short/loss"]
    run = Store(tracker_of("runs")).open().get_run(read_sent(folder).run)
    assert run.data.metrics["without_kv/short/loss"] == pytest.approx(found["short/loss"])
    assert run.data.metrics["short/loss"] == pytest.approx(answer["scores"]["short"]["short/loss"])


def test_a_file_s_evaluations_and_probes_are_with_the_runs(place):
    lab.evaluate("work.yaml", lesion="fw", again=True)
    client = Store(tracker_of("runs")).open()
    for folder in cells("vector"):
        run = client.get_run(read_sent(folder).run)
        want = read_evaluations(folder)["test without fw"]["test/loss"]
        points = client.get_metric_history(run.info.run_id, "without_fw/test/loss")
        assert max(points, key=lambda point: point.timestamp).value == pytest.approx(want)
        assert {"probes.jsonl", FILE} <= {file.path for file in client.list_artifacts(run.info.run_id)}
        assert "probe/layer_1/share" in run.data.metrics


def test_what_was_asked_before_is_remembered_unless_asked_again(place):
    folder = cells("vector")[1]
    lab.evaluate(folder, lesion="fw")
    before = evaluations_in(folder)
    assert not lab.evaluate(folder, lesion="fw").cells[0].new and evaluations_in(folder) == before
    assert lab.evaluate(folder, lesion="fw", again=True).cells[0].new
    after = evaluations_in(folder)
    assert [one.metrics for one in after] == [one.metrics for one in before]
    assert min(one.time for one in after) > max(one.time for one in before)


def test_probes_of_a_cell_are_those_of_its_model(place):
    (answer,) = lab.evaluate(cells("vector")[0], probe=True).cells
    assert [len(layer["share"]) for layer in answer.probes.layers] == [2, 2]
    assert all(0 < share < 1 for layer in answer.probes.layers for share in layer["share"])


def test_what_cannot_be_asked_is_told(place):
    with pytest.raises(ConfigError, match="lesion: this model has fw alone"):
        lab.evaluate(cells("alone")[0], lesion="fw")
    with pytest.raises(StoreError, match="one cell is needed"):
        lab.evaluate("nowhere")
    folder = cells("alone")[1]
    (folder / "outcome.json").rename(folder / "away.json")
    with pytest.raises(TrainingError, match="the cell is not trained to its end yet"):
        lab.evaluate(folder)
    (folder / "away.json").rename(folder / "outcome.json")
    (place / "other.yaml").write_text(STUDY)
    with pytest.raises(StoreError, match="other: none of these cells is trained under runs"):
        lab.evaluate("other.yaml")


def test_beyond_what_was_trained_is_asked_once_and_kept_with_the_cell_and_in_mlflow(place):
    told = typed("work.yaml", "--only", "arm=vector", "--long", "4")
    assert "accuracy_by_length, trained up to 8" in told and "state_bytes_by_context" in told
    folder = cells("vector")[0]
    curves = {curve.title: curve for curve in curves_in(folder)}
    assert [x for x, _ in curves["accuracy_by_length"].points] == [8, 16, 32]
    client = Store(tracker_of("runs", None)).open()
    kept = client.get_metric_history(read_sent(folder).run, "long/accuracy_by_length")
    assert [(point.step, point.value) for point in kept] == curves["accuracy_by_length"].points
    assert typed("work.yaml", "--only", "arm=vector", "--long", "4") == told and curves_in(folder) == [*curves.values()]
    typed("work.yaml", "--only", "arm=vector", "--long", "2")
    assert [x for x, _ in curves_in(folder)[0].points] == [8, 16]


def test_options_of_the_other_way_of_asking_are_refused(place):
    with pytest.raises(ConfigError, match="--long: it is not for --tasks"):
        typed("work.yaml", "--long", "2", "--tasks", "piqa")
    with pytest.raises(ConfigError, match="--limit: it is for --tasks, which is not given"):
        typed("work.yaml", "--limit", "2")
    with pytest.raises(ConfigError, match="--into: there is no folder nowhere"):
        typed("work.yaml", "--tasks", "piqa", "--into", "nowhere/answers.json")


def test_a_file_of_evaluations_that_is_damaged_is_named(place):
    folder = cells("alone")[0]
    (folder / FILE).write_text("{")
    with pytest.raises(StoreError, match=r"evaluations.json: it is damaged .* Remove it"):
        lab.evaluate(folder)
    (folder / FILE).unlink()
