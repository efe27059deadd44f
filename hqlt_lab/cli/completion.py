"""What a shell offers when Tab is pressed: files, kinds, parts, cells, studies, choices, settings.

`hqlt --install-completion` teaches the shell to ask.  An answer has to come at once, so that nothing here loads torch:
parts are read off their shelves, cells off their folders.  What goes wrong is no answer, never a message.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer

from hqlt_lab.registry import KINDS, names_in, sentences, titles

MOST = 2000  # answers that anybody looks at
DEEP = 3  # folders below the one that was typed
Answers = list[tuple[str, str]]  # what may stand there, and what it is


def quietly(answer: Callable[..., Iterable[tuple[str, str]]]) -> Callable[..., Any]:
    """No answer where something is wrong, and only what goes on from what was typed."""

    @wraps(answer)
    def asked(ctx: typer.Context, incomplete: str) -> Answers:
        try:
            fitting = (one for one in answer(ctx, incomplete) if one[0].startswith(incomplete))
            return list(dict(islice(fitting, MOST)).items())
        except Exception:
            return []

    del asked.__wrapped__  # typer reads the signature: that of `asked` is the one to call
    return asked


@quietly
def experiment_files(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """YAML files that ask a question, also in folders below; not those of runs."""
    typed = Path(incomplete + "x").parent
    runs = Path(ctx.params.get("runs") or "runs")
    for depth in range(DEEP):
        for file in sorted(typed.glob("*/" * depth + "*.y*ml")):
            if file.suffix in (".yaml", ".yml") and runs not in file.parents and (question := asks(file)):
                yield str(file) if not incomplete.startswith("./") else f"./{file}", question


def asks(file: Path) -> str:
    """The question of an experiment file, or the file it extends."""
    for line in file.read_text()[:4000].splitlines():
        if line.startswith(("question:", "extends:")):
            return line.partition(":")[2].strip() or "?"
    return ""


@quietly
def kinds(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Kinds of parts, and whatever else the verb takes in their place."""
    yield from ((name, kind.idea) for name, kind in KINDS.items())
    if ctx.info_name == "check":
        yield "backends", "what computes the memories"


@quietly
def parts(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Registered names of the kind that stands before, those of --with among them."""
    kind = ctx.params["kind"]
    yield from ((name, kind) for name in titles(kind))
    for file in ctx.find_root().params.get("outside") or ():
        yield from ((name, str(file)) for name in names_in(Path(file), kind))


@quietly
def cells(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Keys of trained cells."""
    yield from trained(ctx)


@quietly
def cells_and_files(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """What can be evaluated."""
    yield from trained(ctx)
    yield from experiment_files(ctx, incomplete)


@quietly
def comparable(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Studies, cells and files."""
    yield from begun(ctx)
    yield from trained(ctx)
    yield from experiment_files(ctx, incomplete)


@quietly
def studies_and_files(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """What can be joined."""
    yield from begun(ctx)
    yield from experiment_files(ctx, incomplete)


def begun(ctx: typer.Context) -> Iterator[tuple[str, str]]:
    """Every study that has a folder."""
    from hqlt_lab.study.store import studies_in

    yield from ((folder.name, "a study") for folder in studies_in(folder_of_runs(ctx)))


def trained(ctx: typer.Context) -> Iterator[tuple[str, str]]:
    """Every cell that has a folder, with its arm and seed."""
    runs = folder_of_runs(ctx)
    for pattern in ("studies/*/cells/*/cell.json", "single/*/*/cell.json"):
        for file in islice(runs.glob(pattern), MOST):
            cell = json.loads(file.read_text())
            yield file.parent.name, f"{cell['arm']}, seed {cell['seed']}"


def folder_of_runs(ctx: typer.Context) -> Path:
    return Path(ctx.params.get("runs") or "runs")


@quietly
def choices(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """--only: arm=..., seed=... and axes of the file, after a comma as well."""
    before, comma, _ = incomplete.rpartition(",")
    yield from ((f"{before}{comma}{word}={value}", "") for word, value in words_in(ctx))


def words_in(ctx: typer.Context) -> dict[tuple[str, str], None]:
    """What the cells of the file are called, in its order."""
    from hqlt_lab.experiment.experiment import SEEDS, arms_of, seeds_of
    from hqlt_lab.experiment.plan import lists_only, words
    from hqlt_lab.experiment.read import read
    from hqlt_lab.experiment.tune import tuning

    # an option without its value ends typer's parsing, and leaves the arguments where they were
    typed = [ctx.params.get("file"), ctx.params.get("target"), *ctx.args]
    file = next(Path(word) for word in typed if word and Path(word).is_file())
    told = read(file, ctx.params.get("change") or ())
    points = list(islice(lists_only(tuning(told.get("tune", {}))), MOST))
    found = dict.fromkeys(
        pair
        for arm in arms_of(told)
        for point in points
        for pair in words(arm.name, 0, {**arm.levels, **point}).items()
    )
    return found | dict.fromkeys(("seed", str(seed)) for seed in seeds_of(told, "seeds", SEEDS))


@quietly
def settings(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """--set: every setting with its default; after the =, the words it may be."""
    from hqlt_lab.experiment.json_schema import SETTINGS

    for section, maker in SETTINGS.items():
        hints, words = get_type_hints(maker), sentences(maker)
        for field in fields(maker):
            path = f"{section}.{field.name}"
            allowed = get_args(hints[field.name]) if get_origin(hints[field.name]) is Literal else ()
            values = allowed if incomplete.startswith(f"{path}=") and allowed else (field.default,)
            yield from ((f"{path}={spelled(value)}", words[field.name]) for value in values)


def spelled(value: Any) -> str:
    """As YAML reads it; nothing where the default is made, not written."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value) if isinstance(value, str | int | float) else ""
