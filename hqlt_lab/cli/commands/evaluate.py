"""`hqlt evaluate`: score trained models, with both memories or without one, and beyond the training length."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from hqlt_lab.cli.terminal import completion
from hqlt_lab.cli.terminal.console import console, print_table, stderr_console
from hqlt_lab.cli.terminal.shared_options import OnlyOption, RunsOption, SetOption, TrackingOption, json_option
from hqlt_lab.formatting import dump_json

if TYPE_CHECKING:
    from hqlt_lab.rundir.evaluations import LongContextCurve
    from hqlt_lab.study.evaluate_cells import CellEvaluation

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL = 10.0  # seconds between progress lines without a terminal
# the shares have a column of their own, by head; norms and work are what they are computed from
HIDDEN_PROBE_PREFIXES = ("norm_", "work_", "share")


def evaluate_models(
    target: Annotated[
        str,
        typer.Argument(
            help="A trained cell (key, folder or MLflow run), or an experiment file, for all of its arms.",
            autocompletion=completion.complete_cells_and_files,
        ),
    ],
    lesion: Annotated[
        Literal["fw", "kv"] | None,
        typer.Option(
            help="Also evaluate with the output of this memory set to zero: fast weights (fw) or softmax (kv)."
        ),
    ] = None,
    split: Annotated[Literal["test", "valid", "short"], typer.Option(help="Split to evaluate on.")] = "test",
    probe: Annotated[bool, typer.Option("--probe", help="Also run the memory probes, layer by layer.")] = False,
    long: Annotated[
        int | None,
        typer.Option(min=1, help="Also evaluate at up to N times the training length, such as 8."),
    ] = None,
    ruler: Annotated[
        bool,
        typer.Option("--ruler", help="Also evaluate a language model on six tasks of RULER, up to --long."),
    ] = False,
    only: OnlyOption = None,
    overrides: SetOption = None,
    again: Annotated[bool, typer.Option("--again", help="Repeat evaluations that were done before.")] = False,
    runs: RunsOption = Path("runs"),
    tracking: TrackingOption = None,
    as_json: Annotated[
        bool,
        json_option("an entry per cell: arm, seed, folder, scores, probes, curves, skipped, new."),
    ] = False,
) -> None:
    """Evaluate trained models: with both memories, without one of them, or beyond the training length."""
    from hqlt_lab import api
    from hqlt_lab.study.evaluate_cells import describe_changed_components

    with evaluation_progress() as on_progress:
        evaluation = api.evaluate(
            target,
            lesion=lesion,
            split=split,
            probe=probe,
            long=long,
            ruler=ruler,
            again=again,
            overrides=overrides or (),
            only=only or (),
            runs=runs,
            tracking=tracking,
            on_progress=on_progress,
        )
    if as_json:
        print(dump_json(evaluation.cells))
        return
    for reason in dict.fromkeys(cell.skipped for cell in evaluation.cells if cell.skipped):
        logger.warning(reason)
    for message in describe_changed_components(evaluation.cells):
        logger.warning(message)
    arms = group_by_arm([cell for cell in evaluation.cells if not cell.skipped])
    print_table(score_table(arms, evaluation.metrics))
    for arm, cells in arms.items() if probe else ():
        console.print()
        print_table(probe_table(arm, cells))
    for title, curves in group_curves_by_title(arms).items() if long or ruler else ():
        trained = next(iter(curves.values()))[0].trained
        console.print(f"\n[bold]{title}[/bold]" + (f", trained up to {trained}" if trained is not None else ""))
        print_table(long_context_table(curves))
    if evaluation.sync_warning:
        logger.warning(evaluation.sync_warning)


@contextmanager
def evaluation_progress() -> Iterator[Callable[[int, int], None]]:
    """Show progress on standard error, as a bar on a terminal, else as occasional lines; yield the callback."""
    if not stderr_console.is_interactive:
        yield make_progress_logger()
        return
    with Progress(console=stderr_console, transient=True) as progress:
        task = progress.add_task("evaluating")
        yield lambda done, total: progress.update(task, completed=done, total=total)


def make_progress_logger() -> Callable[[int, int], None]:
    """Return a callback that logs a line at most once per PROGRESS_INTERVAL."""
    last_time = time.monotonic()

    def log_progress(done: int, total: int) -> None:
        nonlocal last_time
        if time.monotonic() - last_time > PROGRESS_INTERVAL:
            logger.info(f"evaluated {done} of {total}")
            last_time = time.monotonic()

    return log_progress


def group_by_arm(evaluations: "Sequence[CellEvaluation]") -> "dict[str, list[CellEvaluation]]":
    arms: dict[str, list[CellEvaluation]] = {}
    for evaluation in evaluations:
        arms.setdefault(evaluation.arm, []).append(evaluation)
    return arms


def score_table(arms: "dict[str, list[CellEvaluation]]", metrics: Sequence[str]) -> Table:
    """Return a table with a row per arm and metric and a column per evaluation; values are medians over seeds."""
    from hqlt_lab.study.evaluate_cells import median_scores

    names = dict.fromkeys(name for cells in arms.values() for cell in cells for name in cell.scores)
    table = Table("arm", "seeds", "metric", *names, box=None, pad_edge=False)
    for arm, cells in arms.items():
        for metric in metrics:
            scores = median_scores(cells, metric)
            columns = (f"{scores[name]:.4g}" if name in scores else "" for name in names)
            table.add_row(escape(arm), str(len(cells)), metric, *columns)
    return table


def probe_table(arm: str, evaluations: "Sequence[CellEvaluation]") -> Table:
    """Return a table with a row per layer: the fast weights' share by head, then means over heads; all over seeds."""
    probe_layers = [evaluation.probes.layers for evaluation in evaluations if evaluation.probes]
    names = dict.fromkeys(name for layers in probe_layers for layer in layers for name in layer)
    quantities = [name for name in names if not name.startswith(HIDDEN_PROBE_PREFIXES)]
    table = Table("layer", "share by head", *quantities, box=None, pad_edge=False, title=escape(arm))
    table.title_justify = "left"
    for column in table.columns:
        column.no_wrap = True
    for number, same_layer in enumerate(zip(*probe_layers, strict=True)):
        heads = zip(*(layer["share"] for layer in same_layer if "share" in layer), strict=True)
        by_head = "  ".join(format_mean(values) for values in heads)
        means = (format_mean([value for layer in same_layer for value in layer.get(name, ())]) for name in quantities)
        table.add_row(str(number), by_head, *means)
    return table


