"""What a cell's folder tells besides its curves: when it began and ended, what it cost, which files to keep."""

from pathlib import Path

from hqlt_lab.track import spool
from hqlt_lab.track.spool import Point
from hqlt_lab.train import (
    canary_file,
    claim,
    evaluations,
    harness_file,
    long_context_file,
    ops_file,
    outcome,
    probe_file,
)
from hqlt_lab.train.canary_file import read_canary
from hqlt_lab.train.evaluations import evaluations_in
from hqlt_lab.train.harness_file import answers_in, numbers_of, shown
from hqlt_lab.train.long_context_file import curves_in
from hqlt_lab.train.ops_file import read_ops
from hqlt_lab.train.outcome import read_outcome

FILES = (claim, outcome, ops_file, canary_file, probe_file, evaluations, harness_file, long_context_file)
KEPT = (*(file.FILE for file in FILES), "log.txt", "process.log", "episode.gif")


def began(folder: Path) -> int | None:
    """The time of the first point, or of the claim, in milliseconds."""
    points, _ = spool.read(folder, most=100_000)
    return points[0].time if points else changed(folder / claim.FILE)


def ended(folder: Path) -> int | None:
    """The time of the outcome, or of the last point, in milliseconds."""
    return changed(folder / outcome.FILE) or changed(folder / spool.FILE)


def changed(file: Path) -> int | None:
    """When a file was last written, in milliseconds."""
    return file.stat().st_mtime_ns // 1_000_000 if file.exists() else None


def results_text(folder: Path) -> str:
    """Outcome, evaluations, answers and curves as they are written, or nothing."""
    files = [folder / file.FILE for file in (outcome, evaluations, harness_file, long_context_file)]
    return "".join(file.read_text() for file in files if file.exists())


def facts(folder: Path) -> dict[str, str]:
    """What was found when the run began: {"scan": "torch", "repeatable": "true", ..}; nothing as long as it has not."""
    found = read_canary(folder)
    return read_ops(folder) | ({} if found is None else {"repeatable": str(found.repeatable).lower()})


def outcome_points(folder: Path) -> list[Point]:
    """What the run cost; and its metrics, if it left no curves to find them in."""
    found = read_outcome(folder)
    if found is None:
        return []
    cost = {
        "cost/seconds": found.seconds,
        "cost/tokens_per_second": found.tokens_per_second,
        "cost/parameters": float(found.parameters),
        "cost/state_bytes": float(found.state_bytes),
        "cost/flops_per_token": found.flops_per_token,
    }
    metrics = cost if spool.size(folder) else cost | found.metrics
    return [Point(found.step, ended(folder) or 0, metrics)]


def evaluation_points(folder: Path) -> list[Point]:
    """What the cell scored when it was asked again: without_fw/test/accuracy; not what its outcome says already.

    And its answers to lm-eval: eval/piqa/acc, each with the time at which it was given.
    """
    found = read_outcome(folder)
    step, known = (found.step, found.metrics) if found else (0, {})
    points = []
    for one in evaluations_in(folder):
        before = f"without_{one.lesion}/" if one.lesion else ""
        metrics = {before + name: value for name, value in one.metrics.items() if before or name not in known}
        points.append(Point(step, one.time, metrics))
    answers = numbers_of(shown(answers_in(folder)))
    points += [Point(step, number.time, {name: number.value}) for name, number in answers.items()]
    return points + long_context_points(folder)


def long_context_points(folder: Path) -> list[Point]:
    """Curves beyond what was trained: long/loss_by_place, where MLflow's step is the place."""
    curves = curves_in(folder)
    return [Point(int(x), curve.time, {f"long/{curve.title}": y}) for curve in curves for x, y in curve.points]


def kept_files(folder: Path) -> list[Path]:
    """The files that are worth reading later, those of a folder of its own last."""
    return [folder / name for name in KEPT if (folder / name).exists()] + sample_files(folder)


def sample_files(folder: Path) -> list[Path]:
    """What lm-eval asked of the cell and what it answered, a file per task."""
    return sorted((folder / harness_file.SAMPLES).glob("*.jsonl"))
