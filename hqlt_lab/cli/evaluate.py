"""The verb about trained models: what they score, whole and with one memory silent, and what the memories do."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from hqlt_lab.cli import completion
from hqlt_lab.cli.harness import evaluate_tasks
from hqlt_lab.cli.options import OnlyOption, RunsOption, SetOption, TrackingOption, for_programs
from hqlt_lab.cli.screen import aside, console, warn, whole
from hqlt_lab.errors import ConfigError
from hqlt_lab.words import in_json

if TYPE_CHECKING:
    from hqlt_lab.study.evaluate import Evaluated
    from hqlt_lab.train.long_context_file import Curve

SILENCE = 10.0  # seconds without a word, where there is no terminal
UNSHOWN = ("norm_", "work_", "share")  # what the shares are made of, and the shares themselves: they stand by head


def evaluate(
    target: Annotated[
        str,
        typer.Argument(
            help="A trained cell (key, folder or MLflow run), an experiment file: all of its arms, or with --tasks a "
            "folder that `hqlt export` made.",
            autocompletion=completion.cells_and_files,
        ),
    ],
    lesion: Annotated[
        Literal["fw", "kv"] | None,
        typer.Option(help="Also score with this memory silent: the fast weights or softmax."),
    ] = None,
    split: Annotated[Literal["test", "valid", "short"], typer.Option(help="The fixed set to score on.")] = "test",
    probe: Annotated[bool, typer.Option("--probe", help="Also look into the memories, layer by layer.")] = False,
    long: Annotated[
        int | None,
        typer.Option(min=1, help="Also go beyond what was trained, up to so many times as far: 8 is far."),
    ] = None,
    only: OnlyOption = None,
    change: SetOption = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            help="Ask tasks of lm-eval instead: the sets general and retrieval, any task or group of lm-eval, paths of "
            "task files; with commas. 'file': what the experiment file says under evaluate."
        ),
    ] = None,
    length: Annotated[
        int | None, typer.Option(min=1, help="Tokens of context for these tasks. Default: as in training.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Rows at a time; results do not depend on it.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only so many documents per task: a look, no result.")
    ] = None,
    local: Annotated[
        Path | None, typer.Option(help="A folder with TASK.jsonl files in the place of the hub's datasets.")
    ] = None,
    into: Annotated[Path | None, typer.Option(help="Write the answers into this file too, as JSON.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Compute also what was evaluated before.")] = False,
    runs: RunsOption = Path("runs"),
    tracking: TrackingOption = None,
    as_json: Annotated[
        bool,
        for_programs(
            "an entry per cell: arm, seed, folder, scores, probes, curves, skipped, new; with --tasks: arm, seed, "
            "folder, metrics, made_by, truncated, troubles, remarks, new."
        ),
    ] = False,
) -> None:
    """Score trained models again, whole and without one memory; or ask language models the tasks of lm-eval."""
    from hqlt_lab import api
    from hqlt_lab.study.evaluate import other_parts

    check_together(
        tasks is not None,
        {"--probe": probe, "--long": long is not None, "--split": split != "test"},
        {"--length": length, "--batch-size": batch_size, "--limit": limit, "--local": local, "--into": into},
    )
    if tasks is not None:
        where = {"change": change or (), "only": only or (), "runs": runs, "tracking": tracking}
        what = {"length": length, "limit": limit, "local": local, "batch_size": batch_size, "lesion": lesion}
        evaluate_tasks(target, "" if tasks == "file" else tasks, into, as_json, again=again, **what, **where)
        return
    with bar() as told:
        found = api.evaluate(
            target,
            lesion=lesion,
            split=split,
            probe=probe,
            long=long,
            again=again,
            change=change or (),
            only=only or (),
            runs=runs,
            tracking=tracking,
            told=told,
        )
    if as_json:
        print(in_json(found.cells))
        return
    for reason in dict.fromkeys(answer.skipped for answer in found.cells if answer.skipped):
        warn(reason)
    for trouble in other_parts(found.cells):
        warn(trouble)
    arms = by_arm([answer for answer in found.cells if not answer.skipped])
    whole(scores(arms, found.metrics))
    for arm, answers in arms.items() if probe else ():
        console.print()
        whole(memories(arm, answers))
    for title, curves in by_title(arms).items() if long else ():
        trained = next(iter(curves.values()))[0].trained
        console.print(f"\n[bold]{title}[/bold]" + (f", trained up to {trained}" if trained is not None else ""))
        whole(beyond(curves))
    if found.untracked:
        warn(found.untracked)


def check_together(with_tasks: bool, scoring: Mapping[str, object], asking: Mapping[str, object]) -> None:
    """Options of the one way of asking mean nothing in the other."""
    strange = [name for name, given in (scoring if with_tasks else asking).items() if given not in (None, False)]
    if strange:
        why = "is not for --tasks: ask in two commands" if with_tasks else "is for --tasks, which is not given"
        raise ConfigError(f"{strange[0]}: it {why}.")


@contextmanager
def bar() -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, where there is a terminal; elsewhere a line now and then."""
    if not aside.is_interactive:
        yield now_and_then()
        return
    with Progress(console=aside, transient=True) as progress:
        task = progress.add_task("evaluating")
        yield lambda done, total: progress.update(task, completed=done, total=total)


