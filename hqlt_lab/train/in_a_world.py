"""One run of an agent, from a cell to its outcome: what `fit` does where the task is a world.

A step is one of the world.  Validation, logging and checkpoints are due at the first end of a turn that lies behind a
multiple of their number; a run ends with the turn that reaches `train.steps`.
"""

from dataclasses import asdict
from pathlib import Path
from typing import cast

import torch

from hqlt_lab.agent.acting import Acting
from hqlt_lab.agent.film import FILE as FILM
from hqlt_lab.agent.film import film, write_film
from hqlt_lab.agent.memory_check import check_memory
from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.composition import not_in_a_world
from hqlt_lab.model.choices import choices
from hqlt_lab.model.sizes import sizes
from hqlt_lab.tasks._base import Split, Task
from hqlt_lab.tasks._world import World
from hqlt_lab.train.canary import same_bits, undisturbed
from hqlt_lab.train.canary_file import Canary, read_canary
from hqlt_lab.train.checkpoints import BEST, put_best, put_last, read, sign, start_from, tidy
from hqlt_lab.train.guard import FILE as DIVERGED
from hqlt_lab.train.guard import Diverged
from hqlt_lab.train.interrupt import Interrupted, Interruption
from hqlt_lab.train.life import Life
from hqlt_lab.train.ops_file import write_ops
from hqlt_lab.train.outcome import Outcome, Status
from hqlt_lab.train.progress import Clock, Metrics, Progress, Record, selected, solved
from hqlt_lab.train.trainer import precision, working_dtype
from hqlt_lab.train.world_score import WorldScore, score_world


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
            outcome = run.tested()
        except Diverged as end:
            outcome = run.diverged(end)
    outcome.write(folder)
    tidy(folder, cell.train.keep)
    life.replay.forget()
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
        self.tell_what_computes()
        check_memory(self.life.agent.train(), self.life.world, self.cell.seed, self.exact)
        if self.life.counts.looked < 0:
            self.validate()
        self.interruption.learning = True
        while not self.progress.finished:
            self.clock.lap(learning=False)
            self.turn()
            self.since += self.clock.lap(learning=True)
            self.after_turn()
            if self.interruption.asked:
                self.stop()
        self.interruption.learning = False

    @property
    def exact(self) -> bool:
        return working_dtype(precision(self.cell.trainer)) in (torch.float32, torch.float64)

    def turn(self) -> None:
        """Live, unless a checkpoint lies between living and learning; then learn."""
        life = self.life
        if life.counts.updates >= life.updates_due:
            lived = life.live()
            told = {"return": lived.returns.mean(), "success": 100 * lived.success.mean()}
            self.record(life.counts.steps, {f"train/{name}": float(value) for name, value in told.items()})
        if self.cell.trainer.canary and life.counts.updates == 0 < life.updates_due:
            self.listen_to_the_canary()
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
        valid = {f"valid/{name}": value for name, value in self.measure("valid").metrics.items()}
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

    def measure(self, split: Split) -> WorldScore:
        return score_world(self.life.agent, self.life.world, split, self.cell.train.eval_batch_size)

    def save(self) -> None:
        """Where to go on."""
        self.clock.lap(learning=False)
        put_last(self.life.stored() | self.signed(), self.folder)
        self.saved = self.life.counts.steps

    def signed(self) -> Metrics:
        checkpoint: Metrics = {}
        sign(checkpoint, self.cell, self.progress)
        return checkpoint

    def tell_what_computes(self) -> None:
        """Which backends, for episodes that are learned from."""
        name, device = precision(self.cell.trainer), self.life.agent.device.type
        tokens = self.life.world.tokens_in("train")
        write_ops(self.folder, device, name, choices(self.life.agent.memory, tokens, device, working_dtype(name)))

    def listen_to_the_canary(self) -> None:
        """See whether the first update repeats, before it is made."""
        one, other = (self.first_gradients() for _ in range(2))
        differs = [name for name in one if not same_bits(one[name], other[name])]
        found = Canary(not differs, differs)
        found.write(self.folder)
        if self.cell.trainer.deterministic and differs:
            self.progress.notes.append(found.warning)

    def first_gradients(self) -> dict[str, torch.Tensor]:
        """The loss of the next update, and each parameter's gradient by its name."""
        agent = self.life.agent
        with undisturbed(agent, agent.device):
            loss = self.life.losses().total
            grads = torch.autograd.grad(loss, list(agent.parameters()), allow_unused=True, materialize_grads=True)
        names = (name for name, _ in agent.named_parameters())
        return {"loss": loss.detach(), **dict(zip(names, grads, strict=True))}

    def tested(self) -> Outcome:
        """The end of a run that went well."""
        chosen = self.progress.last
        if self.cell.train.report == "best_valid":
            weights = read(self.folder / BEST)["state_dict"]
            self.life.agent.load_state_dict({name.removeprefix("model."): each for name, each in weights.items()})
            chosen = self.progress.best
        score = self.measure("test")
        found, errors = (
            {f"test/{name}": value for name, value in told.items()} for told in (score.metrics, score.errors)
        )
        self.record(self.life.counts.steps, found)
        scene = self.life.world.begin("test", 0, 0, 1)
        write_film(self.folder / FILM, film(scene, Acting(self.life.agent.eval(), greedy=True)))
        return self.outcome("done", chosen | found, errors)

    def diverged(self, end: Diverged) -> Outcome:
        """The end of a run that did not: what repeats the failing update is kept."""
        life = self.life
        batch = life.replay.batch(self.cell.seed, life.counts.updates, self.cell.train.batch_size)
        kept = {"step": end.step, "update": life.counts.updates, "seed": self.cell.seed, **batch._asdict()}
        torch.save(kept | {"model": life.agent.state_dict()}, self.folder / DIVERGED)
        self.progress.notes.append(str(end))
        return self.outcome("diverged", self.progress.last)

    def outcome(self, status: Status, metrics: Metrics, errors: Metrics | None = None) -> Outcome:
        """What came of it, with time and size; sizes are those of the memory, which is what arms differ in."""
        self.clock.lap(learning=False)
        progress, length = self.progress, self.life.world.tokens_in("train")
        size = sizes(self.life.agent.memory.eval(), length)
        tokens = self.life.counts.updates * self.cell.train.batch_size * length
        return Outcome(
            status=status,
            step=self.life.counts.steps,
            metrics=metrics,
            seconds=progress.seconds,
            tokens_per_second=tokens / progress.learning if progress.learning else 0.0,
            parameters=size.total.parameters,
            state_bytes=size.total.state,
            flops_per_token=size.total.training / size.length,
            errors=errors or {},
            repeatable=canary.repeatable if (canary := read_canary(self.folder)) else None,
            message=" ".join(progress.notes),
        )


def due(every: int, last: int, step: int) -> bool:
    """Whether a multiple of `every` lies between."""
    return step // every > last // every
