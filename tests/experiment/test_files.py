"""Every shipped experiment loads, plans and rebuilds from what is stored."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
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
        assert stored == one.cell
        task, again = (build("task", cell.task) for cell in (one.cell, stored))
        if task.is_world:
            views = (world.begin("train", one.cell.seed, 0, 4).observe() for world in (task, again))
            assert np.array_equal(*views)
        elif one.cell.task["name"] != "language":  # whose text has to be prepared first
            data = (some.examples("train", one.cell.seed, 0, 4) for some in (task, again))
            assert all(torch.equal(a, b) for a, b in zip(*data, strict=True))
        model, rebuilt = (on_meta(cell, build("task", cell.task).vocabulary) for cell in (one.cell, stored))
        assert repr(model) == repr(rebuilt) and model.config == rebuilt.config


def test_every_axis_has_a_small_experiment():
    names = {file.stem for file in FILES}
    parity = {"first_run", "rules", "rule_timing_mixer", "expressivity_parity", "complementarity_parity"}
    recall = {"recall", "positions", "complementarity_recall"}
    assert parity | recall | {"expressivity_modular_arithmetic", "language", "t_maze", "visual_match"} <= names


def test_every_small_experiment_is_answered_or_said_to_be_open():
    told = (EXPERIMENTS / "README.md").read_text()
    answered, _, rest = told.partition("Written, and not run to its end yet:")
    still_open = rest.partition("\n## ")[0]
    for file in sorted((EXPERIMENTS / "small").glob("*.yaml")):
        kept = [(EXPERIMENTS / "answers" / f"{file.stem}.{kind}").exists() for kind in ("md", "html")]
        is_answered = f"(small/{file.name})" in answered
        assert is_answered != (f"(small/{file.name})" in still_open), file.name
        assert kept == [is_answered, is_answered], file.name


def test_reading_a_file_does_not_load_the_compiler_of_torch():
    script = (
        f"import sys; from hqlt_lab.experiment.experiment import load; load({str(EXPERIMENTS / 'small/rules.yaml')!r})"
    )
    script += "; print('torch._dynamo' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "False"


def test_a_cell_that_was_made_before_differs_only_in_its_seed():
    experiment = load(EXPERIMENTS / "first_run.yaml")
    first, again = (experiment.cell(experiment.arms[1], {}, seed) for seed in (0, 7))
    assert again == dataclasses.replace(first, seed=7)
    other = dataclasses.replace(experiment, base=experiment.base | {"train": {"steps": 3}})
    assert other.cell(experiment.arms[1], {}, 0).train.steps == 3 != first.train.steps
