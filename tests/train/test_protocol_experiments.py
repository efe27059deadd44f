"""The files of published protocols: each is planned as published, and two steps of a shrunken version are trained."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hqlt_lab.experiment.cell import cell_from_dict
from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.experiment.validate.arm_checks import build_meta_model
from hqlt_lab.registry import build
from hqlt_lab.train.fit import fit

PROTOCOLS = Path(__file__).parents[2] / "experiments/protocols"
FILES = sorted(PROTOCOLS.glob("*.yaml"))
# two steps, few rows and a small model; rows have the published lengths unless a file is in SMALLER
TINY_TRAIN = {"steps": 2, "epochs": None, "lr_interval": "step", "batch_size": 2, "eval_batch_size": 2, "warmup": 0}
TINY_TRAIN |= {"valid_every": 2, "checkpoint_every": 2, "accumulate": 1, "stop_at": None}
TINY_MODEL = {"width": 16, "heads": 2, "mlp_width": 16}
VOCABULARIES = {"keys": 300, "values": 300, "first_keys": 20, "second_keys": 20}
# shorter rows by file
SMALLER = {
    "chomsky_stack": {"test_length": [41, 60]},
    "chomsky_duplicate": {"test_length": [41, 60]},
    "in_context_languages": {"train_length": [2, 3], "test_length": [2, 3]},
    "mamba_selective_copying": {"train_length": [64, 64], "test_length": [64, 64]},
    "mamba_induction": {"test_slices": None},
    "mqar_figure2_512": {"pairs": 8, "train_length": [64, 64], "test_length": [64, 64]},
}


def shrink(cell, changes):
    """Return the cell with few and short rows, few tokens and a narrow model."""
    task = cell.task | {name: count for name, count in VOCABULARIES.items() if name in cell.task} | changes
    task["eval_size"] = max(2, *(len(task.get(parts) or []) for parts in ("segments", "test_slices")))
    model = cell.model | TINY_MODEL
    if isinstance(model["positions"], dict) and model["positions"]["name"] == "learned":
        model["positions"] = model["positions"] | {"length": 2048}
    return replace(cell, task=task, model=model, train=replace(cell.train, **TINY_TRAIN))


def cells_by_arm(file):
    """Return an experiment, and the first cell of each of its arms without axes."""
    experiment = load_experiment(file)
    cells = {}
    for planned in expand_plan(experiment):
        cells.setdefault(planned.cell.arm.name, planned.cell)
    return experiment, cells


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_protocol_is_planned_and_its_first_arm_trains(file, tmp_path):
    experiment, cells = cells_by_arm(file)
    assert experiment.question.endswith("?") and not experiment.warnings and len(cells) >= 2
    cell = next(iter(cells.values()))
    stored = cell_from_dict(json.loads(json.dumps(cell.to_dict())))
    assert stored == cell
    build_meta_model(cell, build("task", cell.task).vocabulary)
    check_training(cell, SMALLER.get(file.stem, {}), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_arm_of_a_protocol_trains(file, tmp_path):
    _, cells = cells_by_arm(file)
    for index, cell in enumerate(list(cells.values())[1:]):
        check_training(cell, SMALLER.get(file.stem, {}), tmp_path / str(index))


def check_training(cell, changes, folder):
    """Train two steps of the shrunken cell, which has the published metrics unless its slices are changed too."""
    outcome = fit(shrink(cell, changes), folder)
    assert outcome.status == "done" and outcome.step == 2
    assert "test_slices" in changes or {cell.measure.select, *cell.measure.report} <= set(outcome.metrics)


def test_the_readme_links_every_protocol():
    readme = (PROTOCOLS.parent / "README.md").read_text()
    assert not [file.name for file in FILES if f"(protocols/{file.name})" not in readme]
