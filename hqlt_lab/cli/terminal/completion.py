"""Shell completion: experiment files, kinds, components, cells, studies, filters and settings.

`hqlt --install-completion` installs it.  Completion must be fast, so nothing here imports torch: component names are
read from file names, cells from their folders.  If anything fails, there are no completions and nothing is printed.

Bash splits words at `=`: for `--only arm=su` it completes `su`, and passes `arm`, `=` and `su` as three words.
They are joined before typer parses them, and the text up to the last `=` is removed from the completions, because
bash keeps it.  Other shells pass whole words.
"""

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import fields
from functools import wraps
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer

from hqlt_lab.files import read_json
from hqlt_lab.registry import KINDS, find_registered_names, list_names, read_field_docs


@contextmanager
def rejoin_bash_words() -> Iterator[None]:
    """Join the words that bash has split at `=` and shorten the completions accordingly; a no-op for other shells."""
    if os.environ.get("_HQLT_COMPLETE") != "complete_bash" or "=" not in os.environ.get("COMP_WORDS", ""):
        yield
        return
    prefix = rejoin_environment_words()
    answers = StringIO()
    try:
        with redirect_stdout(answers):
            yield
    finally:
        for line in answers.getvalue().splitlines():
            print(line.removeprefix(prefix))


def rejoin_environment_words() -> str:
    """Join the words in COMP_WORDS; return the prefix of the last one that bash does not replace."""
    try:
        words, current_index = shlex.split(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
    except (KeyError, ValueError):
        return ""
    in_last_word = current_index < len(words) or words[-1] == "="  # else a new word begins
    shell_words = join_at_equals(words[: current_index + 1])
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = shlex.join(shell_words), str(len(shell_words) - in_last_word)
    before, equals, _ = shell_words[-1].rpartition("=")
    return before + equals if in_last_word else ""


def join_at_equals(words: list[str]) -> list[str]:
    """Join words that bash has split at "=": [arm, =, sum] -> [arm=sum]."""
    joined: list[str] = []
    for previous, word in zip(["", *words], words, strict=False):
        if joined and "=" in (previous, word):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


MAX_COMPLETIONS = 2000
MAX_DEPTH = 3  # levels of folders that are searched for experiment files
Completions = list[tuple[str, str]]  # value, description


def as_completer(complete: Callable[..., Iterable[tuple[str, str]]]) -> Callable[..., Any]:
    """Decorate a completion function: keep values that start with the typed text, and return none if it raises."""

    @wraps(complete)
    def complete_safely(ctx: typer.Context, incomplete: str) -> Completions:
        try:
            matches = (pair for pair in complete(ctx, incomplete) if pair[0].startswith(incomplete))
            return list(dict(islice(matches, MAX_COMPLETIONS)).items())
        except Exception:
            return []

    del complete_safely.__wrapped__  # typer reads the signature, which must be the one of `complete_safely`
    return complete_safely


@as_completer
def complete_experiment_files(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield YAML files that have a question, also from subfolders, except those in the folder of runs."""
    folder = Path(incomplete + "x").parent
    runs = Path(ctx.params.get("runs") or "runs")
    for depth in range(MAX_DEPTH):
        for file in sorted(folder.glob("*/" * depth + "*.y*ml")):
            if file.suffix in (".yaml", ".yml") and runs not in file.parents and (question := read_question(file)):
                yield str(file) if not incomplete.startswith("./") else f"./{file}", question


def read_question(file: Path) -> str:
    """Return the question of an experiment file, or the name of the file it extends; "" for other YAML files."""
    for line in file.read_text()[:4000].splitlines():
        if line.startswith(("question:", "extends:")):
            return line.partition(":")[2].strip() or "?"
    return ""


@as_completer
def complete_kinds(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the kinds of components, and `backends` and `module` for `hqlt check`."""
    yield from ((name, kind.summary) for name, kind in KINDS.items())
    if ctx.info_name == "check":
        yield "backends", "compare backends with the reference"
        yield "module", "check a layer, a language model or a function that is not a component"


@as_completer
def complete_components(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the registered names of the kind that was typed, including those in --with files."""
    kind = ctx.params["kind"]
    yield from ((name, kind) for name in list_names(kind))
    for file in ctx.find_root().params.get("component_files") or ():
        yield from ((name, str(file)) for name in find_registered_names(Path(file), kind))


@as_completer
def complete_cells(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of trained cells."""
    yield from list_cells(ctx)


@as_completer
def complete_cells_and_files(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield what `hqlt evaluate` accepts: cells and experiment files."""
    yield from list_cells(ctx)
    yield from complete_experiment_files(ctx, incomplete)


@as_completer
def complete_comparison_targets(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield what `hqlt compare` accepts: studies, cells and experiment files."""
    yield from list_studies(ctx)
    yield from list_cells(ctx)
    yield from complete_experiment_files(ctx, incomplete)


@as_completer
def complete_studies_and_files(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield what `hqlt worker` accepts: studies and experiment files."""
    yield from list_studies(ctx)
    yield from complete_experiment_files(ctx, incomplete)


def list_studies(ctx: typer.Context) -> Iterator[tuple[str, str]]:
    """Yield every study that has a folder below --runs."""
    from hqlt_lab.study.ledger.study_store import list_studies

    yield from ((folder.name, "a study") for folder in list_studies(runs_folder(ctx)))


def list_cells(ctx: typer.Context) -> Iterator[tuple[str, str]]:
    """Yield the key of every cell that has a folder below --runs, described by its arm and seed."""
    from hqlt_lab.experiment.arm_title import ArmTitle

    runs = runs_folder(ctx)
    for pattern in ("studies/*/cells/*/cell.json", "single/*/*/cell.json"):
        for file in islice(runs.glob(pattern), MAX_COMPLETIONS):
            cell = read_json(file, dict, allow_nan=True)
            yield file.parent.name, f"{ArmTitle.from_dict(cell['arm'])}, seed {cell['seed']}"


def runs_folder(ctx: typer.Context) -> Path:
    return Path(ctx.params.get("runs") or "runs")


@as_completer
def complete_cell_filters(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield values of --only: arm=..., seed=... and the file's axes, also after a comma."""
    from hqlt_lab.experiment.cell_filters import format_filters, split_filters

    *conditions, _ = split_filters([incomplete])
    yield from ((",".join([*conditions, format_filters(label, [value])]), "") for label, value in read_cell_labels(ctx))


def read_cell_labels(ctx: typer.Context) -> dict[tuple[str, str], None]:
    """Return the (label, value) pairs of the cells in the typed experiment file, in the file's order."""
    from hqlt_lab.experiment.cell_filters import cell_labels
    from hqlt_lab.experiment.expand_cells import iter_grid_points
    from hqlt_lab.experiment.load_experiment import parse_arms
    from hqlt_lab.experiment.parse_axes import parse_tune
    from hqlt_lab.experiment.parse_seeds import DEFAULT_SEEDS, parse_seeds
    from hqlt_lab.experiment.yaml.read_experiment_files import read_source

    # typer stops parsing at an option without a value and leaves the arguments in ctx.args
    arguments = [ctx.params.get("file"), ctx.params.get("target"), *ctx.args]
    file = next(Path(argument) for argument in arguments if argument and Path(argument).is_file())
    config = read_source(file, ctx.params.get("overrides") or ()).config
    points = list(islice(iter_grid_points(parse_tune(config.get("tune", {}))), MAX_COMPLETIONS))
    labels = dict.fromkeys(
        pair
        for arm in parse_arms(config)
        for point in points
        for pair in cell_labels(arm.name, 0, {**arm.levels, **point}).items()
    )
    return labels | dict.fromkeys(("seed", str(seed)) for seed in parse_seeds(config, "seeds", DEFAULT_SEEDS))


@as_completer
def complete_settings(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield values of --set: every setting with its default, and after the `=` the allowed values."""
    from hqlt_lab.experiment.json_schema import SETTINGS_SECTIONS

    for section, settings_class in SETTINGS_SECTIONS.items():
        hints, descriptions = get_type_hints(settings_class), read_field_docs(settings_class)
        for field in fields(settings_class):
            path = f"{section}.{field.name}"
            allowed = get_args(hints[field.name]) if get_origin(hints[field.name]) is Literal else ()
            values = allowed if incomplete.startswith(f"{path}=") and allowed else (field.default,)
            yield from ((f"{path}={format_yaml_scalar(value)}", descriptions[field.name]) for value in values)


def format_yaml_scalar(value: Any) -> str:
    """Format a scalar as YAML; return "" for other values, such as the marker of a default factory."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value) if isinstance(value, str | int | float) else ""
