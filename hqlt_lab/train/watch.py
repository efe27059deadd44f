"""Before the first step: see whether it repeats.  After every step: log, validate, probe, save, stop."""

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.model.choices import choices
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.tasks._base import Split
from hqlt_lab.train.batches import Piece
from hqlt_lab.train.canary import first_step_twice
from hqlt_lab.train.checkpoints import save_best, save_last
from hqlt_lab.train.interrupt import Interrupted
from hqlt_lab.train.learner import Learner
from hqlt_lab.train.ops_file import write_ops
from hqlt_lab.train.probe_file import ProbeFile
from hqlt_lab.train.probing import curves, due, look
from hqlt_lab.train.progress import Clock, Metrics, Progress, Record, selected, solved
from hqlt_lab.train.score import Score, score
from hqlt_lab.train.sharding import put_together
from hqlt_lab.train.trainer import working_dtype
from hqlt_lab.train.utilisation import full_speed


class Watch(Callback):
    """Looks after one run."""

    def __init__(self, cell: Cell, folder: Path, progress: Progress, record: Record) -> None:
        self.cell, self.folder, self.progress, self.record = cell, folder, progress, record
        self.probes = ProbeFile(folder)
        self.clock, self.logged, self.since = Clock(progress), 0, 0.0
        self.full_speed: float | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        learner = as_learner(pl_module)
        learner.interruption.listen()
        self.tell_what_computes(trainer, learner)
        if self.cell.trainer.canary and trainer.global_step == 0:
            self.listen_to_the_canary(trainer, learner)
        learner.interruption.learning = True
        self.clock.lap(learning=False)
        self.logged, self.since = trainer.global_step, 0.0

    def tell_what_computes(self, trainer: Trainer, learner: Learner) -> None:
        """Which backends, for the rows it learns from, and how fast the device could be."""
        device, precision = trainer.strategy.root_device, str(trainer.precision)
        model, tokens, dtype = learner.model, learner.task.tokens_in("train"), working_dtype(precision)
        assert isinstance(model, SequenceModel)
        with put_together(model):
            chosen = choices(model, tokens, device.type, dtype)
            self.full_speed = full_speed(model, tokens, device, dtype)
        if trainer.is_global_zero:
            write_ops(self.folder, device.type, precision, chosen)

    def listen_to_the_canary(self, trainer: Trainer, learner: Learner) -> None:
        """See whether the first step repeats, before it is taken."""
        found = first_step_twice(trainer, learner)
        if trainer.is_global_zero:
            found.write(self.folder)
        if self.cell.trainer.deterministic and not found.repeatable:
            self.progress.notes.append(found.warning)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        as_learner(pl_module).interruption.learning = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Piece, batch_idx: int
    ) -> None:
        if batch.number + 1 == self.cell.train.accumulate:
            self.since += self.clock.lap(learning=True)
            self.after_step(trainer, as_learner(pl_module), trainer.global_step)
            self.clock.lap(learning=False)

    def after_step(self, trainer: Trainer, learner: Learner, step: int) -> None:
        """What happens once the weights are those of this step."""
        train = self.cell.train
        if step % train.log_every == 0:
            self.tell(trainer, step, learner.curves | self.speed(learner, step))
        if validated := step % train.valid_every == 0 or step == train.steps:
            self.validate(trainer, learner, step)
        if due(train, step, validated, self.progress.finished):
            with put_together(learner.model):
                self.probe(trainer, learner, step)
        asked = learner.interruption.agreed
        if step % train.checkpoint_every == 0 or self.progress.finished or asked:
            self.clock.lap(learning=False)
            save_last(trainer, self.folder)
        if asked:
            raise Interrupted(f"The run was stopped and saved at step {step}. Run the same command again to go on.")

    def speed(self, learner: Learner, step: int) -> Metrics:
        """Steps and tokens per second since the last time; padding is computed too, so it counts.  mfu in percent."""
        pace = (step - self.logged) / self.since
        self.logged, self.since = step, 0.0
        tokens = self.cell.train.batch_size * learner.task.tokens_in("train")
        mfu = {} if self.full_speed is None else {"speed/mfu": 100 * pace * tokens / self.full_speed}
        return {"speed/steps_per_second": pace, "speed/tokens_per_second": pace * tokens, **mfu}

    def validate(self, trainer: Trainer, learner: Learner, step: int) -> None:
        """Measure, remember the best, and see whether this is the end."""
        valid = {f"valid/{name}": value for name, value in measure(trainer, learner, "valid").metrics.items()}
        if "short" in learner.task.splits:
            short = measure(trainer, learner, "short").metrics
            valid |= {f"valid/short_{name}": value for name, value in short.items() if "/" not in name}
        self.tell(trainer, step, valid)
        improved = self.progress.improve(valid | {"train/loss": learner.curves["train/loss"]}, self.cell)
        if solved(self.progress.last, self.cell):
            self.finish_early(trainer, step)
        self.progress.finished |= step == self.cell.train.steps
        if improved and (self.cell.train.keep == "best" or self.cell.train.report == "best_valid"):
            save_best(trainer, self.folder)

    def probe(self, trainer: Trainer, learner: Learner, step: int) -> None:
        """Look into the memories; one process does, and the others need not wait for it."""
        if not trainer.is_global_zero:
            return
        seen = look(trainer, learner)
        self.tell(trainer, step, curves(seen))
        self.probes.add(step, seen.layers)

    def finish_early(self, trainer: Trainer, step: int) -> None:
        """Stop, because the goal is reached."""
        name, value = self.cell.measure.select, selected(self.progress.last, self.cell)
        self.progress.finished = trainer.should_stop = True
        self.progress.notes.append(
            f"solved at step {step}: {name} is {value:.4g} (stop_at {self.cell.train.stop_at:.4g})."
        )

    def tell(self, trainer: Trainer, step: int, metrics: Metrics) -> None:
        """Hand over some points of the curves, once for all processes."""
        if trainer.is_global_zero:
            self.record(step, metrics)


def measure(trainer: Trainer, learner: Learner, split: Split) -> Score:
    """What the model does on a fixed set, in the precision of training."""
    with trainer.precision_plugin.val_step_context(), put_together(learner.model):
        return score(learner.model, learner.task, split, learner.cell.train.eval_batch_size)


def as_learner(module: LightningModule) -> Learner:
    """Lightning hands over what it was given."""
    assert isinstance(module, Learner)
    return module
