"""`hqlt evaluate --tasks`: answers to lm-eval's tasks, in the columns of the paper's tables."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from hqlt_lab.cli.exits import Exit
from hqlt_lab.cli.screen import aside, console, warn, whole
from hqlt_lab.errors import ConfigError
from hqlt_lab.words import in_json

if TYPE_CHECKING:
    from hqlt_lab.api.harness import TaskEvaluation
    from hqlt_lab.study.harness import Judged


def evaluate_tasks(target: str, tasks: str, into: Path | None, as_json: bool, **options: Any) -> None:
    """Ask, keep, print; what could not be asked makes the command fail, after everything else."""
    from hqlt_lab import api

    if into is not None and not into.parent.is_dir():
        raise ConfigError(f"--into: there is no folder {into.parent}.")
    names = [name.strip() for name in tasks.split(",") if name.strip()]
    with told() as tell:
        found = api.evaluate_tasks(target, names, told=tell, **options)
    text = in_json(found.models)
    if into is not None:
        into.write_text(text + "\n")
    if as_json:
        print(text)
    else:
        show(found)
    if found.troubles:
        raise typer.Exit(Exit.NOT_ALL_WELL)


def show(found: "TaskEvaluation") -> None:
    """A table for each set and one for the rest, then what a reader should know."""
    whole(table_of(found.models, found.tasks))
    for model in found.models:
        cut = ", ".join(f"{task} {count}" for task, count in model.truncated.items())
        if cut:
            console.print(
                f"{escape(model.arm)}: texts cut on the left to fit the context: {escape(cut)}.", soft_wrap=True
            )
    remarks = dict.fromkeys(remark for model in found.models for remark in model.remarks)
    for sentence in (*remarks, *found.troubles, *([found.untracked] if found.untracked else [])):
        warn(sentence)


def table_of(models: "Sequence[Judged]", tasks: Sequence[str]) -> Table:
    """A line per arm, with a lesion one more; of several seeds the median."""
    from hqlt_lab.experiment.evaluation import columns_of
    from hqlt_lab.report.words import shown

    lines: dict[str, list[dict[str, float]]] = {}
    for model in models:
        for before, title in (("", ""), ("without_fw/", " without fw"), ("without_kv/", " without kv")):
            there = {name.removeprefix(before): value for name, value in model.metrics.items() if of(name, before)}
            if there or not before:
                lines.setdefault(model.arm + title, []).append(there)
    columns = columns_of((name for some in lines.values() for one in some for name in one), tasks)
    table = Table("arm", "seeds", *columns.values(), box=None, pad_edge=False)
    for title, some in lines.items():
        cells = [[one[name] for one in some if name in one] for name in columns]
        numbers = [
            shown(float(median(values)), name) if values else "" for name, values in zip(columns, cells, strict=True)
        ]
        table.add_row(escape(title), str(len(some)), *numbers)
    return table


def of(name: str, before: str) -> bool:
    return name.startswith(f"{before}eval/")


@contextmanager
def told() -> Iterator[Callable[[str, int, int], None]]:
    """On standard error: a bar where there is a terminal, elsewhere a line per task."""
    with Progress(console=aside, transient=True, disable=not aside.is_interactive) as progress:
        bar, last = progress.add_task("asking"), [""]

        def tell(what: str, done: int, total: int) -> None:
            if what != last[0] and not aside.is_interactive:
                aside.print(f"{what} ({total} rows)", markup=False, highlight=False, soft_wrap=True)
            last[0] = what
            progress.update(bar, description=escape(what), completed=done, total=total)

        yield tell
