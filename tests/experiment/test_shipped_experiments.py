"""Every shipped experiment loads, expands to a plan, and can be rebuilt from its stored cells."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hqlt_lab.experiment.cell import cell_from_dict
from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.experiment.validate.arm_checks import build_meta_model
from hqlt_lab.registry import build

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
PROTOCOLS = EXPERIMENTS / "protocols"
FILES = sorted(file for file in EXPERIMENTS.rglob("*.yaml") if file.parent != PROTOCOLS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(EXPERIMENTS)))
def test_stored_cell_of_a_shipped_file_rebuilds_the_same_model_and_data(file):
    experiment = load_experiment(file)
    plan = expand_plan(experiment)
    assert experiment.question.endswith("?") and not experiment.warnings
    assert len({planned.key for planned in plan}) == len(plan) >= 2
    for _, cell in plan[:: len(experiment.seeds)]:
        stored = cell_from_dict(json.loads(json.dumps(cell.to_dict())))
        assert stored == cell
        tasks = [build("task", task_cell.task) for task_cell in (cell, stored)]
        if tasks[0].is_environment:
            observations = (environment.reset("train", cell.seed, 0, 4).observation() for environment in tasks)
            assert np.array_equal(*observations)
        elif cell.task["name"] != "language":  # its text has to be prepared first
            examples = (task.get_examples("train", cell.seed, 0, 4) for task in tasks)
            assert all(torch.equal(a, b) for a, b in zip(*examples, strict=True))
        model, rebuilt = (build_meta_model(c, build("task", c.task).vocabulary) for c in (cell, stored))
        assert repr(model) == repr(rebuilt) and model.config == rebuilt.config


def test_every_axis_has_a_small_experiment():
    names = {file.stem for file in FILES}
    parity = {"first_run", "rules", "rule_timing_mixer", "expressivity_parity", "complementarity_parity"}
    recall = {"recall", "positions", "complementarity_recall"}
    assert parity | recall | {"expressivity_modular_arithmetic", "language", "t_maze", "visual_match"} <= names


def test_every_small_experiment_has_an_answer_page_that_the_index_links():
    readme = (EXPERIMENTS / "README.md").read_text()
    for file in sorted((EXPERIMENTS / "small").glob("*.yaml")):
        assert (EXPERIMENTS / "answers" / f"{file.stem}.md").exists(), file.name
        assert f"(answers/{file.stem}.md)" in readme, file.name


def test_loading_an_experiment_does_not_import_the_compiler_of_torch():
    file = str(EXPERIMENTS / "small/rules.yaml")
    script = f"import sys; from hqlt_lab.experiment.load_experiment import load_experiment; load_experiment({file!r})"
    script += "; print('torch._dynamo' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "False"


def test_cached_cell_differs_only_in_its_seed():
    experiment = load_experiment(EXPERIMENTS / "first_run.yaml")
    first, again = (experiment.make_cell(experiment.arms[1], {}, seed) for seed in (0, 7))
    assert again == dataclasses.replace(first, seed=7)
    other = dataclasses.replace(experiment, base=experiment.base | {"train": {"steps": 3}})
    assert other.make_cell(experiment.arms[1], {}, 0).train.steps == 3 != first.train.steps
