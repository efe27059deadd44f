"""One run of an agent, from a cell to its outcome: what `fit` does where the task is a world.

A step is one of the world.  Validation, logging and checkpoints are due at the first end of a turn that lies behind a
multiple of their number; a run ends with the turn that reaches `train.steps`.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from hqlt_lab.agent.memory_check import check_memory
from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.composition import not_in_a_world
from hqlt_lab.tasks._base import Task
from hqlt_lab.tasks._world import World
from hqlt_lab.train.checkpoints import put_best, put_last, read, sign, start_from
from hqlt_lab.train.guard import Diverged
from hqlt_lab.train.interrupt import Interrupted, Interruption
from hqlt_lab.train.life import Life
from hqlt_lab.train.outcome import Outcome
from hqlt_lab.train.progress import Clock, Metrics, Progress, Record, selected, solved
from hqlt_lab.train.world_begin import is_exact, listen_to_the_canary, tell_what_computes
from hqlt_lab.train.world_end import diverged, tested
from hqlt_lab.train.world_score import score_world


def live_out(cell: Cell, task: Task, folder: Path, record: Record) -> Outcome:
    """Go on from where the folder is."""
    if wrong := not_in_a_world(cell):
        raise ConfigError("\n".join(wrong))
    start = start_from(folder, cell)
    life = Life(cell, cast(World, task), folder, None if start.checkpoint is None else read(start.checkpoint))
    run = Run(life, folder, start.progress, record)
    with run.interruption:
        try:
            run.go_on()
            outcome = tested(life, folder, run.progress, record)
        except Diverged as end:
            run.clock.lap(learning=True)
            outcome = diverged(life, folder, run.progress, end)
    outcome.write(folder)
    return outcome


class Run:
    """Looks after one life."""

    def __init__(self, life: Life, folder: Path, progress: Progress, record: Record) -> None:
        self.life, self.cell, self.folder = life, life.cell, folder
        self.progress, self.record, self.interruption = progress, record, Interruption()
        self.clock, self.since, self.marked = Clock(progress), 0.0, asdict(life.counts)
        self.saved = life.counts.steps

    def go_on(self) -> None:
        """Turn by turn until the end."""
        tell_what_computes(self.life, self.folder)
        check_memory(self.life.agent.train(), self.life.world, self.cell.seed, is_exact(self.cell))
        if self.life.counts.looked < 0:
            self.validate()
            self.save()
        self.interruption.learning = True
        while not self.progress.finished:
            self.clock.lap(learning=False)
            self.turn()
            self.since += self.clock.lap(learning=True)
            self.after_turn()
            if self.interruption.asked:
                self.stop()
        self.interruption.learning = False

    def turn(self) -> None:
        """Live, unless a checkpoint lies between living and learning; then learn."""
        life = self.life
        if life.counts.updates >= life.updates_due:
            lived = life.live()
            told = {"return": lived.returns.mean(), "success": 100 * lived.success.mean()}
            self.record(life.counts.steps, {f"train/{name}": float(value) for name, value in told.items()})
        if self.cell.trainer.canary and life.counts.updates == 0 < life.updates_due:
            self.progress.notes += listen_to_the_canary(life, self.folder)
        while life.counts.updates < life.updates_due:
            life.learn()
            if self.interruption.asked and life.counts.updates < life.updates_due:
                self.stop()

    def stop(self) -> None:
        """Save, and say how to go on."""
        self.save()
        step = self.life.counts.steps
        raise Interrupted(f"The run was stopped and saved at step {step}. Run the same command again to go on.")

    def after_turn(self) -> None:
        """Log, validate, save."""
        train, counts, step = self.cell.train, self.life.counts, self.life.counts.steps
        if due(train.log_every, counts.told, step):
            self.record(step, self.life.curves | self.speed())
            counts.told = step
        if due(train.valid_every, counts.looked, step) or step >= train.steps:
            self.validate()
        if due(train.checkpoint_every, self.saved, step) or self.progress.finished:
            self.save()

    def speed(self) -> Metrics:
        """Steps in the world, updates, and observations that were learned from, per second since the last time."""
        now, seconds = asdict(self.life.counts), max(self.since, 1e-9)
        steps, updates = ((now[name] - self.marked[name]) / seconds for name in ("steps", "updates"))
        self.marked, self.since = now, 0.0
        tokens = updates * self.cell.train.batch_size * self.life.world.tokens_in("train")
        told = {"steps": steps, "updates": updates, "tokens": tokens}
        return {f"speed/{name}_per_second": value for name, value in told.items()}

    def validate(self) -> None:
        """Measure, remember the best, and see whether this is the end."""
        step = self.life.counts.steps
        score = score_world(self.life.agent, self.life.world, "valid", self.cell.train.eval_batch_size)
        valid = {f"valid/{name}": value for name, value in score.metrics.items()}
        self.record(step, valid)
        loss = {name: value for name, value in self.life.curves.items() if name == "train/loss"}
        improved = self.progress.improve(valid | loss, self.cell)
        if solved(self.progress.last, self.cell):
            name, value, goal = self.cell.measure.select, selected(valid, self.cell), self.cell.train.stop_at
            self.progress.notes.append(f"solved at step {step}: {name} is {value:.4g} (stop_at {goal:.4g}).")
            self.progress.finished = True
        self.progress.finished |= step >= self.cell.train.steps
        if improved and (self.cell.train.keep == "best" or self.cell.train.report == "best_valid"):
            put_best({"state_dict": self.life.weights(), **self.signed()}, self.folder)
        self.life.counts.looked = step

    def save(self) -> None:
        """Where to go on."""
        self.clock.lap(learning=False)
        put_last(self.life.stored() | self.signed(), self.folder)
        self.saved = self.life.counts.steps

    def signed(self) -> dict[str, Any]:
        """Whose it is, and how far the run has come."""
        checkpoint: dict[str, Any] = {}
        sign(checkpoint, self.cell, self.progress)
        return checkpoint


def due(every: int, last: int, step: int) -> bool:
    """Whether a multiple of `every` lies between."""
    return step // every > last // every
