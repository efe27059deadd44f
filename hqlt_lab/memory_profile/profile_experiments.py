"""The experiment of each test of a profile: the battery's file, with the components of a composition.

The experiments are validated before anything is written.  Their files are in the folder of the profile, so that every
command that takes an experiment file works on each of them.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hqlt_lab.errors import ConfigError, ConfigIssue
from hqlt_lab.experiment.apply_overrides import format_value
from hqlt_lab.experiment.load_experiment import Experiment, validate_experiment
from hqlt_lab.experiment.yaml.read_experiment_files import (
    ExperimentSource,
    apply_set_options,
    dump_yaml,
    read_source,
)
from hqlt_lab.experiment.yaml.source_map import SourceMap
from hqlt_lab.files import write_atomic
from hqlt_lab.memory_profile.composition import SIZE_SETTINGS, Composition
from hqlt_lab.memory_profile.load_battery import BatteryTest
from hqlt_lab.model.config import ModelConfig


def override_section(override: str) -> str:
    """Return the section that a --set override changes: model of model.mixer=sum."""
    return override.partition("=")[0].partition(".")[0]


def build_config(
    test: BatteryTest,
    composition: Composition,
    arm: str,
    overrides: Sequence[str] = (),
    source_map: SourceMap | None = None,
) -> dict[str, Any]:
    """Return the sections of a test's experiment; `overrides` change the training of the battery."""
    fixed = test.fixed_settings | {"layers": composition.choose_layers(test.fixed_settings["layers"])}
    allowed = {"allow": list(composition.allow)} if composition.allow else {}
    config = test.config | {"model": {**composition.model, **fixed}, "arms": {arm: allowed}}
    return apply_set_options(config, overrides, source_map)


def build_experiments(
    tests: Iterable[BatteryTest],
    composition: Composition,
    name: str,
    folder: Path,
    overrides: Sequence[str],
    model_overrides: Sequence[str] = (),
) -> dict[str, Experiment]:
    """Return the validated experiment of each test, whose file is not written yet.

    An issue of a setting is reported once, with the --set option that caused it.
    """
    experiments: dict[str, Experiment] = {}
    issues: dict[tuple[str, str], ConfigIssue] = {}
    for test in tests:
        source_map = SourceMap()
        config = build_config(test, composition, name, overrides, source_map)
        for override in model_overrides:
            source_map.add_override(override.partition("=")[0])
        file = folder / f"profile_{name}_{test.name}.yaml"
        try:
            experiments[test.name] = validate_experiment(ExperimentSource(file, (), config, config, source_map))
        except ConfigError as error:
            for issue in error.issues:
                issues.setdefault((issue.path, issue.code), issue)
    if issues:
        raise ConfigError(*issues.values())
    return experiments


def write_experiment(experiment: Experiment, launcher_overrides: Sequence[str] = ()) -> Experiment:
    """Write the file of a validated experiment, and return the experiment as it is read from this file."""
    assert experiment.source is not None
    header = f"# Written by `hqlt profile`, which writes it again: {experiment.arms[0].name}.\n"
    experiment.file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(experiment.file, header + dump_yaml(experiment.source.config))
    return validate_experiment(read_source(experiment.file, launcher_overrides), experiment.warnings)


def describe_fixed_settings(composition: Composition, tests: Sequence[BatteryTest]) -> list[str]:
    """Return sentences on the settings of the composition that are not used, and on added layers."""
    sentences = []
    if composition.replaced_sizes:
        sizes = ", ".join(f"{name} {value}" for name, value in composition.replaced_sizes.items())
        sentences.append(f"Sizes are those of the battery. Those of the composition are not used: {sizes}.")
    tests_by_setting: dict[str, list[str]] = {}
    for test in tests:
        for name, value in test.fixed_settings.items():
            if name not in SIZE_SETTINGS and composition.model.get(name, getattr(ModelConfig, name)) != value:
                tests_by_setting.setdefault(f"{name} is {format_value(value)}", []).append(test.name)
    sentences += [f"In {' and '.join(names)}, {setting}." for setting, names in tests_by_setting.items()]
    added = [test.name for test in tests if test.fixed_settings["layers"] % composition.layer_period]
    if added:
        sentences.append(
            f"The components change from layer to layer with a period of {composition.layer_period}, so that these "
            f"tests have more layers than in the battery, and are not comparable: {', '.join(added)}."
        )
    return sentences
