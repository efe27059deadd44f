"""`hqlt profile`: what a composition of components learns in a fixed battery of small experiments."""

import logging
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.markup import escape
from rich.table import Table

from hqlt_lab.cli.commands.run import display_path
from hqlt_lab.cli.terminal import completion
from hqlt_lab.cli.terminal.console import console, print_table, stderr_console
from hqlt_lab.cli.terminal.exit_codes import ExitCode
from hqlt_lab.cli.terminal.shared_options import (
    RunsOption,
    SetOption,
    TrackingOption,
    WorkersOption,
    add_workers_override,
    json_option,
)
from hqlt_lab.errors import ConfigError
from hqlt_lab.formatting import dump_json, format_duration, format_estimate, pluralize_count

if TYPE_CHECKING:
    from hqlt_lab.api.run_profile import ProfileResult
    from hqlt_lab.cli.terminal.study_progress import StudyProgress
    from hqlt_lab.experiment.load_experiment import Experiment
    from hqlt_lab.study.study_callback import StudyCallback

logger = logging.getLogger(__name__)


def profile_composition(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="An experiment file, whose components are profiled. Without FILE and --set: compare all profiles.",
            autocompletion=completion.complete_experiment_files,
        ),
    ] = None,
    arm: Annotated[str | None, typer.Option(help="Arm of the file, if it has several.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the profile. Default: the name of the file, and of the arm.")
    ] = None,
    overrides: SetOption = None,
    tests: Annotated[
        list[str] | None, typer.Option("--test", help="Run only this test of the battery. Repeatable.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show the tests and what they cost, and train nothing.")] = False,
    workers: WorkersOption = None,
    runs: RunsOption = Path("runs"),
    tracking: TrackingOption = None,
    as_json: Annotated[
        bool,
        json_option(
            "name, composition, settings, notes, scores; a list of them if all profiles are compared; "
            "with --plan a list of test, cells, tokens, seconds."
        ),
    ] = False,
) -> None:
    """Profile a composition: a fixed battery of small experiments, one table and one figure.  Run it again to resume.

    The components are those of an experiment file, or the default ones, changed by --set model...=...; sizes are those
    of the battery. Each test is a study. Without FILE and --set, all profiles in the folder of runs are compared.
    """
    from hqlt_lab import api

    if file is None and not overrides:
        options = {"--arm": arm, "--name": name, "--test": tests, "--plan": plan}
        for option, value in {**options, "--workers": workers, "--tracking": tracking}.items():
            if value:
                message = "there are no components to profile."
                raise ConfigError.at(option, "no_composition", message, "Name an experiment file, or use --set.")
        show_all_profiles(runs, as_json)
        return
    prepared = api.prepare_profile(
        file, arm=arm, name=name, overrides=add_workers_override(overrides, workers), tests=tests or (), runs=runs
    )
    if plan:
        show_plan(prepared.experiments, as_json)
        return
    progress = BatteryProgress()
    try:
        result = api.run_profile(prepared, runs=runs, tracking=tracking, make_callback=progress.start_test)
    except KeyboardInterrupt:  # before the first cell of a test started
        exit_interrupted()
    finally:
        progress.close()
    print(result.profile.to_json(), end="") if as_json else print_profile(result, runs)
    for message in result.remarks:
        logger.warning(message)
    if not result.complete:
        exit_interrupted()
    if result.has_failed_cells:
        raise typer.Exit(ExitCode.PARTIAL_FAILURE)


class BatteryProgress:
    """Progress of the studies of a battery, one after the other."""

    def __init__(self) -> None:
        self.current: StudyProgress | None = None

    def start_test(self, experiment: "Experiment") -> "StudyCallback":
        """Return the callback of the next test, and end the progress of the one before."""
        from hqlt_lab.cli.terminal.study_progress import StudyProgress

        self.close()
        title = f"{experiment.name}: {experiment.question}"
        self.current = StudyProgress(stderr_console, experiment.measure, title, experiment.warnings)
        return self.current

    def close(self) -> None:
        """Restore the terminal."""
        if self.current is not None:
            self.current.close()


def show_plan(experiments: "Mapping[str, Experiment]", as_json: bool) -> None:
    """Print the cells and the estimated time of each test."""
    from hqlt_lab.experiment.expand_cells import expand_plan
    from hqlt_lab.train.cost.estimate import estimate_arm_costs

    entries: list[dict[str, Any]] = []
    with stderr_console.status("estimating ..."):
        for test, experiment in experiments.items():
            for _, cells, cost in estimate_arm_costs(expand_plan(experiment), measure=False):
                seconds = cost.total_seconds * len(cells)
                entries.append({"test": test, "cells": len(cells), "tokens": cost.tokens, "seconds": seconds})
    if as_json:
        print(dump_json(entries))
        return
    table = Table("test", "cells", "tokens per cell", "training", box=None, pad_edge=False)
    for entry in entries:
        table.add_row(
            entry["test"], str(entry["cells"]), f"{entry['tokens']:,}", f"~{format_duration(entry['seconds'])}"
        )
    console.print(table)
    total = sum(entry["seconds"] for entry in entries)
    count = pluralize_count(sum(entry["cells"] for entry in entries), "cell")
    console.print(
        f"{count}: {format_estimate(total)} on this machine if run one at a time (rough estimate). Cells that solve "
        "their test stop early."
    )


def print_profile(result: "ProfileResult", runs: Path) -> None:
    """Print the table of a profile, and where its files are."""
    from hqlt_lab.memory_profile.profile_tables import build_profile_table
    from hqlt_lab.report.render.text_tables import fit_to_width, render_rich_table

    table = fit_to_width(build_profile_table(result.profile), console.width)
    print_table(render_rich_table(f"Memory profile: {result.profile.name}", table))
    console.print("\nNext:")
    options = f" --runs {shlex.quote(str(runs))}" if runs != Path("runs") else ""
    for command, purpose in {
        display_path(result.folder / "profile.svg"): "the figure; also profile.png",
        f"ls {shlex.quote(display_path(result.folder))}/*.yaml": "the studies, for hqlt report, status and ui",
        f"hqlt profile{options}": "compare all profiles",
    }.items():
        console.print(escape(f"    {command}    # {purpose}"), soft_wrap=True)


def show_all_profiles(runs: Path, as_json: bool) -> None:
    """Print the normalized scores of all profiles in a folder of runs."""
    from hqlt_lab import api
    from hqlt_lab.memory_profile.profile_tables import build_comparison_table
    from hqlt_lab.report.render.text_tables import render_rich_table

    comparison = api.compare_profiles(runs)
    if as_json:
        print(comparison.to_json(), end="")
        return
    print_table(render_rich_table("Memory profiles, normalized scores", build_comparison_table(comparison.profiles)))
    console.print(f"\n{escape(display_path(runs / 'profiles'))}/profiles.svg    # the figure", soft_wrap=True)


def exit_interrupted() -> NoReturn:
    """Print how to resume an interrupted profile and exit with code 130."""
    logger.warning("\nStopped. All progress is saved. Repeat the command to resume.")
    raise typer.Exit(ExitCode.INTERRUPTED)
