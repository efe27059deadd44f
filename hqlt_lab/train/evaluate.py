"""A trained cell, asked again: on any of its fixed sets, whole or with one memory silent.

Scored as at the end of training, by the same code in the same precision: what is intact scores what it scored then.
What was asked before is read from the folder.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.model.lesions import check_memories, lesion
from hqlt_lab.registry import build, find
from hqlt_lab.tasks._base import Split
from hqlt_lab.train.evaluations import Evaluations, name_of, read_evaluations, write_evaluation
from hqlt_lab.train.fit import build_model
from hqlt_lab.train.learner import Learner
from hqlt_lab.train.life import in_precision
from hqlt_lab.train.load import cell_in, load_cell, weights_in
from hqlt_lab.train.outcome import read_outcome
from hqlt_lab.train.probe_file import ProbeTable, numbers
from hqlt_lab.train.probing import look_at
from hqlt_lab.train.progress import Progress
from hqlt_lab.train.trainer import quiet, trainer_for
from hqlt_lab.train.watch import measure
from hqlt_lab.train.world_score import score_world


class Examination:
    """The cell of a folder, brought back for questions when the first one needs it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cell = folder, cell_in(folder)
        self.outcome = read_outcome(folder)
        if self.outcome is None or self.outcome.status != "done":
            how = "has diverged" if self.outcome else "is not trained to its end yet"
            raise TrainingError(f"{folder}: the cell {how}, so there is nothing to evaluate.")
        self.brought: tuple[Trainer, Learner] | None = None
        self.asked = False  # whether anything had to be computed

    def score(self, split: Split, memory: str | None = None, again: bool = False) -> dict[str, float]:
        """The metrics of a set, intact or with that memory lesioned."""
        known: Evaluations = {} if again else read_evaluations(self.folder)
        name = name_of(split, memory)
        if name not in known:
            found = self.in_its_world(split, memory) if self.cell.agent else self.on_examples(split, memory)
            known[name] = {f"{split}/{metric}": value for metric, value in found.items()}
            write_evaluation(self.folder, split, memory, known[name])
            self.asked = True
        return known[name]

    def on_examples(self, split: Split, memory: str | None) -> dict[str, float]:
        """What the model scores."""
        trainer, learner = self.brought_back()
        with quiet(), lesion(learner.model, memory) if memory else nullcontext():
            return measure(trainer, learner, split).metrics

    def in_its_world(self, split: Split, memory: str | None) -> dict[str, float]:
        """What the agent scores."""
        if split not in (world := build("task", self.cell.task)).splits:
            raise TrainingError(f"{self.folder}: task {self.cell.task['name']!r} is a world, and has no {split} set.")
        agent = in_precision(load_cell(self.folder).model, self.cell.trainer)
        with quiet(), lesion(agent.memory, memory) if memory else nullcontext():
            return score_world(agent, world, split, self.cell.train.eval_batch_size).metrics

    def check(self, memory: str) -> None:
        """A sentence unless that memory can be lesioned."""
        check_memories(memories_of(self.cell.model), memory)

    def probe(self, split: Split) -> ProbeTable:
        """A look into its memories."""
        if self.cell.agent:
            raise TrainingError(f"{self.folder}: probes look at examples, and {self.cell.task['name']!r} is a world.")
        trainer, learner = self.brought_back()
        assert self.outcome is not None
        with quiet(), trainer.precision_plugin.val_step_context():
            seen = look_at(learner.model, learner.task, split)  # type: ignore[arg-type]
        return ProbeTable(self.outcome.step, [numbers(layer) for layer in seen.layers])

    def brought_back(self) -> tuple[Trainer, Learner]:
        """Model, precision and device as in training, on one device."""
        if self.brought is None:
            self.brought = bring_back(self.folder, self.cell)
        return self.brought


@quiet()
def bring_back(folder: Path, cell: Cell) -> tuple[Trainer, Learner]:
    """From the weights that were kept."""
    cell = replace(cell, trainer=replace(cell.trainer, devices=1, nodes=1, strategy="auto"))
    task = build("task", cell.task)
    learner = Learner(build_model(cell, task), task, cell, Progress())
    trainer = trainer_for(cell, 1, folder, Callback())
    trainer.precision_plugin.convert_module(learner)  # before the weights: they may be of 64 bits
    learner.model.load_state_dict(weights_in(folder, cell))
    learner.to(trainer.strategy.root_device)
    return trainer, learner


def memories_of(model: Mapping[str, Any]) -> set[str]:
    """Which memories a cell's model has, in any layer."""
    mixers = model["mixer"] if isinstance(model["mixer"], list) else [model["mixer"]]
    return {name for mixer in mixers for name in getattr(find("mixer", mixer["name"]), "reads", ("fw", "kv"))}
