"""Trained cells: find one, load it, ask it again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.api.tracked import RUNS, catch_up, tracker_of
from hqlt_lab.errors import StoreError, listed
from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.experiment import load as load_experiment
from hqlt_lab.study.agenda import Agenda
from hqlt_lab.study.run import open_agenda, wanted
from hqlt_lab.study.store import Store
from hqlt_lab.track.sent import read_sent

if TYPE_CHECKING:
    from hqlt_lab.study.evaluate import Evaluated, Told
    from hqlt_lab.train.evaluate import Split
    from hqlt_lab.train.load import Loaded


def load(run: str | Path, runs: str | Path = RUNS) -> "Loaded":
    """The trained model and its task; `run` is a cell's folder, the beginning of its key, or its MLflow run."""
    from hqlt_lab.train.load import load_cell

    return load_cell(folder_of(run, runs))


def folder_of(run: str | Path, runs: str | Path = RUNS) -> Path:
    """Where a run is kept."""
    if (Path(run) / "cell.json").is_file():
        return Path(run)
    found = matching(Path(runs).glob("studies/*/cells/*/cell.json"), str(run)) or matching(
        Path(runs).glob("single/*/*/cell.json"), str(run)
    )
    if len(found) != 1:
        several = f"{len(found)} fit: {listed(map(str, found[:5]))}" if found else "there is none"
        raise StoreError(
            f"{run}: one cell is needed, by its folder, its key or its MLflow run; under {runs} {several}. "
            "`hqlt status FILE` lists keys."
        )
    return found[0]


def matching(files: Iterable[Path], name: str) -> list[Path]:
    """The folders of these cells whose key begins so, or whose MLflow run does.

    A key that several studies have is the same cell: the one that is finished, of the newest generation, made last.
    """
    folders = [file.parent for file in sorted(files)]
    keys = [folder for folder in folders if folder.name.startswith(name)]
    newest = {folder.stem: folder for folder in sorted(keys, key=standing)}
    runs = [folder for folder in folders if (sent := read_sent(folder)) and sent.run.startswith(name)]
    return list(newest.values()) or runs


def standing(folder: Path) -> tuple[bool, int, float]:
    """How good an example of its cell a folder is."""
    return (folder / "outcome.json").exists(), len(folder.suffix), (folder / "cell.json").stat().st_mtime


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What trained cells answered."""

    cells: "list[Evaluated]"
    metrics: list[str]  # those to look at first
    untracked: str | None = None  # what MLflow does not have yet


def evaluate(
    target: str | Path,
    *,
    lesion: str | None = None,
    split: "Split" = "test",
    probe: bool = False,
    long: int | None = None,
    again: bool = False,
    change: Sequence[str] = (),
    only: Sequence[str] = (),
    runs: str | Path = RUNS,
    tracking: str | None = None,
    told: "Told | None" = None,
) -> Evaluation:
    """Score a trained cell again, or all of a file's at their chosen points; what was asked before is remembered.

    `lesion`: also with that memory silent, "fw" or "kv"; `probe`: look into the memories too;
    `long`: go beyond what was trained, up to so many times as far.
    """
    from hqlt_lab.report.rows import reported
    from hqlt_lab.study.evaluate import Question, evaluate_cell, evaluate_cells
    from hqlt_lab.track.courier import send_evaluations

    question = Question(split=split, lesion=lesion, probe=probe, long=long, again=again)
    if not Path(target).is_file() and Path(target).suffix not in (".yaml", ".yml"):
        folder = folder_of(target, runs)
        cell = evaluate_cell(folder, question)
        metrics = [name for name in cell.scores[question.names[0]] if name.count("/") == 1]
        behind = send_evaluations(tracker_of(runs, tracking), folder) if cell.new else None
        return Evaluation(cells=[cell], metrics=metrics, untracked=behind)
    experiment = load_experiment(target, change)
    cells = evaluate_cells(chosen_folders(experiment, runs, only), question, told)
    asked = [f"{question.split}/{name.partition('/')[2]}" for name in reported(experiment.measure)]
    known = {name for cell in cells for scores in cell.scores.values() for name in scores}
    metrics = [name for name in asked if name in known] or sorted(name for name in known if name.count("/") == 1)
    new = any(cell.new for cell in cells)
    behind = catch_up(target, change=change, runs=runs, tracking=tracking) if new else None
    return Evaluation(cells=cells, metrics=list(dict.fromkeys(metrics)), untracked=behind)


def chosen_folders(experiment: Experiment, runs: str | Path, only: Sequence[str]) -> list[Path]:
    """Of the finished cells that the report shows."""
    found = reported_folders(open_agenda(experiment, Store(runs, experiment.name)), only)
    if not found:
        raise StoreError(f"{experiment.name}: none of these cells is trained under {runs}. Train them with `hqlt run`.")
    return found


def reported_folders(agenda: Agenda, only: Sequence[str]) -> list[Path]:
    """The same, which may be none."""
    from hqlt_lab.report.rows import rows_of

    wish = wanted(agenda.experiment, agenda, only)
    keys = {place.key for place in agenda.places() if wish(place)}
    rows = rows_of(agenda.experiment, agenda.records())
    return [record.folder for row in rows for record in row.done if record.key in keys]
