"""How the life of an agent ends: tested and filmed, or with what repeats the failing update."""

from pathlib import Path

from hqlt_lab.agent.acting import Acting
from hqlt_lab.agent.film import FILE as FILM
from hqlt_lab.agent.film import film, write_film
from hqlt_lab.model.sizes import sizes
from hqlt_lab.train.canary_file import read_canary
from hqlt_lab.train.checkpoints import BEST, read, save
from hqlt_lab.train.guard import FILE as DIVERGED
from hqlt_lab.train.guard import Diverged
from hqlt_lab.train.life import Life
from hqlt_lab.train.outcome import Outcome, Status
from hqlt_lab.train.progress import Clock, Metrics, Progress, Record
from hqlt_lab.train.world_score import score_world


def tested(life: Life, folder: Path, progress: Progress, record: Record) -> Outcome:
    """The end of a run that went well."""
    chosen, clock = progress.last, Clock(progress)
    if life.cell.train.report == "best_valid":
        life.load_weights(read(folder / BEST)["state_dict"])
        chosen = progress.best
    score = score_world(life.agent, life.world, "test", life.cell.train.eval_batch_size)
    found, errors = ({f"test/{name}": value for name, value in told.items()} for told in (score.metrics, score.errors))
    record(life.counts.steps, found)
    scene = life.world.begin("test", 0, 0, 1)
    write_film(folder / FILM, film(scene, Acting(life.agent.eval(), greedy=True)))
    clock.lap(learning=False)
    return outcome_of(life, folder, progress, "done", chosen | found, errors)


def diverged(life: Life, folder: Path, progress: Progress, end: Diverged) -> Outcome:
    """The end of a run that did not."""
    batch = life.replay.batch(life.cell.seed, life.counts.updates, life.cell.train.batch_size)
    kept = {"step": end.step, "update": life.counts.updates, "seed": life.cell.seed, **batch._asdict()}
    save(kept | {"model": life.agent.state_dict()}, folder / DIVERGED)
    progress.notes.append(str(end))
    return outcome_of(life, folder, progress, "diverged", progress.last, {})


def outcome_of(
    life: Life, folder: Path, progress: Progress, status: Status, metrics: Metrics, errors: Metrics
) -> Outcome:
    """What came of it, with time and size; sizes are those of the memory, which is what arms differ in."""
    size = sizes(life.agent.memory.eval(), life.world.tokens_in("train"))
    tokens = life.counts.updates * life.cell.train.batch_size * size.length
    return Outcome(
        status=status,
        step=life.counts.steps,
        metrics=metrics,
        seconds=progress.seconds,
        tokens_per_second=tokens / progress.learning if progress.learning else 0.0,
        parameters=size.total.parameters,
        state_bytes=size.total.state,
        flops_per_token=size.total.training / size.length,
        errors=errors,
        repeatable=canary.repeatable if (canary := read_canary(folder)) else None,
        message=" ".join(progress.notes),
    )