def group_curves_by_title(arms: "dict[str, list[CellEvaluation]]") -> "dict[str, dict[str, list[LongContextCurve]]]":
    """Return the curves beyond the training length: title -> arm -> one curve per seed."""
    curves_by_title: dict[str, dict[str, list[LongContextCurve]]] = {}
    for arm, cells in arms.items():
        for curve in (curve for cell in cells for curve in cell.curves):
            curves_by_title.setdefault(curve.title, {}).setdefault(arm, []).append(curve)
    return curves_by_title


def long_context_table(arms: "dict[str, list[LongContextCurve]]") -> Table:
    """Return a table with a row per arm and a column per point of the curves; values are medians over seeds."""
    positions = sorted({x for curves in arms.values() for curve in curves for x, _ in curve.points})
    table = Table("arm", *map(str, positions), box=None, pad_edge=False)
    for arm, curves in arms.items():
        columns = [[y for curve in curves for x, y in curve.points if x == position] for position in positions]
        table.add_row(escape(arm), *(f"{median(values):.4g}" if values else "" for values in columns))
    return table


def format_mean(values: Sequence[float | None]) -> str:
    """Return the mean of the values that are not None, or "-" if there are none."""
    numbers = [value for value in values if value is not None]
    return f"{fmean(numbers):.3g}" if numbers else "-"
