"""Every shipped experiment trains: two steps of each of its arms, on tiny shapes."""

from dataclasses import replace
from pathlib import Path

import pytest

from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.train.fit import fit
from tests.tasks.small_corpus import prepare_small_corpus

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FILES, PROTOCOLS = sorted(EXPERIMENTS.rglob("*.yaml")), EXPERIMENTS / "protocols"
TINY_CHANGES = ("train.steps=2", "train.batch_size=4", "train.warmup=0", "train.valid_every=2", "task.eval_size=4")

SHORT_EPISODES = ["agent.warmup_episodes=1", "agent.episodes_at_once=1", "agent.hidden=[8]"]


def small_corpus_changes(folder):
    """Return overrides for a small generated corpus and one device."""
    return [
        f"task.data={prepare_small_corpus(folder / 'words')}",
        "task.vocabulary_size=257",
        "trainer.devices=1",
        "trainer.strategy=auto",
    ]


def shrink_cell(cell):
    """Return the cell with a small model; language models, whose arms differ in size, get few layers and tokens too."""
    if cell.task["name"] != "language":
        return replace(cell, model={**cell.model, "mlp_width": 16})
    # as many layers as the longest list of components per layer
    layers = max([2, *(len(setting) for setting in cell.model.values() if isinstance(setting, list))])
    sizes = {"mlp_width": 16, "width": 32, "heads": 8, "layers": layers}
    return replace(
        cell, model={**cell.model, **sizes}, task={**cell.task, "length": 96}, train=replace(cell.train, batch_size=4)
    )


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.parent != PROTOCOLS], ids=lambda file: str(file.relative_to(EXPERIMENTS))
)
def test_every_arm_of_a_shipped_experiment_trains(file, tmp_path):
    arms, task = {}, load_experiment(file).base["task"]["name"]
    changes = small_corpus_changes(tmp_path) if task == "language" else []
    changes += SHORT_EPISODES if task in ("visual_match", "t_maze") else []
    changes += ["task.phases=[1,2,8]"] if task == "visual_match" else []
    for planned in expand_plan(load_experiment(file, [*TINY_CHANGES, *changes])):
        arms.setdefault(planned.cell.arm, planned.cell)
    for index, cell in enumerate(arms.values()):
        outcome = fit(shrink_cell(cell), tmp_path / str(index))
        assert outcome.status == "done" and (outcome.step == 2 or cell.agent)
        # eval/... metrics come from a later evaluation
        metrics = [name for name in (cell.measure.select, *cell.measure.report) if not name.startswith("eval/")]
        assert all(name in outcome.metrics for name in metrics)
