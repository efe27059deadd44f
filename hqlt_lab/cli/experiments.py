"""The verbs about experiment files: plan, train, schema."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from hqlt_lab.cli import roofline
from hqlt_lab.cli.live import Live
from hqlt_lab.cli.options import FileArgument, OnlyOption, RunsOption, SetOption, for_programs
from hqlt_lab.cli.screen import aside, console, warn
from hqlt_lab.cli.sizes import SAYS, by_arm, by_part, numbers
from hqlt_lab.errors import StoreError
from hqlt_lab.study.store import is_study
from hqlt_lab.words import about, in_bytes, in_json, in_time

if TYPE_CHECKING:
    from hqlt_lab.experiment.cell import Cell
    from hqlt_lab.experiment.experiment import Experiment
    from hqlt_lab.experiment.plan import Planned
    from hqlt_lab.model.sizes import Sizes
    from hqlt_lab.track.card import State
    from hqlt_lab.train.cost import Cost


def plan(
    file: FileArgument,
    change: SetOption = None,
    only: OnlyOption = None,
    runs: RunsOption = Path("runs"),
    probe: Annotated[
        bool, typer.Option("--probe", help="Run full-size steps of every composition and measure.")
    ] = False,
    parts: Annotated[
        bool, typer.Option("--sizes", help="Parameters, state and FLOPs of each arm part by part.")
    ] = False,
    bound: Annotated[
        bool, typer.Option("--roofline", help="The most tokens per second each arm could reach on an A100 and an H100.")
    ] = False,
    as_json: Annotated[
        bool,
        for_programs(
            "an entry per cell: key, task, model, train, trainer, ops, agent, measure, seed, arm, axes, sizes, "
            "roofline, matched."
        ),
    ] = False,
) -> None:
    """What a file would train: cells, parameters, state, FLOPs, time and disk.  Nothing is trained."""
    from hqlt_lab.experiment.experiment import load
    from hqlt_lab.experiment.plan import chosen
    from hqlt_lab.experiment.plan import plan as planned_of

    experiment = load(file, change or [])  # before torch is loaded: a slip of the pen is told at once
    from hqlt_lab.train.cost import costs

    planned = chosen(planned_of(experiment), only or [])
    if as_json:
        print(in_json(list(entries(experiment, planned))))
        return
    console.print(f"[bold]{escape(experiment.question)}[/bold]")
    with aside.status("probing ..." if probe else "estimating ..."):
        arms = list(costs(planned, probe))
    show_sizes({arm: cost.sizes for arm, _, cost in arms}, parts)
    if bound:
        console.print(
            roofline.by_arm({arm: (roofline.roofline_of(cells[0]), cost.tokens) for arm, cells, cost in arms})
        )
        console.print(roofline.sentence(), "", sep="\n")
    show_matches(experiment, planned)
    show_costs(arms, probe)
    if is_study(runs / "studies" / experiment.name):
        from hqlt_lab.study.run import states

        with suppress(StoreError):  # a database that cannot be asked is no reason to plan nothing
            show_left(states(experiment, planned, runs, only or ()), arms)
    show_evaluation(experiment)
    show_search(experiment, arms)
    for warning in experiment.warnings:
        warn(warning)


def entries(experiment: "Experiment", planned: "list[Planned]") -> Iterator[dict[str, Any]]:
    """The cells for programs; those that differ in seed or training are of one size."""
    from hqlt_lab.experiment.cell import digest
    from hqlt_lab.experiment.matched import matches
    from hqlt_lab.train.cost import sizes_of

    known: dict[str, Any] = {}
    bounds: dict[str, Any] = {}
    for (key, cell), found in zip(planned, matches(experiment, [one.cell for one in planned]), strict=True):
        name = digest([cell.task, cell.model])
        if name not in known:
            known[name] = numbers(sizes_of(cell, "train")["train"])
        step = digest([name, cell.train.batch_size, cell.train.accumulate, cell.trainer.devices, cell.trainer.nodes])
        if step not in bounds:
            bounds[step] = roofline.numbers(roofline.roofline_of(cell))
        told = {"sizes": known[name], "roofline": bounds[step], "matched": found and found._asdict()}
        yield {"key": key, **cell.as_dict(), **told}


def show_sizes(arms: "dict[str, Sizes]", parts: bool) -> None:
    """What the models are."""
    for table in [by_part(arm, sizes) for arm, sizes in arms.items()] if parts else [by_arm(arms)]:
        console.print(table, "", sep="\n")
    lengths = sorted({sizes.length for sizes in arms.values()})
    console.print(SAYS.format(" or ".join(map(str, lengths))), "", sep="\n")


def show_matches(experiment: "Experiment", planned: "list[Planned]") -> None:
    """What was solved so that arms are equally large; tuned values may ask for several solutions."""
    from hqlt_lab.experiment.matched import matches

    if experiment.match is None:
        return
    table = Table("arm", "matched", "to", box=None, pad_edge=False)
    told: dict[str, dict[str, str]] = {}
    for one, found in zip(planned, matches(experiment, [one.cell for one in planned]), strict=True):
        told.setdefault(one.cell.arm, {})[str(found) if found else "as written"] = found.to if found else ""
    for arm, lines in told.items():
        for words, to in lines.items():
            table.add_row(escape(arm), words, escape(to))
    console.print(table, "", sep="\n")


def show_costs(arms: "list[tuple[str, list[Cell], Cost]]", probed: bool) -> None:
    """What training them takes; memory is known where it was measured."""
    table = Table("arm", "cells", "step", "memory", "training", "disk", box=None, pad_edge=False)
    total_cells, total_seconds, total_bytes = 0, 0.0, 0
    for arm, cells, cost in arms:
        seconds, size = cost.seconds * len(cells), cost.disk * len(cells)
        total_cells, total_seconds, total_bytes = total_cells + len(cells), total_seconds + seconds, total_bytes + size
        told = f"{1000 * cost.step:.0f} ms" if cost.step < 10 else in_time(cost.step)
        step = f"{'' if probed else '~'}{told}"
        memory = in_bytes(cost.memory) if cost.memory else "-"
        table.add_row(escape(arm), str(len(cells)), step, memory, in_time(seconds), in_bytes(size))
    console.print(table)
    tokens = " or ".join(f"{count:,}" for count in sorted({cost.tokens for _, _, cost in arms}))
    console.print(f"A cell learns from {tokens} tokens.", highlight=False)
    console.print(
        f"{total_cells} cells; one after the other {about(total_seconds)} on this machine"
        f"{'' if probed else ' (a rough estimate; --probe measures)'}, at most {in_bytes(total_bytes)} of disk."
    )


def show_left(known: "list[tuple[str, State]]", arms: "list[tuple[str, list[Cell], Cost]]") -> None:
    """What of it was trained before, and what the rest takes."""
    from hqlt_lab.study.record import SETTLED

    left = Counter(arm for arm, state in known if state not in SETTLED)
    seconds = sum(cost.seconds * left[arm] for arm, _, cost in arms)
    rest = f"{left.total()} are left, {about(seconds)}" if left else "nothing is left to train"
    console.print(f"{len(known) - left.total()} of {len(known)} cells are settled already; {rest}.")


def show_search(experiment: "Experiment", arms: "list[tuple[str, list[Cell], Cost]]") -> None:
    """What is searched comes on top: those cells are not known yet, but their number is."""
    from hqlt_lab.study.search import length, space

    if not space(experiment.tune):
        return
    for path, axis in experiment.tune.items():
        if not isinstance(axis, list):
            console.print(f"Searched: {path}, from {axis.low} to {axis.high}, {axis.trials} points per arm.")
    each = length(experiment.tune) * len(experiment.tune_seeds)
    seconds = sum(cost.seconds * each for _, _, cost in arms)
    console.print(f"These are {each * len(arms)} cells on top, one after the other {about(seconds)}.")


def show_evaluation(experiment: "Experiment") -> None:
    """What lm-eval will ask when all is trained."""
    from hqlt_lab.experiment.evaluation import single_tasks

    asked = experiment.evaluate
    if asked is None:
        return
    length = f"{asked.length} tokens" if asked.length else "as many tokens as in training"
    part = f", {asked.limit} documents each" if asked.limit else ""
    data = f", on the files of {asked.local}" if asked.local else ""
    tasks = ", ".join(single_tasks(asked.tasks))
    console.print(f"Then every reported cell is asked {tasks}, with {length} of context{part}{data}.", highlight=False)


def train(
    file: FileArgument,
    only: OnlyOption = None,
    change: SetOption = None,
    again: Annotated[bool, typer.Option("--again", help="Start anew, even if it was trained before.")] = False,
    runs: RunsOption = Path("runs"),
    as_json: Annotated[
        bool,
        for_programs(
            "key, arm, seed, folder, status, step, metrics, seconds, tokens_per_second, parameters, state_bytes, "
            "flops_per_token, errors, repeatable, message."
        ),
    ] = False,
) -> None:
    """Train one cell of a file here and now, with live progress.  Running it again resumes or shows its result."""
    from hqlt_lab.experiment.experiment import load
    from hqlt_lab.experiment.plan import chosen
    from hqlt_lab.experiment.plan import plan as planned_of

    experiment = load(file, change or [])
    matching = chosen(planned_of(experiment), only or [])
    key, cell = matching[0]
    place = runs / "single" / experiment.name / key
    if again:
        shutil.rmtree(place, ignore_errors=True)
    several = f" (the first of {len(matching)} that match)" if len(matching) > 1 else ""
    out = aside if as_json else console
    out.print(f"[bold]{escape(cell.arm)}[/bold], seed {cell.seed}{several}   {escape(str(place))}", soft_wrap=True)
    from hqlt_lab.train.fit import fit

    with Live(out, cell.train.steps) as live:
        outcome = fit(cell, place, live.record)
    if as_json:
        print(in_json({"key": key, "arm": cell.arm, "seed": cell.seed, "folder": place, **asdict(outcome)}))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in outcome.metrics.items():
        table.add_row(name, f"{value:.4g}")
    console.print(table)
    console.print(f"{outcome.status} at step {outcome.step}: {in_time(outcome.seconds)}. {outcome.message}".strip())


def schema(
    into: Annotated[Path | None, typer.Option(help="Write it to this file instead of printing it.")] = None,
) -> None:
    """JSON Schema of experiment files, for editors that complete and check YAML."""
    from hqlt_lab.experiment.json_schema import json_schema

    text = in_json(json_schema())
    if into is None:
        print(text)
        return
    into.write_text(text + "\n")
    console.print(f"{into} is there. Begin a YAML file with the line\n    # yaml-language-server: $schema={into}")
