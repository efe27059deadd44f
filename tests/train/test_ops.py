"""What computes the memories can be set, and is told of every run."""

import pytest

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.model.config import OpsConfig
from hqlt_lab.train.fit import fit
from hqlt_lab.train.ops_file import read_ops
from tests.train.conftest import tiny


def by(ops: OpsConfig, **changes) -> Cell:
    cell = tiny(steps=2, **changes)
    return Cell(**(vars(cell) | {"ops": ops}))


@pytest.mark.parametrize(
    ("model", "scan", "attention"),
    [
        ({}, "torch", "blocks"),
        ({"update_rule": "bounded_delta"}, "recurrent", "blocks"),
        ({"mixer": "fw_only"}, "torch", "none"),
        ({"mixer": ["fw_only", "kv_only"], "layers": 2}, "none+torch", "blocks+none"),
    ],
)
def test_a_run_tells_what_computes_it_and_why(folder, model, scan, attention):
    fit(tiny(model=model, steps=1), folder)
    told = read_ops(folder)
    assert (told["device"], told["precision"]) == ("cpu", "32-true")
    assert (told["scan"], told["attention"]) == (scan, attention)
    assert ("not fla: it needs a GPU" in told["scan_why"]) == ("torch" in scan)


def test_backends_that_are_asked_for_give_the_same(tmp_path):
    asked = [OpsConfig(), OpsConfig(scan="recurrent", attention="dense"), OpsConfig(scan="torch", attention="sdpa")]
    cells = [by(ops, precision="64") for ops in asked]
    losses = [fit(cell, tmp_path / str(number)).metrics["train/loss"] for number, cell in enumerate(cells)]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-12)
    assert read_ops(tmp_path / "1")["scan"] == "recurrent" and read_ops(tmp_path / "1")["scan_why"] == "asked for"


def test_a_backend_that_cannot_is_refused_before_a_step(folder):
    with pytest.raises(ConfigError, match="fla was asked for and cannot compute this: it needs a GPU"):
        fit(by(OpsConfig(scan="fla")), folder)
