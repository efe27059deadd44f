"""Match arms in size: solve one setting of each arm so that it is as large as its reference arm.

    match: parameters                                       or state, or flops
    match: {on: parameters, by: mlp_width, within: 0.01}

    residual = (size - size of the reference) / size of the reference,   at most `within`

The reference keeps its settings. It is the first arm with the same crossed levels of width, layers, heads, mlp_width
and all paths outside of `model`. Other crossed model settings (components, switches) do not make a new reference.

    mlp_width   the size is linear in it: size(m) = size(n) + slope (m - n), solved with one count and the slope
    width       the size increases with it: bisection, in steps that keep the channels per head even, as rope needs
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from hqlt_lab.errors import ConfigError, ConfigIssue, did_you_mean, format_names, issues_under, join_sentences
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.run_settings import MATCH_QUANTITIES, MATCH_SETTINGS, MatchConfig
from hqlt_lab.experiment.validate.arm_checks import build_meta_model
from hqlt_lab.hashing import hash_json
from hqlt_lab.model.config import mlp_inner_width
from hqlt_lab.model.layer_pattern import iter_layer_values
from hqlt_lab.registry import build, parse_settings
from hqlt_lab.registry.settings_parsing import raise_if_invalid

if TYPE_CHECKING:
    from hqlt_lab.experiment.load_experiment import Arm, Experiment

# Multiples of 16 are fast on GPUs. Finer steps are for small models, where steps of 16 would miss the target.
WIDTH_STEPS = (16, 8, 4, 2, 1)
SIZE_PATHS = ("model.width", "model.layers", "model.heads", "model.mlp_width")
QUANTITY_NAMES = {"parameters": "parameters", "state": "state bytes", "flops": "training FLOPs per token"}


def parse_match(section: Any) -> MatchConfig | None:
    """Parse the `match` section: the name of a size, or a mapping with `on`."""
    if section is None:
        return None
    settings = {"on": section} if isinstance(section, str) else section
    if not isinstance(settings, Mapping) or "on" not in settings:
        raise ConfigError.at(
            "match",
            "not_a_match",
            f"one of {format_names(MATCH_QUANTITIES)} is needed, got {section!r}.",
            "With further settings: {on: parameters, by: mlp_width, within: 0.01}.",
        )
    raise_if_invalid(
        [
            ConfigIssue(
                "match" if isinstance(section, str) else f"match.{key}",
                "unknown_match_choice",
                f"{value!r} is not a choice for match.{key}.",
                join_sentences(did_you_mean(value, choices), f"Choices: {format_names(choices)}."),
            )
            for key, choices in (("on", MATCH_QUANTITIES), ("by", MATCH_SETTINGS))
            if isinstance(value := settings.get(key), str) and value not in choices
        ]
    )
    with issues_under("match"):
        return parse_settings(MatchConfig, settings)


def find_match_conflicts(config: Mapping[str, Any], match: MatchConfig) -> Iterator[ConfigIssue]:
    """Yield one issue for every location in the file that sets the solved setting, or refers to it."""
    path = f"model.{match.solved_setting}"
    arms = {f"arms.{name}": changes for name, changes in (config.get("arms") or {}).items()}
    changes_by_location = arms | {section: config.get(section) for section in ("cross", "one_at_a_time", "tune")}
    for location, changes in changes_by_location.items():
        if path in flatten_changes(changes):
            yield ConfigIssue(
                f"{location}.{path}",
                "setting_solved_by_match",
                "match solves this setting for every arm, so it cannot be set here.",
                f"Set it in the base, whose value the reference keeps{alternative_hint(match)}.",
            )
    if f"${{{path}}}" in repr(config):
        yield ConfigIssue(
            "match",
            "reference_to_solved_setting",
            f"a setting refers to ${{{path}}}, which match solves later.",
            "Write its value instead.",
        )


def alternative_hint(match: MatchConfig) -> str:
    """Return a hint at the other setting that could be solved, or "" for the state, which only depends on width."""
    if match.on == "state":
        return ""
    return f", or match by: {next(setting for setting in MATCH_SETTINGS if setting != match.solved_setting)}"


def flatten_changes(changes: Any) -> dict[str, Any]:
    """Return changes as {path: value}, with a `model` section replaced by the paths of its settings."""
    changes = changes if isinstance(changes, Mapping) else {}
    other_changes = {path: value for path, value in changes.items() if path != "model"}
    model = changes.get("model")
    return other_changes | (
        {f"model.{key}": value for key, value in model.items()} if isinstance(model, Mapping) else {}
    )


class SizedValue(NamedTuple):
    """A value of the solved setting, and the size of the model with it."""

    value: int
    size: float


def solve_linear(start: SizedValue, slope: float, target: float, tolerance: float) -> SizedValue:
    """Return the value on the coarsest grid of multiples (16, 8, ..., 1) that is within tolerance, else the nearest."""
    exact = start.value + (target - start.size) / slope

    def nearest_multiple(step: int) -> SizedValue:
        value = max(step, round(exact / step) * step)
        return SizedValue(value, start.size + slope * (value - start.value))

    coarse, *fine = (nearest_multiple(step) for step in WIDTH_STEPS)
    candidates = [select_nearest(target, start, coarse), *fine]
    within_tolerance = (candidate for candidate in candidates if abs(candidate.size - target) <= tolerance * target)
    return next(within_tolerance, candidates[-1])


def solve_by_bisection(size: Callable[[int], float], start: SizedValue, target: float, step: int) -> SizedValue | None:
    """Return the multiple of `step` nearest to the target size, or None if the size does not depend on the value."""
    upper = max(1, start.value // step)
    while size(upper * step) < target:
        if size(2 * upper * step) == size(upper * step):
            return None
        upper *= 2
    units = range(1, upper + 1)
    index = bisect_left(units, target, key=lambda unit: size(unit * step))
    neighbors = (SizedValue(unit * step, size(unit * step)) for unit in units[max(0, index - 1) : index + 1])
    return select_nearest(target, start, *neighbors)


def select_nearest(target: float, *candidates: SizedValue) -> SizedValue:
    """Return the candidate whose size is nearest to the target; the first of equals."""
    return min(candidates, key=lambda candidate: abs(candidate.size - target))


class SizeMatch(NamedTuple):
    """The setting that makes an arm as large as its reference."""

    to: str  # title of the reference arm
    on: str  # the size that is matched
    by: str  # the setting that is solved
    value: int
    residual: float  # relative difference to the size of the reference
    is_unchanged: bool  # whether the value is the one in the file

    def __str__(self) -> str:
        return f"{self.by} {self.value}, {self.on} {format_percent(self.residual)}"


def format_percent(residual: float) -> str:
    """Return a residual in percent with its sign, such as "+0.4 %"."""
    return f"{round(100 * residual, 1) + 0.0:+.1f} %"


def find_reference_arms(arms: "Sequence[Arm]") -> "dict[str, Arm]":
    """Return the reference of each arm, by the arm's title."""
    first_by_levels: dict[str, Arm] = {}
    return {arm.title: first_by_levels.setdefault(hash_json(select_size_levels(arm.levels)), arm) for arm in arms}


