"""Every shipped experiment loads, plans and rebuilds from what is stored."""

import json
from pathlib import Path

import pytest
import torch

from hqlt_lab.experiment.cell import cell_from
from hqlt_lab.experiment.composition import on_meta
from hqlt_lab.experiment.experiment import load
from hqlt_lab.experiment.plan import plan
from hqlt_lab.registry import build

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FILES = sorted(EXPERIMENTS.rglob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(EXPERIMENTS)))
def test_a_shipped_file_loads_plans_and_rebuilds_the_same_model_and_data(file):
    experiment = load(file)
    planned = plan(experiment)
    assert experiment.question.endswith("?") and not experiment.warnings
    assert len({one.key for one in planned}) == len(planned) >= 2
    for one in planned[:: len(experiment.seeds)]:
        stored = cell_from(json.loads(json.dumps(one.cell.as_dict())))
        data, again = (build("task", cell.task).examples("train", cell.seed, 0, 4) for cell in (one.cell, stored))
        assert all(torch.equal(a, b) for a, b in zip(data, again, strict=True))
        model, rebuilt = (on_meta(cell, build("task", cell.task).vocabulary) for cell in (one.cell, stored))
        assert repr(model) == repr(rebuilt) and model.config == rebuilt.config


def test_every_axis_has_a_small_experiment():
    names = {file.stem for file in FILES}
    assert {"first_run", "rules", "timings", "mixers", "positions", "windows", "recall"} <= names
