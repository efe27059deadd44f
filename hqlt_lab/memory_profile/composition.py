"""The components that a memory profile measures: the model section of an experiment file's arm, changed by --set.

Sizes are not part of it: width, heads, layers and the sizes of single memories are those of the battery, so that
profiles can be compared.  Only a pattern over the layers needs as many layers as it has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from pathlib import Path
from typing import Any

from hqlt_lab.errors import ConfigError, did_you_mean, format_names, join_sentences
from hqlt_lab.experiment.apply_overrides import VARIABLE_SECTIONS, apply_changes, format_value
from hqlt_lab.experiment.load_experiment import Arm, Experiment, load_experiment
from hqlt_lab.experiment.yaml.interpolation import resolve_interpolations
from hqlt_lab.experiment.yaml.read_experiment_files import apply_set_options
from hqlt_lab.model.config import PER_LAYER_SETTINGS, ModelConfig
from hqlt_lab.model.layer_pattern import find_form_issues, is_pattern

SIZE_SETTINGS = ("width", "heads", "head_dim", "fw", "kv", "layers", "mlp_width")


@dataclass(frozen=True, kw_only=True)
class Composition:
    """Components and other settings of a model, without its sizes."""

    model: Mapping[str, Any]
    replaced_sizes: Mapping[str, Any] = field(default_factory=dict)  # sizes in the file, which the battery replaces
    layer_period: int = 1  # number of layers after which all patterns over the layers repeat
    allow: tuple[str, ...] = ()  # issues that are intended in the arm
    arm: str = ""  # title of the arm; empty: there is no file
    is_one_of_several: bool = False  # whether the file has other arms

    def __str__(self) -> str:
        """The settings on one line, such as update_rule=delta(max_beta=2), mixer=fw_only."""
        return ", ".join(f"{key}={format_value(value)}" for key, value in self.model.items()) or "default components"

    def choose_layers(self, layers: int) -> int:
        """Return the smallest number of layers, at least this one, over which the patterns repeat."""
        return -(-layers // self.layer_period) * self.layer_period


def read_composition(file: Path | None, arm: str | None, model_overrides: Sequence[str]) -> Composition:
    """Return the composition of an arm of an experiment file, or of the default model, with these --set changes."""
    model: dict[str, Any] = {}
    chosen, num_arms = Arm(name=""), 1
    if file is not None:
        experiment = load_experiment(file)
        chosen, num_arms = select_arm(experiment, arm), len(experiment.arms)
        config = apply_changes(experiment.base, {**chosen.changes, **chosen.levels}, VARIABLE_SECTIONS)
        model = dict(resolve_interpolations(config)["model"])
    elif arm is not None:
        raise ConfigError.at("--arm", "arm_without_file", "there is no experiment file.", "Name the file of the arm.")
    model = apply_set_options({"model": model}, model_overrides)["model"]
    return Composition(
        model={key: value for key, value in model.items() if key not in SIZE_SETTINGS},
        replaced_sizes={key: value for key, value in model.items() if key in SIZE_SETTINGS},
        layer_period=find_layer_period(model),
        allow=chosen.allow,
        arm=chosen.title,
        is_one_of_several=num_arms > 1,
    )


def select_arm(experiment: Experiment, name: str | None) -> Arm:
    """Return the arm with this title or, if only one has it, with this name; or the only arm."""
    titles = format_names(str(arm.title) for arm in experiment.arms)
    if name is None:
        if len(experiment.arms) == 1:
            return experiment.arms[0]
        message = f"{experiment.file} has {len(experiment.arms)} arms, and a profile needs one of them."
        raise ConfigError.at("--arm", "arm_needed", message, f"Arms: {titles}.")
    by_title = [arm for arm in experiment.arms if arm.title == name]
    by_name = [arm for arm in experiment.arms if arm.name == name]
    if by_title or len(by_name) == 1:
        return (by_title or by_name)[0]
    message = f"{experiment.file}: {'several arms have' if by_name else 'no arm has'} the name {name!r}."
    suggestion = "" if by_name else did_you_mean(name, (arm.title for arm in experiment.arms))
    raise ConfigError.at("--arm", "unknown_arm", message, join_sentences(suggestion, f"Arms: {titles}."))


def find_layer_period(model: Mapping[str, Any]) -> int:
    """Return the number of layers after which all patterns repeat; that of the model if layers are set one by one."""
    return lcm(*(pattern_length(name, model) for name in PER_LAYER_SETTINGS))


def pattern_length(name: str, model: Mapping[str, Any]) -> int:
    """Return the number of layers of a setting's pattern; 1 for one value, and if the pattern is not valid."""
    value = model.get(name)
    if isinstance(value, list):
        return max(1, len(value))
    if not isinstance(value, Mapping) or not is_pattern(value) or find_form_issues(name, value):
        return 1
    layers = model.get("layers", ModelConfig.layers)
    return sum(count for _, count in value["repeat"]) if "repeat" in value else max(1, int(layers))
