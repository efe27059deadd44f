"""Looks into the memories while a run trains, and the file they are kept in."""

import math

import pytest
import torch

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.fill import filled
from hqlt_lab.experiment.plan import key_of
from hqlt_lab.experiment.settings import TrainConfig
from hqlt_lab.model.layout import Layout
from hqlt_lab.model.probes import probe
from hqlt_lab.train.evaluations import evaluations_in, read_evaluations, write_evaluation
from hqlt_lab.train.fit import fit
from hqlt_lab.train.interrupt import Interrupted
from hqlt_lab.train.load import load_cell
from hqlt_lab.train.probe_file import FILE, ProbeFile, ProbeTable, probe_tables, read_probes
from tests.train.conftest import MODEL, TASK, Notebook, same, tiny, weights


def test_the_last_look_is_read_and_what_is_no_number_is_none(tmp_path):
    file = ProbeFile(tmp_path)
    file.add(10, [{"share": [0.5, 0.25]}])
    file.add(20, [{"share": [0.75, math.nan]}, {"entropy": [1.0, None]}])
    assert read_probes(tmp_path) == ProbeTable(20, [{"share": [0.75, None]}, {"entropy": [1.0, None]}])
    assert read_probes(tmp_path / "elsewhere") is None


def test_a_torn_line_is_cut_and_a_step_that_is_there_is_not_written_again(tmp_path):
    ProbeFile(tmp_path).add(10, [{"share": [0.5]}])
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"step": 20, "lay')
    assert read_probes(tmp_path) == ProbeTable(10, [{"share": [0.5]}])
    again = ProbeFile(tmp_path)
    again.add(10, [{"share": [0.0]}])
    again.add(20, [{"share": [1.0]}])
    again.add(30, [{"share": [0.0]}])
    assert [(look.step, look.layers[0]["share"]) for look in probe_tables(tmp_path)] == [
        (10, [0.5]),
        (20, [1.0]),
        (30, [0.0]),
    ]


def test_evaluations_are_added_to_those_that_are_there(tmp_path):
    assert read_evaluations(tmp_path) == {}
    write_evaluation(tmp_path, "test", None, {"test/loss": 1.0})
    write_evaluation(tmp_path, "test", "fw", {"test/loss": 2.0})
    write_evaluation(tmp_path, "test", None, {"test/loss": 0.5})
    assert read_evaluations(tmp_path) == {"test": {"test/loss": 0.5}, "test without fw": {"test/loss": 2.0}}
    assert [(one.split, one.lesion) for one in evaluations_in(tmp_path)] == [("test", "fw"), ("test", None)]


def steps_told(notes):
    return [step for step, metrics in notes if "probe/layer_0/share" in metrics]


@pytest.mark.parametrize(
    ("every", "looks"), [(None, [6, 12]), (0, []), (5, [5, 10, 12])], ids=["validations", "never", "every 5 steps"]
)
def test_the_memories_are_looked_into_when_asked_and_at_the_end(folder, every, looks):
    notes = Notebook()
    fit(tiny(probe_every=every), folder, notes)
    assert steps_told(notes) == [look.step for look in probe_tables(folder)] == looks


@pytest.mark.parametrize("precision", ["32", "bf16-mixed"])
def test_training_is_the_same_bit_by_bit_with_probes_and_without(tmp_path, precision):
    told = {}
    for every in (0, 1):
        notes = Notebook()
        fit(tiny(precision=precision, probe_every=every), tmp_path / str(every), notes)
        told[every] = [point for point in notes.curves() if not point[1].startswith("probe/")]
    assert told[0] == told[1] and same(weights(tmp_path / "0"), weights(tmp_path / "1"))


def test_what_is_written_is_what_the_trained_model_shows(folder):
    notes = Notebook()
    fit(tiny(model={"layers": 2, "mixer": ["vector", "kv_only"]}), folder, notes)
    model, task = load_cell(folder)
    batch = task.examples("valid", 0, 0, 8)
    seen = probe(model, batch.tokens, Layout(real=batch.tokens != 0))
    table = read_probes(folder)
    assert table.step == 12 and [list(layer) for layer in table.layers] == [list(layer) for layer in seen.layers]
    for layer, want in zip(table.layers, seen.layers, strict=True):
        for name, heads in layer.items():
            torch.testing.assert_close(torch.tensor(heads), torch.tensor(want[name]))
    (last,) = (metrics for step, metrics in notes if step == 12 and "probe/layer_0/share" in metrics)
    assert last["probe/layer_0/share"] == pytest.approx(sum(table.layers[0]["share"]) / 2)
    assert {"gate_fw", "norm_kv", "erase", "entropy"} < {name.rpartition("/")[2] for name in last}
    assert last["probe/layer_1/share"] == 0 and "probe/layer_1/state_rank" not in last


def test_a_run_that_goes_on_repeats_no_look(folder, tmp_path):
    fit(tiny(probe_every=2), tmp_path / "straight")
    with pytest.raises(Interrupted):
        fit(tiny(probe_every=2), folder, Notebook(stop_at=7))  # the signal is heard at the end of step 8
    with (folder / FILE).open("ab") as file:
        file.write(b'{"step": 10, "layers": [{"sha')
    (folder / "last.ckpt").unlink()
    (folder / "previous.ckpt").rename(folder / "last.ckpt")  # as if killed before it was saved
    fit(tiny(probe_every=2), folder)
    assert probe_tables(folder) == probe_tables(tmp_path / "straight")


@pytest.mark.slow
def test_with_two_devices_one_process_looks(folder):
    notes = Notebook()
    fit(tiny(devices=2), folder, notes)
    assert steps_told(notes) == [look.step for look in probe_tables(folder)] == [6, 12]


def test_looking_is_not_in_the_key_and_steps_cannot_be_negative():
    def key(**train):
        return key_of(Cell(**filled({"task": TASK, "model": MODEL, "train": train})))

    assert key(probe_every=0) == key() != key(steps=7)
    with pytest.raises(ConfigError, match="probe_every: at least 0 is needed, got -1"):
        TrainConfig(probe_every=-1)