def now_and_then() -> Callable[[int, int], None]:
    """Says how far it is, if that takes long."""
    last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > SILENCE:
            aside.print(f"evaluated {done} of {total}")
            last = time.monotonic()

    return tell


def by_arm(answers: "Sequence[Evaluated]") -> "dict[str, list[Evaluated]]":
    arms: dict[str, list[Evaluated]] = {}
    for answer in answers:
        arms.setdefault(answer.arm, []).append(answer)
    return arms


def scores(arms: "dict[str, list[Evaluated]]", metrics: Sequence[str]) -> Table:
    """A line per arm and metric, the evaluations side by side; of several seeds the median."""
    from hqlt_lab.study.evaluate import medians

    names = dict.fromkeys(name for answers in arms.values() for answer in answers for name in answer.scores)
    table = Table("arm", "seeds", "metric", *names, box=None, pad_edge=False)
    for arm, answers in arms.items():
        for metric in metrics:
            found = medians(answers, metric)
            table.add_row(
                escape(arm),
                str(len(answers)),
                metric,
                *(f"{found[name]:.4g}" if name in found else "" for name in names),
            )
    return table


def memories(arm: str, answers: "Sequence[Evaluated]") -> Table:
    """A line per layer: the fast weights' share head by head, then means over the heads; all over the seeds too."""
    tables = [answer.probes.layers for answer in answers if answer.probes]
    found = dict.fromkeys(name for layers in tables for layer in layers for name in layer)
    quantities = [name for name in found if not name.startswith(UNSHOWN)]
    table = Table("layer", "share by head", *quantities, box=None, pad_edge=False, title=escape(arm))
    table.title_justify = "left"
    for column in table.columns:
        column.no_wrap = True
    for number, same_layer in enumerate(zip(*tables, strict=True)):
        heads = zip(*(layer["share"] for layer in same_layer if "share" in layer), strict=True)
        by_head = "  ".join(mean(values) for values in heads)
        means = (mean([value for layer in same_layer for value in layer.get(name, ())]) for name in quantities)
        table.add_row(str(number), by_head, *means)
    return table


def by_title(arms: "dict[str, list[Evaluated]]") -> "dict[str, dict[str, list[Curve]]]":
    """Curves beyond what was trained: title -> arm -> those of its seeds."""
    found: dict[str, dict[str, list[Curve]]] = {}
    for arm, answers in arms.items():
        for curve in (curve for answer in answers for curve in answer.curves):
            found.setdefault(curve.title, {}).setdefault(arm, []).append(curve)
    return found


def beyond(arms: "dict[str, list[Curve]]") -> Table:
    """A line per arm, a column per place; of several seeds the median."""
    places = sorted({x for curves in arms.values() for curve in curves for x, _ in curve.points})
    table = Table("arm", *map(str, places), box=None, pad_edge=False)
    for arm, curves in arms.items():
        values = [[y for curve in curves for at, y in curve.points if at == place] for place in places]
        table.add_row(escape(arm), *(f"{median(some):.4g}" if some else "" for some in values))
    return table


def mean(values: Sequence[float | None]) -> str:
    """Of those that are numbers."""
    known = [value for value in values if value is not None]
    return f"{fmean(known):.3g}" if known else "-"
