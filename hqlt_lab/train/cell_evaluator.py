"""Evaluate a trained cell on any of its fixed splits, with all memories or with one of them ablated.

It is scored by the same code and in the same precision as at the end of training, so without ablation the result is the
same.  Earlier results are read from the folder instead of computed again.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.model.analysis.lesions import lesion, require_both_memories
from hqlt_lab.registry import build, find_factory
from hqlt_lab.rundir.cell_file import read_cell
from hqlt_lab.rundir.diagnostics import ProbeTable, replace_non_finite
from hqlt_lab.rundir.evaluations import Evaluations, evaluation_name, read_evaluations, write_evaluation
from hqlt_lab.rundir.outcome import read_outcome
from hqlt_lab.tasks._base import Split
from hqlt_lab.train.fit import build_model
from hqlt_lab.train.lightning_module import TrainingModule
from hqlt_lab.train.load_trained_model import load_cell, load_weights
from hqlt_lab.train.rl.evaluate_agent import score_agent
from hqlt_lab.train.rl.sac_trainer import set_up_agent_device
from hqlt_lab.train.trainer import build_trainer, silence_lightning
from hqlt_lab.train.trainer_state import TrainerState
from hqlt_lab.train.training_callback import probe_split, score_module


class CellEvaluator:
    """Evaluates the cell of a folder.  The model is restored when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cell = folder, read_cell(folder)
        self.outcome = read_outcome(folder)
        if self.outcome is None or self.outcome.status != "done":
            status = "has diverged" if self.outcome else "has not finished training"
            raise TrainingError(f"{folder}: the cell {status}, so it cannot be evaluated.")
        self.restored_run: tuple[Trainer, TrainingModule] | None = None
        self.has_computed = False  # whether a result was computed and not read from the folder

    def score_split(self, split: Split, memory: str | None = None, recompute: bool = False) -> dict[str, float]:
        """Return the metrics of a split, with all memories or with `memory` ablated."""
        evaluations: Evaluations = {} if recompute else read_evaluations(self.folder)
        name = evaluation_name(split, memory)
        if name not in evaluations:
            metrics = self.score_episodes(split, memory) if self.cell.agent else self.score_examples(split, memory)
            evaluations[name] = {f"{split}/{metric}": value for metric, value in metrics.items()}
            write_evaluation(self.folder, split, memory, evaluations[name])
            self.has_computed = True
        return evaluations[name]

    def score_examples(self, split: Split, memory: str | None) -> dict[str, float]:
        """Return the metrics of the model on a split of examples."""
        trainer, module = self.restore()
        with silence_lightning(), lesion(module.model, memory) if memory else nullcontext():
            return score_module(trainer, module, split).metrics

    def score_episodes(self, split: Split, memory: str | None) -> dict[str, float]:
        """Return the metrics of the agent on a split of episodes."""
        environment = build("task", self.cell.task)
        if split not in environment.splits:
            raise TrainingError(
                f"{self.folder}: task {self.cell.task['name']!r} is an environment, and has no {split} set."
            )
        agent = set_up_agent_device(load_cell(self.folder).model, self.cell.trainer)
        with silence_lightning(), lesion(agent.memory, memory) if memory else nullcontext():
            return score_agent(agent, environment, split, self.cell.train.eval_batch_size).metrics

    def check_lesion(self, memory: str) -> None:
        """Raise an error if the model does not have this memory."""
        require_both_memories(model_memories(self.cell.model), memory)

    def probe_memories(self, split: Split) -> ProbeTable:
        """Probe the memories of the trained model on a split."""
        if self.cell.agent:
            raise TrainingError(
                f"{self.folder}: probes need examples, but {self.cell.task['name']!r} is an environment."
            )
        trainer, module = self.restore()
        assert self.outcome is not None
        with silence_lightning(), trainer.precision_plugin.val_step_context():
            probes = probe_split(module.model, module.task, split)  # type: ignore[arg-type]
        return ProbeTable(self.outcome.step, [replace_non_finite(layer) for layer in probes.layers])

    def restore(self) -> tuple[Trainer, TrainingModule]:
        """Return the trained model with its trainer, restored at the first call."""
        if self.restored_run is None:
            self.restored_run = restore_run(self.folder, self.cell)
        return self.restored_run


@silence_lightning()
def restore_run(folder: Path, cell: Cell) -> tuple[Trainer, TrainingModule]:
    """Restore a trained model with the precision and accelerator of its training, on one device."""
    cell = replace(cell, trainer=replace(cell.trainer, devices=1, nodes=1, strategy="auto"))
    task = build("task", cell.task)
    module = TrainingModule(build_model(cell, task), task, cell, TrainerState())
    trainer = build_trainer(cell, 1, folder, Callback())
    trainer.precision_plugin.convert_module(module)  # before loading, because the weights may be float64
    load_weights(module.model, folder, cell)
    module.to(trainer.strategy.root_device)
    return trainer, module


def model_memories(model: Mapping[str, Any]) -> set[str]:
    """Return the memories ("fw", "kv") that any layer of a cell's model has."""
    mixers = model["mixer"] if isinstance(model["mixer"], list) else [model["mixer"]]
    return {name for mixer in mixers for name in getattr(find_factory("mixer", mixer["name"]), "reads", ("fw", "kv"))}
