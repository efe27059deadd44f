"""Every shipped experiment trains: two steps of each of its arms, on tiny shapes."""

from dataclasses import replace
from pathlib import Path

import pytest

from hqlt_lab.experiment.experiment import load
from hqlt_lab.experiment.plan import plan
from hqlt_lab.train.fit import fit
from tests.tasks.texts import prepared

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
TINY = ("train.steps=2", "train.batch_size=4", "train.warmup=0", "train.valid_every=2", "task.eval_size=4")

SHORT_LIVES = ["agent.warmup_episodes=1", "agent.episodes_at_once=1", "agent.hidden=[8]"]


def on_a_small_text(folder):
    """Words that are made here, on one device."""
    return [
        f"task.data={prepared(folder / 'words')}",
        "task.vocabulary_size=257",
        "trainer.devices=1",
        "trainer.strategy=auto",
    ]


def small(cell):
    """A few channels; of language models, whose arms may differ in size, a few layers and tokens, too."""
    if cell.task["name"] != "language":
        return replace(cell, model={**cell.model, "mlp_width": 16})
    turns = max([2, *(len(part) for part in cell.model.values() if isinstance(part, list))])  # all its different layers
    sizes = {"mlp_width": 16, "width": 32, "heads": 4, "layers": turns}
    return replace(
        cell, model={**cell.model, **sizes}, task={**cell.task, "length": 96}, train=replace(cell.train, batch_size=4)
    )


@pytest.mark.parametrize(
    "file", sorted(EXPERIMENTS.rglob("*.yaml")), ids=lambda file: str(file.relative_to(EXPERIMENTS))
)
def test_every_arm_of_a_shipped_file_trains(file, tmp_path):
    arms, task = {}, load(file).base["task"]["name"]
    changes = on_a_small_text(tmp_path) if task == "language" else []
    changes += SHORT_LIVES if task in ("visual_match", "t_maze") else []
    changes += ["task.phases=[1,2,8]"] if task == "visual_match" else []
    for planned in plan(load(file, [*TINY, *changes])):
        arms.setdefault(planned.cell.arm, planned.cell)
    for number, cell in enumerate(arms.values()):
        outcome = fit(small(cell), tmp_path / str(number))
        assert outcome.status == "done" and (outcome.step == 2 or cell.agent)
        asked = (cell.measure.select, *cell.measure.report)
        assert all(metric in outcome.metrics for metric in asked if not metric.startswith("eval/"))  # asked afterwards