def select_size_levels(levels: Mapping[str, Any]) -> dict[str, Any]:
    """Return the crossed levels that are model sizes or outside of `model`; options of components are neither."""
    return {
        path: value
        for path, value in flatten_changes(levels).items()
        if path in SIZE_PATHS or not path.startswith("model.")
    }


def match_arm(
    experiment: "Experiment", arm: "Arm", point: Mapping[str, Any], unmatched_cell: Cell | None = None
) -> SizeMatch | None:
    """Solve the match of an arm at a tuned point. Return None for a reference arm, or without a `match` section."""
    match, size_cache = experiment.match, experiment.size_cache
    if match is None or (reference := experiment.reference_arms[arm.title]).title == arm.title:
        return None
    arm_key = hash_json([arm.title, point])
    if arm_key not in size_cache:
        target_size = count_reference_size(experiment, reference, point)
        cell = unmatched_cell or experiment.make_unmatched_cell(arm, point, 0)
        composition_key = hash_json([cell.task, cell.model, reference.title, target_size])
        if composition_key not in size_cache:
            size_cache[composition_key] = solve_match(cell, match, target_size, reference.title, size_cache)
        size_cache[arm_key] = size_cache[composition_key]
    return size_cache[arm_key]


def count_reference_size(experiment: "Experiment", reference: "Arm", point: Mapping[str, Any]) -> float:
    """Return the size of the reference arm at a tuned point. Cached in the experiment."""
    assert experiment.match is not None
    cache_key = hash_json(["wanted", reference.title, point])
    if cache_key not in experiment.size_cache:
        cell = experiment.make_unmatched_cell(reference, point, 0)
        experiment.size_cache[cache_key] = count_size(cell, experiment.match.on)
    return experiment.size_cache[cache_key]


