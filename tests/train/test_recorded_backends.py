"""The backends of the memories can be set, and every run records them."""

import pytest

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.model.config import OpsConfig
from hqlt_lab.rundir.diagnostics import read_backends
from hqlt_lab.train.fit import fit
from tests.issues import raises_issue
from tests.train.conftest import tiny_cell


def cell_with_ops(ops: OpsConfig, **changes) -> Cell:
    cell = tiny_cell(steps=2, **changes)
    return Cell(**(vars(cell) | {"ops": ops}))


@pytest.mark.parametrize(
    ("model", "scan", "attention"),
    [
        ({}, "torch", "blocks"),
        ({"update_rule": "tanh_delta"}, "recurrent", "blocks"),
        ({"mixer": "fw_only"}, "torch", "none"),
        ({"mixer": ["fw_only", "kv_only"], "layers": 2}, "none+torch", "blocks+none"),
    ],
)
def test_a_run_records_its_backends_and_the_reasons(folder, model, scan, attention):
    fit(tiny_cell(model=model, steps=1), folder)
    backends = read_backends(folder)
    assert (backends["device"], backends["precision"]) == ("cpu", "32-true")
    assert (backends["scan"], backends["attention"]) == (scan, attention)
    assert ("not fla: it needs a GPU" in backends["scan_why"]) == ("torch" in scan)


def test_requested_backends_give_the_same_result(tmp_path):
    choices = [OpsConfig(), OpsConfig(scan="recurrent", attention="dense"), OpsConfig(scan="torch", attention="sdpa")]
    cells = [cell_with_ops(ops, precision="64") for ops in choices]
    losses = [fit(cell, tmp_path / str(index)).metrics["train/loss"] for index, cell in enumerate(cells)]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-12)
    backends = read_backends(tmp_path / "1")
    assert (backends["scan"], backends["scan_why"]) == ("recurrent", "requested")


def test_an_unsupported_backend_is_refused_before_training(folder):
    with raises_issue("ops", "unsupported_backend"):
        fit(cell_with_ops(OpsConfig(scan="fla")), folder)
