"""Run the battery of a memory profile, and load and compare profiles."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.api.studies import run
from hqlt_lab.api.tracking import DEFAULT_RUNS
from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.memory_profile.composition import Composition, read_composition
from hqlt_lab.memory_profile.load_battery import load_battery
from hqlt_lab.memory_profile.profile_experiments import (
    build_experiments,
    describe_fixed_settings,
    override_section,
    write_experiment,
)
from hqlt_lab.study.study_callback import StudyCallback

if TYPE_CHECKING:
    from hqlt_lab.memory_profile.memory_profile import MemoryProfile
    from hqlt_lab.memory_profile.profile_comparison import ProfileComparison

PROFILES_DIR = "profiles"  # in the folder of runs
PROFILE_NAME = re.compile(r"[^\W_][\w.-]*")


@dataclass(frozen=True, kw_only=True)
class PreparedProfile:
    """A profile whose experiments are validated; nothing is written yet."""

    profile: "MemoryProfile"  # with the scores of earlier runs
    experiments: Mapping[str, Experiment]  # by test, in the order of the battery
    folder: Path
    launcher_overrides: tuple[str, ...]  # of this machine, not part of the experiments


@dataclass(frozen=True, kw_only=True, repr=False)
class ProfileResult:
    """Result of `profile`. A notebook displays the table and what went wrong."""

    profile: "MemoryProfile"
    complete: bool  # False: interrupted
    folder: Path  # with the table, the figure and the experiment files
    remarks: tuple[str, ...] = ()  # one sentence for everything that is missing, such as runs that MLflow lacks

    def __repr__(self) -> str:
        interrupted = [] if self.complete else ["The run was interrupted. Repeat the call to resume it."]
        return "\n".join([repr(self.profile), *interrupted, *self.remarks])

    @property
    def has_failed_cells(self) -> bool:
        """Whether a cell failed, or all cells of a test ended without a result."""
        return any(
            score.unfinished.get("failed") or (score.ended == score.seeds and score.mean is None)
            for score in self.profile.scores
        )


def profile(
    file: str | Path | None = None,
    *,
    arm: str | None = None,
    name: str | None = None,
    overrides: Sequence[str] = (),
    tests: Sequence[str] = (),
    runs: str | Path = DEFAULT_RUNS,
    tracking: str | None = None,
    callback: StudyCallback | None = None,
) -> ProfileResult:
    """Train the unfinished cells of the memory profile of a composition; the same call again resumes.

    The composition is the model of an experiment file's arm, or the default model, with `overrides`.
    """
    prepared = prepare_profile(file, arm=arm, name=name, overrides=overrides, tests=tests, runs=runs)
    return run_profile(prepared, runs=runs, tracking=tracking, make_callback=lambda _: callback)


def prepare_profile(
    file: str | Path | None,
    *,
    arm: str | None = None,
    name: str | None = None,
    overrides: Sequence[str] = (),
    tests: Sequence[str] = (),
    runs: str | Path = DEFAULT_RUNS,
) -> PreparedProfile:
    """Validate the experiments of a memory profile; `tests` are all of the battery by default."""
    from hqlt_lab.memory_profile.memory_profile import open_profile

    battery = load_battery(tests)
    by_section = {
        section: [o for o in overrides if override_section(o) == section] for section in ("model", "launcher")
    }
    others = [o for o in overrides if override_section(o) not in by_section]
    composition = read_composition(None if file is None else Path(file), arm, by_section["model"])
    name = name or default_name(file, composition)
    if not PROFILE_NAME.fullmatch(name):
        message = f"{name!r} cannot be the name of a profile."
        raise ConfigError.at(
            "--name",
            "invalid_profile_name",
            message,
            "Use letters, digits, '_', '.' and '-', and begin with a letter or digit.",
        )
    folder = Path(runs) / PROFILES_DIR / name
    experiments = build_experiments(battery, composition, name, folder, others, by_section["model"])
    notes = describe_fixed_settings(composition, load_battery())
    if others:
        notes.append(f"The battery was changed, so that this profile is not comparable: {', '.join(others)}.")
    opened = open_profile(name, composition, notes, others, folder)
    return PreparedProfile(
        profile=opened, experiments=experiments, folder=folder, launcher_overrides=tuple(by_section["launcher"])
    )


def default_name(file: str | Path | None, composition: Composition) -> str:
    """Return the name of a file, with the arm if there are several; a profile without a file needs a name."""
    if file is None:
        message = "a profile without an experiment file needs a name."
        raise ConfigError.at("--name", "profile_without_name", message, "Write for example --name gated_delta.")
    arm = f"_{composition.arm}" if composition.is_one_of_several else ""
    return re.sub(r"[^\w.-]+", "_", f"{Path(file).stem}{arm}").strip("_.-")


def run_profile(
    prepared: PreparedProfile,
    *,
    runs: str | Path = DEFAULT_RUNS,
    tracking: str | None = None,
    make_callback: Callable[[Experiment], StudyCallback | None],
) -> ProfileResult:
    """Run the studies of a prepared profile one after the other, and save the profile after each."""
    from hqlt_lab.memory_profile.profile_scores import score_test

    current, complete, remarks = prepared.profile, True, list[str]()
    current.save(prepared.folder)  # its composition, so that an interrupted profile keeps its name
    for test, experiment in prepared.experiments.items():
        written = write_experiment(experiment, prepared.launcher_overrides)
        result = run(written, runs=runs, tracking=tracking, callback=make_callback(written))
        current = current.with_scores(test, score_test(test, result.report))
        current.save(prepared.folder)
        complete = result.complete
        remarks += [message for message in (result.sync_warning, *result.figure_errors) if message]
        if not complete:
            break
    return ProfileResult(
        profile=current, complete=complete, folder=prepared.folder, remarks=tuple(dict.fromkeys(remarks))
    )


def compare_profiles(runs: str | Path = DEFAULT_RUNS) -> "ProfileComparison":
    """Compare all profiles in a folder of runs, and save their table and figure there."""
    from hqlt_lab.memory_profile.memory_profile import load_profiles
    from hqlt_lab.memory_profile.profile_comparison import ProfileComparison

    folder = Path(runs) / PROFILES_DIR
    comparison = ProfileComparison(tuple(load_profiles(folder)))
    comparison.save(folder)
    return comparison
