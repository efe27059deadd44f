"""Every shipped experiment trains: two steps of each of its arms, on tiny shapes."""

from dataclasses import replace
from pathlib import Path

import pytest

from hqlt_lab.experiment.experiment import load
from hqlt_lab.experiment.plan import plan
from hqlt_lab.train.fit import fit

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
TINY = ("train.steps=2", "train.batch_size=4", "train.warmup=0", "train.valid_every=2", "task.eval_size=4")


@pytest.mark.parametrize(
    "file", sorted(EXPERIMENTS.rglob("*.yaml")), ids=lambda file: str(file.relative_to(EXPERIMENTS))
)
def test_every_arm_of_a_shipped_file_trains(file, tmp_path):
    arms = {}
    for planned in plan(load(file, TINY)):
        arms.setdefault(planned.cell.arm, planned.cell)
    for number, cell in enumerate(arms.values()):
        outcome = fit(replace(cell, model={**cell.model, "mlp_width": 16}), tmp_path / str(number))
        assert outcome.status == "done" and outcome.step == 2
        assert all(metric in outcome.metrics for metric in (cell.measure.select, *cell.measure.report))
