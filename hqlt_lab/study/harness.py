"""Language models of a study under lm-eval, one after the other: the cells that the report shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hqlt_lab.errors import HqltError
from hqlt_lab.evaluation.ask import Answered, Asked, ask, beyond
from hqlt_lab.evaluation.cell import ask_cell, exported, source_in
from hqlt_lab.experiment.evaluation import EvaluateConfig
from hqlt_lab.train.harness_file import numbers_of

Told = Callable[[str, int, int], None]  # what is asked, rows that are done, and how many there are


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One model's answers."""

    arm: str
    seed: int
    folder: Path
    metrics: dict[str, float] = field(default_factory=dict)  # eval/piqa/acc, without_fw/eval/piqa/acc, ...
    made_by: dict[str, str] = field(default_factory=dict)  # the protocol of each
    truncated: dict[str, int] = field(default_factory=dict)  # task -> texts that were longer than the context
    troubles: tuple[str, ...] = ()  # why some tasks have no answer
    remarks: tuple[str, ...] = ()
    new: bool = False  # whether anything was asked


def judged(arm: str, seed: int, folder: Path, answered: Answered, remarks: Sequence[str] = ()) -> Judged:
    """What a model has answered, for tables."""
    numbers = numbers_of(answered.answers)
    return Judged(
        arm=arm,
        seed=seed,
        folder=folder,
        metrics={name: number.value for name, number in numbers.items()},
        made_by={name: number.made_by for name, number in numbers.items()},
        truncated={one.task: one.truncated for one in answered.answers if one.truncated},
        troubles=tuple(dict.fromkeys(answered.troubles)),
        remarks=tuple(remarks),
        new=answered.new,
    )


def judge_cells(folders: Sequence[Path], asked: Asked, told: Told | None = None) -> list[Judged]:
    """Each in turn; one that cannot be asked is passed over, with a sentence."""
    return [judge_cell(folder, asked, told, f"{number + 1}/{len(folders)} ") for number, folder in enumerate(folders)]


def judge_cell(folder: Path, asked: Asked, told: Told | None = None, place: str = "") -> Judged:
    """One cell's answers."""
    from hqlt_lab.train.load import cell_in

    cell = cell_in(folder)
    title = f"{place}{cell.arm}, seed {cell.seed}"

    def tell(what: str, done: int, total: int) -> None:
        if told:
            told(f"{title}: {what}", done, total)

    try:
        remarks = beyond(asked.length, source_in(folder).trained_length)
        return judged(cell.arm, cell.seed, folder, ask_cell(folder, asked, tell), remarks)
    except HqltError as error:
        return Judged(arm=cell.arm, seed=cell.seed, folder=folder, troubles=(f"{cell.arm}: {error}",))


def judge_export(folder: Path, asked: Asked, told: Told | None = None) -> Judged:
    """The answers of an exported model, which are kept nowhere."""
    source = exported(folder)
    answered = ask(source, asked, told=told or (lambda what, done, total: None))
    return judged(folder.name, 0, folder, answered, beyond(asked.length, source.trained_length))


def asked_by(config: EvaluateConfig, **changes: object) -> Asked:
    """What an experiment file asks."""
    told = {
        "tasks": config.tasks,
        "length": config.length,
        "limit": config.limit,
        "local": Path(config.local) if config.local else None,
        "batch_size": config.batch_size,
    }
    return Asked(**(told | changes))  # type: ignore[arg-type]
