"""One run, from a cell to its outcome.

    outcome = fit(cell, folder, record)

Called again with the same folder, it goes on from the last checkpoint, or returns what was found.
"""

from contextlib import nullcontext
from pathlib import Path

from lightning.pytorch import Trainer

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.model.config import model_config
from hqlt_lab.model.initialise import initialise
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.sizes import sizes
from hqlt_lab.registry import build
from hqlt_lab.tasks._base import Task
from hqlt_lab.train.apart import fit_apart
from hqlt_lab.train.batches import check_shares
from hqlt_lab.train.canary_file import read_canary
from hqlt_lab.train.checkpoints import BEST, read, start_from
from hqlt_lab.train.claim import claim, held
from hqlt_lab.train.guard import Diverged, keep_batch
from hqlt_lab.train.heap import keep_freed_memory
from hqlt_lab.train.in_a_world import live_out
from hqlt_lab.train.learner import Learner
from hqlt_lab.train.outcome import Outcome, Status, read_outcome
from hqlt_lab.train.progress import Metrics, Record
from hqlt_lab.train.sharding import load_weights, put_together, whole
from hqlt_lab.train.started import first
from hqlt_lab.train.tidy import tidy
from hqlt_lab.train.trainer import quiet, trainer_for
from hqlt_lab.train.watch import Watch, measure


def ignore(step: int, metrics: Metrics) -> None:
    """A record that keeps nothing."""


def fit(cell: Cell, folder: Path, record: Record = ignore) -> Outcome:
    """Train and test a cell; `record` gets (step, metrics) as they come."""
    outcome = (fit_apart if several(cell) else fit_here)(cell, folder, record)
    tidy(folder, cell.train.keep)  # also after one that was killed before it could
    return outcome


def several(cell: Cell) -> bool:
    """Whether it takes more than one device, and so more than one process."""
    return cell.trainer.devices * cell.trainer.nodes > 1


def fit_here(cell: Cell, folder: Path, record: Record = ignore) -> Outcome:
    """The same in this process, which for several devices has to be one of their own (`train.cell`)."""
    claim(folder, cell)
    with held(folder) if first() or not several(cell) else nullcontext():
        return read_outcome(folder) or train(cell, folder, record)


@quiet()
def train(cell: Cell, folder: Path, record: Record) -> Outcome:
    """Go on from where the folder is."""
    keep_freed_memory()
    task = build("task", cell.task)
    task.check_ready()
    if task.is_world:
        return live_out(cell, task, folder, record)
    check_shares(cell, task)
    start = start_from(folder, cell)
    learner = Learner(build_model(cell, task), task, cell, start.progress)
    watch = Watch(cell, folder, start.progress, record)
    with learner.interruption:
        trainer = trainer_for(cell, start.step if start.progress.finished else cell.train.steps, folder, watch)
        try:
            trainer.fit(learner, ckpt_path=start.checkpoint, weights_only=True)
            outcome = tested(trainer, learner, watch)
        except Diverged as end:
            outcome = diverged(trainer, learner, watch, end)
    if trainer.is_global_zero:
        outcome.write(folder)
    return outcome


def build_model(cell: Cell, task: Task) -> SequenceModel:
    """The model at its beginning."""
    model = SequenceModel(model_config({**cell.model, "vocabulary": task.vocabulary}))
    initialise(model, model.config, cell.seed)
    model.use(cell.ops).recompute(cell.train.recompute)
    if cell.train.compile:
        model.compile()
    return model


def tested(trainer: Trainer, learner: Learner, watch: Watch) -> Outcome:
    """The end of a run that went well."""
    chosen = learner.progress.last
    if learner.cell.train.report == "best_valid":
        load_weights(learner, read(watch.folder / BEST)["state_dict"])
        chosen = learner.progress.best
    learner.to(trainer.strategy.root_device)  # Lightning has moved it away
    score = measure(trainer, learner, "test")
    found, errors = ({f"test/{name}": value for name, value in told.items()} for told in (score.metrics, score.errors))
    watch.tell(trainer, trainer.global_step, found)
    return outcome_of(learner, watch, "done", trainer.global_step, chosen | found, errors)


def diverged(trainer: Trainer, learner: Learner, watch: Watch, end: Diverged) -> Outcome:
    """The end of a run that did not."""
    weights = whole(learner.model.state_dict())
    if trainer.is_global_zero:
        keep_batch(watch.folder, learner.cell, learner.task, end.step, weights)
    learner.progress.notes.append(str(end))
    return outcome_of(learner, watch, "diverged", end.step, learner.progress.last)


def outcome_of(
    learner: Learner, watch: Watch, status: Status, step: int, metrics: Metrics, errors: Metrics | None = None
) -> Outcome:
    """What came of it, with time and size."""
    watch.clock.lap(learning=False)
    progress, tokens = learner.progress, step * learner.cell.train.batch_size * learner.task.tokens_in("train")
    with put_together(learner.model):
        size = sizes(learner.eval().model, learner.task.tokens_in("train"))  # type: ignore[arg-type]
    return Outcome(
        status=status,
        step=step,
        metrics=metrics,
        seconds=progress.seconds,
        tokens_per_second=tokens / progress.learning if progress.learning else 0.0,
        parameters=size.total.parameters,
        state_bytes=size.total.state,
        flops_per_token=size.total.training / size.length,
        errors=errors or {},
        repeatable=canary.repeatable if (canary := read_canary(watch.folder)) else None,
        message=" ".join(progress.notes),
    )