def solve_match(
    cell: Cell, match: MatchConfig, target_size: float, reference_title: str, size_cache: dict[str, Any]
) -> SizeMatch:
    """Solve the setting that gives the cell the target size. Raise ConfigError if it is not within tolerance."""
    by, current = match.solved_setting, setting_value(cell, match.solved_setting)
    size = cache(lambda value: count_size(cell.replace_model_settings(**{by: value}), match.on))
    solution: SizedValue | None = SizedValue(current, size(current))
    if solution is not None and solution.size != target_size:
        if by == "mlp_width":
            slope = size_slope(cell, match.on, size, size_cache)  # 0 if no layer has an MLP
            solution = solve_linear(solution, slope, target_size, match.within) if slope else None
        else:
            solution = solve_by_bisection(size, solution, target_size, 2 * cell.model["heads"])
    if solution is None:
        raise ConfigError.at(
            "match",
            "match_has_no_effect",
            f"the {QUANTITY_NAMES[match.on]} of this arm do not depend on {by}{alternative_hint(match)}.",
        )
    residual = (solution.size - target_size) / target_size
    if abs(residual) > match.within:
        raise ConfigError.at(
            "match",
            "no_match_within_tolerance",
            f"the closest value, {by} {solution.value}, gives {solution.size:.0f} {QUANTITY_NAMES[match.on]}, but "
            f"{reference_title!r} has {target_size:.0f}. The difference is {100 * residual:+.2g} %, and at most "
            f"{100 * match.within:.3g} % is allowed.",
            f"Raise match.within or use a larger model{alternative_hint(match)}.",
        )
    is_unchanged = solution.value == current and (by == "width" or len(set(list_mlp_widths(cell))) <= 1)
    return SizeMatch(reference_title, match.on, by, solution.value, residual, is_unchanged)


def setting_value(cell: Cell, setting: str) -> int:
    """Return the value of `width` or `mlp_width` in a cell: with null, the default of the first layer with an MLP."""
    return cell.model["width"] if setting == "width" else next(iter(list_mlp_widths(cell)), 1)


def list_mlp_widths(cell: Cell) -> list[int]:
    """Return the inner width of each MLP of a cell; layers may have different kinds, with different defaults."""
    model = cell.model
    kinds = [kind for _, kind in iter_layer_values(model["mlp"]) if kind in ("swiglu", "gelu")]
    return [mlp_inner_width(model["width"], kind, model["mlp_width"]) for kind in kinds]


def size_slope(cell: Cell, quantity: str, size: Callable[[int], float], size_cache: dict[str, Any]) -> float:
    """Return the size added by one more MLP channel. Cached by the settings of the MLP, which alone determine it."""
    cache_key = hash_json(["slope", quantity, *(cell.model[key] for key in ("width", "layers", "mlp", "bias"))])
    if cache_key not in size_cache:
        mlp_width = setting_value(cell, "mlp_width")
        size_cache[cache_key] = size(mlp_width + 1) - size(mlp_width)
    return size_cache[cache_key]


def count_size(cell: Cell, quantity: str) -> float:
    """Return the parameters, the bytes of state after the longest training sequence, or training FLOPs per token."""
    from hqlt_lab.model.analysis.component_sizes import parameter_sizes, sizes, state_sizes

    task = build("task", cell.task)
    with issues_under("model"):
        model = build_meta_model(cell, task.vocabulary).eval()
    length = task.sequence_length("train")
    if quantity == "parameters":
        return sum(size.parameters for size in parameter_sizes(model))
    if quantity == "state":
        return sum(size.state for size in state_sizes(model, length))
    return sizes(model, length).total.training / length


def match_cells(experiment: "Experiment", cells: Iterable[Cell]) -> Iterator[SizeMatch | None]:
    """Yield the match of each planned cell; None for cells of a reference arm."""
    arms = {arm.title: arm for arm in experiment.arms}
    for cell in cells:
        arm = arms[cell.arm]
        yield match_arm(experiment, arm, {path: value for path, value in cell.axes.items() if path not in arm.levels})
