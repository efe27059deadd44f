"""Probes of the memories during training, and the file they are written to."""

import math

import pytest
import torch

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.cell_key import cell_key
from hqlt_lab.experiment.fill_defaults import fill_defaults
from hqlt_lab.experiment.run_settings import TrainConfig
from hqlt_lab.model.analysis.layer_probes import probe
from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.rundir.diagnostics import PROBES_FILE, ProbeTable, ProbeWriter, read_probe_tables, read_probes
from hqlt_lab.rundir.evaluations import list_evaluations, read_evaluations, write_evaluation
from hqlt_lab.train.fit import fit
from hqlt_lab.train.interrupt import RunInterrupted
from hqlt_lab.train.load_trained_model import load_cell
from tests.issues import raises_issue
from tests.train.conftest import MODEL, TASK, MetricsLog, equal_weights, last_weights, tiny_cell


def test_the_last_probes_are_read_and_nan_becomes_none(tmp_path):
    writer = ProbeWriter(tmp_path)
    writer.write_table(10, [{"share": [0.5, 0.25]}])
    writer.write_table(20, [{"share": [0.75, math.nan]}, {"entropy": [1.0, None]}])
    assert read_probes(tmp_path) == ProbeTable(20, [{"share": [0.75, None]}, {"entropy": [1.0, None]}])
    assert read_probes(tmp_path / "elsewhere") is None


def test_an_unfinished_line_is_truncated_and_a_step_is_not_written_twice(tmp_path):
    ProbeWriter(tmp_path).write_table(10, [{"share": [0.5]}])
    with (tmp_path / PROBES_FILE).open("ab") as file:
        file.write(b'{"step": 20, "lay')
    assert read_probes(tmp_path) == ProbeTable(10, [{"share": [0.5]}])
    writer = ProbeWriter(tmp_path)
    writer.write_table(10, [{"share": [0.0]}])
    writer.write_table(20, [{"share": [1.0]}])
    writer.write_table(30, [{"share": [0.0]}])
    assert [(table.step, table.layers[0]["share"]) for table in read_probe_tables(tmp_path)] == [
        (10, [0.5]),
        (20, [1.0]),
        (30, [0.0]),
    ]


def test_an_evaluation_is_added_or_replaces_the_one_of_the_same_name(tmp_path):
    assert read_evaluations(tmp_path) == {}
    write_evaluation(tmp_path, "test", None, {"test/loss": 1.0})
    write_evaluation(tmp_path, "test", "fw", {"test/loss": 2.0})
    write_evaluation(tmp_path, "test", None, {"test/loss": 0.5})
    assert read_evaluations(tmp_path) == {"test": {"test/loss": 0.5}, "test without fw": {"test/loss": 2.0}}
    evaluations = list_evaluations(tmp_path)
    assert [(evaluation.split, evaluation.lesion) for evaluation in evaluations] == [("test", "fw"), ("test", None)]


def probed_steps(log):
    return [step for step, metrics in log if "probe/layer_0/share" in metrics]


@pytest.mark.parametrize(
    ("every", "expected"), [(None, [6, 12]), (0, []), (5, [5, 10, 12])], ids=["validations", "never", "every 5 steps"]
)
def test_memories_are_probed_at_the_configured_steps_and_at_the_end(folder, every, expected):
    log = MetricsLog()
    fit(tiny_cell(probe_every=every), folder, log)
    assert probed_steps(log) == [table.step for table in read_probe_tables(folder)] == expected


@pytest.mark.parametrize("precision", ["32", "bf16-mixed"])
def test_training_with_and_without_probes_is_bitwise_equal(tmp_path, precision):
    points = {}
    for every in (0, 1):
        log = MetricsLog()
        fit(tiny_cell(precision=precision, probe_every=every), tmp_path / str(every), log)
        points[every] = [point for point in log.timeless_points() if not point[1].startswith("probe/")]
    assert points[0] == points[1] and equal_weights(last_weights(tmp_path / "0"), last_weights(tmp_path / "1"))


def test_the_last_probes_are_those_of_the_trained_model(folder):
    log = MetricsLog()
    fit(tiny_cell(model={"layers": 2, "mixer": ["vector", "kv_only"]}), folder, log)
    model, task = load_cell(folder)
    batch = task.get_examples("valid", 0, 0, 8)
    probes = probe(model, batch.tokens, Layout(valid_mask=batch.tokens != 0))
    table = read_probes(folder)
    assert table.step == 12 and [list(layer) for layer in table.layers] == [list(layer) for layer in probes.layers]
    for layer, expected in zip(table.layers, probes.layers, strict=True):
        for name, heads in layer.items():
            torch.testing.assert_close(torch.tensor(heads), torch.tensor(expected[name]))
    (last,) = (metrics for step, metrics in log if step == 12 and "probe/layer_0/share" in metrics)
    assert last["probe/layer_0/share"] == pytest.approx(sum(table.layers[0]["share"]) / 2)
    assert {"gate_fw", "norm_kv", "erase", "entropy"} < {name.rpartition("/")[2] for name in last}
    assert last["probe/layer_1/share"] == 0 and "probe/layer_1/state_rank" not in last


def test_a_resumed_run_writes_no_probes_twice(folder, tmp_path):
    fit(tiny_cell(probe_every=2), tmp_path / "straight")
    with pytest.raises(RunInterrupted):
        fit(tiny_cell(probe_every=2), folder, MetricsLog(stop_at=7))  # the run stops after step 8
    with (folder / PROBES_FILE).open("ab") as file:
        file.write(b'{"step": 10, "layers": [{"sha')
    (folder / "last.ckpt").unlink()
    (folder / "previous.ckpt").rename(folder / "last.ckpt")  # as if killed before the last checkpoint was saved
    fit(tiny_cell(probe_every=2), folder)
    assert read_probe_tables(folder) == read_probe_tables(tmp_path / "straight")


@pytest.mark.slow
def test_with_two_devices_one_process_probes(folder):
    log = MetricsLog()
    fit(tiny_cell(devices=2), folder, log)
    assert probed_steps(log) == [table.step for table in read_probe_tables(folder)] == [6, 12]


def test_probe_every_is_not_in_the_cell_key_and_cannot_be_negative():
    def key(**train):
        return cell_key(Cell(**fill_defaults({"task": TASK, "model": MODEL, "train": train})))

    assert key(probe_every=0) == key() != key(steps=7)
    with raises_issue("probe_every", "below_minimum"):
        TrainConfig(probe_every=-1)
