"""`hqlt plan`: what an experiment file would train, and what it costs."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from hqlt_lab.cli.terminal import model_size_tables
from hqlt_lab.cli.terminal.console import console, stderr_console
from hqlt_lab.cli.terminal.model_size_tables import SIZES_NOTE, sizes_as_dict, sizes_by_arm, sizes_by_component
from hqlt_lab.cli.terminal.shared_options import FileArgument, OnlyOption, RunsOption, SetOption, json_option
from hqlt_lab.errors import StoreError
from hqlt_lab.formatting import (
    dump_json,
    format_bytes,
    format_duration,
    format_estimate,
    join_numbers,
    pluralize_count,
)
from hqlt_lab.study.ledger.study_store import is_study_folder

if TYPE_CHECKING:
    from hqlt_lab.experiment.cell import Cell
    from hqlt_lab.experiment.expand_cells import PlannedCell
    from hqlt_lab.experiment.load_experiment import Experiment
    from hqlt_lab.model.analysis.component_sizes import ModelSizes
    from hqlt_lab.rundir.cell_state import CellState
    from hqlt_lab.train.cost.estimate import CellCost

    ArmCosts = list[tuple[str, list[Cell], CellCost]]  # arm, its cells, the cost of one of them

logger = logging.getLogger(__name__)


def show_plan(
    file: FileArgument,
    overrides: SetOption = None,
    only: OnlyOption = None,
    runs: RunsOption = Path("runs"),
    probe: Annotated[
        bool,
        typer.Option(
            "--probe", help="Measure time and memory with a few full-size training steps of every composition."
        ),
    ] = False,
    by_component: Annotated[
        bool, typer.Option("--sizes", help="Show parameters, state and FLOPs of each arm by component.")
    ] = False,
    with_roofline: Annotated[
        bool,
        typer.Option("--roofline", help="Show an upper bound on tokens per second of each arm on an A100 and an H100."),
    ] = False,
    as_json: Annotated[
        bool,
        json_option(
            "an entry per cell: key, task, model, train, trainer, ops, agent, measure, seed, arm, axes, sizes, "
            "roofline, matched."
        ),
    ] = False,
) -> None:
    """Show what an experiment file would train: cells, parameters, state, FLOPs, time and disk space."""
    from hqlt_lab.experiment.cell_filters import filter_cells
    from hqlt_lab.experiment.expand_cells import expand_plan
    from hqlt_lab.experiment.load_experiment import load_experiment

    experiment = load_experiment(file, overrides or [])  # before torch is imported, so that errors show at once
    from hqlt_lab.train.cost.estimate import estimate_arm_costs

    planned = filter_cells(expand_plan(experiment), only or [])
    if as_json:
        print(dump_json(list(cell_entries(experiment, planned))))
        return
    console.print(f"[bold]{escape(experiment.question)}[/bold]")
    with stderr_console.status("probing ..." if probe else "estimating ..."):
        arms = list(estimate_arm_costs(planned, probe))
    show_sizes({arm: cost.sizes for arm, _, cost in arms}, by_component)
    if with_roofline:
        console.print(
            model_size_tables.roofline_table(
                {arm: (model_size_tables.cell_roofline(cells[0]), cost.tokens) for arm, cells, cost in arms}
            )
        )
        console.print(model_size_tables.roofline_note(), "", sep="\n")
    show_matches(experiment, planned)
    show_costs(arms, probe)
    if is_study_folder(runs / "studies" / experiment.name):
        from hqlt_lab.study.run_study import list_cell_states

        with suppress(StoreError):  # the plan is useful even if the database is unavailable
            show_remaining(list_cell_states(experiment, planned, runs, only or ()), arms)
    show_evaluation(experiment)
    show_search(experiment, arms)
    show_looks(experiment, arms)
    for warning in experiment.warnings:
        logger.warning(warning)


def cell_entries(experiment: "Experiment", planned: "list[PlannedCell]") -> Iterator[dict[str, Any]]:
    """Yield the cells for --json; sizes are computed once per model, rooflines once per model and batch."""
    from hqlt_lab.experiment.size_matching import match_cells
    from hqlt_lab.hashing import hash_json
    from hqlt_lab.train.cost.estimate import model_sizes_by_split

    sizes_by_model: dict[str, Any] = {}
    rooflines_by_step: dict[str, Any] = {}
    matches = match_cells(experiment, [planned_cell.cell for planned_cell in planned])
    for (key, cell), match in zip(planned, matches, strict=True):
        model_key = hash_json([cell.task, cell.model])
        if model_key not in sizes_by_model:
            sizes_by_model[model_key] = sizes_as_dict(model_sizes_by_split(cell, "train")["train"])
        step_key = hash_json(
            [model_key, cell.train.batch_size, cell.train.accumulate, cell.trainer.devices, cell.trainer.nodes]
        )
        if step_key not in rooflines_by_step:
            rooflines_by_step[step_key] = model_size_tables.roofline_as_dict(model_size_tables.cell_roofline(cell))
        yield {
            "key": key,
            **cell.to_dict(),
            "arm": str(cell.arm),
            "sizes": sizes_by_model[model_key],
            "roofline": rooflines_by_step[step_key],
            "matched": match and match._asdict(),
        }


def show_sizes(arms: "dict[str, ModelSizes]", by_component: bool) -> None:
    """Print the model sizes: one row per arm, or one table per arm with a row per component."""
    component_tables = (sizes_by_component(arm, sizes) for arm, sizes in arms.items())
    for table in component_tables if by_component else [sizes_by_arm(arms)]:
        console.print(table, "", sep="\n")
    lengths = sorted({sizes.length for sizes in arms.values()})
    console.print(SIZES_NOTE.format(" or ".join(map(str, lengths))), "", sep="\n")


def show_matches(experiment: "Experiment", planned: "list[PlannedCell]") -> None:
    """Print the settings that `match` has solved for; an arm has several if tuned values change its size."""
    from hqlt_lab.experiment.size_matching import match_cells

    if experiment.match is None:
        return
    table = Table("arm", "matched", "to", box=None, pad_edge=False)
    cells = [planned_cell.cell for planned_cell in planned]
    matches_by_arm: dict[str, dict[str, str]] = {}  # arm -> description of the match -> title of the reference
    for cell, match in zip(cells, match_cells(experiment, cells), strict=True):
        matches_by_arm.setdefault(cell.arm, {})[str(match) if match else "as written"] = match.to if match else ""
    for arm, matches in matches_by_arm.items():
        for description, reference in matches.items():
            table.add_row(escape(arm), description, escape(reference))
    console.print(table, "", sep="\n")


def show_costs(arms: "ArmCosts", is_measured: bool) -> None:
    """Print time, memory and disk space of training each arm; memory is known only if it was measured."""
    table = Table("arm", "cells", "step", "memory", "training", "disk", box=None, pad_edge=False)
    total_cells, total_seconds, total_bytes = 0, 0.0, 0
    for arm, cells, cost in arms:
        seconds, size = cost.total_seconds * len(cells), cost.disk_bytes * len(cells)
        total_cells, total_seconds, total_bytes = total_cells + len(cells), total_seconds + seconds, total_bytes + size
        step = f"{1000 * cost.step_seconds:.0f} ms" if cost.step_seconds < 10 else format_duration(cost.step_seconds)
        step = step if is_measured else f"~{step}"
        memory = format_bytes(cost.peak_memory_bytes) if cost.peak_memory_bytes else "-"
        table.add_row(escape(arm), str(len(cells)), step, memory, format_duration(seconds), format_bytes(size))
    console.print(table)
    tokens = " or ".join(f"{count:,}" for count in sorted({cost.tokens for _, _, cost in arms}))
    console.print(f"Each cell is trained on {tokens} tokens.", highlight=False)
    caveat = "" if is_measured else " (rough estimate; --probe measures it)"
    console.print(
        f"{pluralize_count(total_cells, 'cell')}: {format_estimate(total_seconds)} on this machine if run one at a "
        f"time{caveat}, and at most {format_bytes(total_bytes)} of disk space."
    )


def show_remaining(cell_states: "list[tuple[str, CellState]]", arms: "ArmCosts") -> None:
    """Print how many cells are settled and how long the others take."""
    from hqlt_lab.rundir.cell_state import SETTLED_STATES
    from hqlt_lab.study.ledger.cell_record import count_unsuccessful, format_unsuccessful

    unsettled_by_arm = Counter(arm for arm, state in cell_states if state not in SETTLED_STATES)
    num_unsettled = unsettled_by_arm.total()
    seconds = sum(cost.total_seconds * unsettled_by_arm[arm] for arm, _, cost in arms)
    remaining = f"{num_unsettled} to train, {format_estimate(seconds)}" if num_unsettled else "nothing is left to train"
    settled = f"{len(cell_states) - num_unsettled} of {len(cell_states)} cells are finished"
    unsuccessful = format_unsuccessful(count_unsuccessful(state for _, state in cell_states))
    console.print(f"{settled}{unsuccessful}; {remaining}.")


def show_search(experiment: "Experiment", arms: "ArmCosts") -> None:
    """Print the searched settings and the number of additional cells, whose values are not known yet."""
    from hqlt_lab.study.plan.search_space import build_search_space, count_trials

    if not build_search_space(experiment.tune):
        if experiment.has_tuning_cells:
            console.print("These cells select the tuned values of each arm; the reported seeds are trained afterwards.")
        return
    for path, axis in experiment.tune.items():
        if not isinstance(axis, list):
            console.print(f"Search: {path} from {axis.low} to {axis.high}, {axis.trials} trials per arm.")
    cells_per_arm = count_trials(experiment.tune) * len(experiment.tune_seeds)
    seconds = sum(cost.total_seconds * cells_per_arm for _, _, cost in arms)
    added = pluralize_count(cells_per_arm * len(arms), "cell")
    console.print(f"The search adds {added}: {format_estimate(seconds)} if run one at a time.")


def show_looks(experiment: "Experiment", arms: "ArmCosts") -> None:
    """Print the looks, and the cost if all comparisons are decided at the first look and if none is ever decided."""
    looks = experiment.looks
    if not looks:
        return
    seconds_per_seed = sum(cost.total_seconds for _, _, cost in arms)
    fewest, most = len(arms) * looks[0], len(arms) * looks[-1]
    times = [format_estimate(count * seconds_per_seed) for count in (looks[0], looks[-1])]
    console.print(
        f"Seeds are added until every comparison is decided, with looks after {join_numbers(looks)} seeds per arm: "
        f"{fewest} to {most} reported cells, {times[0]} to {times[1]} if run one at a time.",
        highlight=False,
    )


def show_evaluation(experiment: "Experiment") -> None:
    """Print the lm-eval tasks that follow training."""
    from hqlt_lab.experiment.lm_eval_section import expand_task_sets

    config = experiment.evaluate
    if config is None:
        return
    length = f"{config.length} tokens" if config.length else "the training length"
    limit = f", {config.limit} documents each" if config.limit else ""
    data = f", with the files in {config.local}" if config.local else ""
    tasks = ", ".join(expand_task_sets(config.tasks))
    console.print(
        f"After training, every reported cell is evaluated on {tasks}; context length: {length}{limit}{data}.",
        highlight=False,
    )
