"""Check the composition of every arm at every tuned point: its task, its model, and that no two are identical.

Detects mistakes in combinations of settings that are each valid: incompatible components, fast weights that are never
read, metrics that the task does not have, and gates of external update rules with a wrong shape (built-in rules have
tests). Models are built on the meta device, which takes no memory. The experiment package imports torch inside
functions only (here and in `matching.count_size`), so importing the package does not load it.

If a composition cannot be built, `find_all_issues` looks for further mistakes: it leaves out invalid changes and
sections and checks the rest, but does not report issues that exist only because something was left out.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import lcm
from typing import TYPE_CHECKING, Any

from hqlt_lab.errors import ConfigIssue, HqltError, join_sentences, list_issues
from hqlt_lab.experiment.apply_overrides import VARIABLE_SECTIONS, apply_each_change
from hqlt_lab.experiment.arm_title import format_levels
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.cell_key import cell_key
from hqlt_lab.experiment.fill_defaults import fill_each_section
from hqlt_lab.experiment.validate.example_overlap import (
    TRAIN_TEST_OVERLAP,
    check_example_overlap,
    count_train_examples,
)
from hqlt_lab.experiment.validate.metric_names import RequestedMetrics, find_unknown_metrics
from hqlt_lab.experiment.yaml.interpolation import resolve_each_section
from hqlt_lab.experiment.yaml.source_map import parent_paths
from hqlt_lab.hashing import hash_json
from hqlt_lab.model.config import COMPONENT_KINDS, PER_LAYER_SETTINGS, ModelConfig
from hqlt_lab.model.layer_pattern import iter_layer_values
from hqlt_lab.model.memory_size_config import equal_size
from hqlt_lab.registry import build, find_factory, find_failing_component, parse_spec

if TYPE_CHECKING:
    from hqlt_lab.experiment.load_experiment import Arm, Experiment

Issues = list[ConfigIssue]
CheckResult = tuple[Issues, Issues]  # issues and warnings
EMPTY_FAST_WEIGHTS = "empty_fast_weights"
ALLOWABLE_ISSUES = (EMPTY_FAST_WEIGHTS, TRAIN_TEST_OVERLAP)  # issues that an arm can list under `allow`
MAX_WINDOW_RATIO = 10  # a KV cache that is longer than this many of the longest sequences is probably a mistake
MAX_TRIAL_SIZE = 2**16  # larger sizes are replaced by defaults when single components are checked
PLACEHOLDER_VOCABULARY = 2  # for a model whose task is invalid
MAX_EXHAUSTIVE_CHECKS = 50  # failing compositions that are searched for further mistakes, since building models is slow


def check_gates(model: Any) -> Issues:
    """Return one issue for each external update rule of a model whose gates have a wrong shape or raise an error."""
    memories = [memory for memory in model.memories if memory.update_rule is not None]
    problems = [problem for memory in memories if (problem := check_rule_gates(memory))]
    return [ConfigIssue("model.update_rule", "invalid_gates", problem) for problem in dict.fromkeys(problems)]


def check_rule_gates(memory: Any) -> str:
    """Return what is wrong with the gates of a layer's update rule if it is an external one, or ""."""
    name, _ = parse_spec("update_rule", memory.component_specs["update_rule"])
    if find_factory("update_rule", name).__module__.startswith("hqlt_lab."):
        return ""
    try:
        mismatch = find_gate_mismatch(memory)
    except Exception as error:
        failure = find_failing_component(error)
        return str(failure) if failure and failure.is_permanent else ""  # other errors may be temporary
    return f"{name!r}: {mismatch}" if mismatch else ""


def find_gate_mismatch(memory: Any) -> str:
    """Return what is wrong with the gates of a layer's update rule for a short input, or "".

    The input is on the CPU, because the meta device would import torch's compiler.
    """
    import torch

    size = memory.sizes["fw"]
    rule = build("update_rule", memory.component_specs["update_rule"], **memory.component_arguments("update_rule"))
    rows, tokens = size.heads + 2, size.heads + 1  # all different, to detect swapped dimensions
    stream = torch.linspace(-1, 1, rows * tokens * memory.width).view(rows, tokens, memory.width)
    with torch.no_grad():
        gates = rule.gates(stream)
        mismatch = rule.find_gate_error(gates, rows, size.heads, tokens)
        return str(mismatch or rule.find_channel_error(gates, memory.features, size.value_dim))


def check_cell(
    cell: Cell, metrics: RequestedMetrics, allowed_issues: tuple[str, ...], result_cache: dict[str, CheckResult]
) -> CheckResult:
    """Return the issues and warnings of a cell, without allowed ones. Results are cached in `result_cache`."""
    agent_issues = [] if cell.agent is None else check_agent_settings(cell)
    agent_paths = [issue.path for issue in agent_issues]
    settings = [cell.task, cell.model, cell.train.memories, cell.train.window is None, cell.train.head]
    cache_key = hash_json([*settings, count_train_examples(cell), allowed_issues, agent_paths])
    if cache_key not in result_cache:
        task, task_issues = check_task(cell, metrics)
        model, model_issues = check_model(cell, task.vocabulary) if task else (None, [])
        schedule_issues: Issues = []
        warnings: Issues = []
        if model is not None and EMPTY_FAST_WEIGHTS not in allowed_issues:
            schedule_issues, warnings = check_empty_fast_weights(model, task.sequence_length("train"), cell)
        overlap, overlap_warnings = check_example_overlap(task, cell, allowed_issues) if task else ([], [])
        too_long = [] if model is None else check_document_length(model, task, cell)
        memory_issues, memory_warnings = ([], []) if model is None else check_training_of_memories(model, cell)
        issues = task_issues + overlap + agent_issues + model_issues + schedule_issues + too_long + memory_issues
        window_warnings = [] if model is None or schedule_issues else check_window_length(model, task, cell)
        result_cache[cache_key] = issues, overlap_warnings + warnings + window_warnings + memory_warnings
    return result_cache[cache_key]


def check_task(cell: Cell, metrics: RequestedMetrics) -> tuple[Any, Issues]:
    """Return the task, or None if it cannot be built, and the issues of the task and its metrics."""
    try:
        task = build("task", cell.task, location="")
    except HqltError as error:
        return None, [issue.under("task") for issue in list_issues(error)]
    issues = find_unknown_metrics(task, metrics)
    if cell.train.head == "labeled" and not task.scores_predictions:
        message = f"task {cell.task['name']!r} scores more than the predicted tokens, so it needs all logits."
        issues.append(ConfigIssue("train.head", "labeled_head_not_supported", message, "Use 'all'."))
    try:
        _ = task.vocabulary  # raises an error if the text of a language task is not prepared yet
    except HqltError as error:
        return None, [issue.under("task") for issue in list_issues(error)] + issues
    return task, issues


def check_model(cell: Cell, vocabulary: int | None) -> tuple[Any, Issues]:
    """Return the model with one period of layers, or None if it cannot be built, and its issues."""
    try:
        model = build_meta_model(cell.replace_model_settings(layers=layer_period(cell.model)), vocabulary)
        return model, check_gates(model)
    except HqltError as error:
        issues = [issue.under("model") for issue in list_issues(error)]
        return None, [*dict.fromkeys([*issues, *check_component_options(cell.model)])]


def layer_period(model: Mapping[str, Any]) -> int:
    """Return the number of layers after which all lists over the layers repeat."""
    return lcm(*(len(model[name]) for name in PER_LAYER_SETTINGS if isinstance(model[name], list)))


def check_component_options(model: Mapping[str, Any]) -> Issues:
    """Collect option errors from each component separately, since building the model stops at the first."""
    entries = [(kind, spec) for kind in COMPONENT_KINDS for _, spec in iter_layer_values(model[kind])]
    components = [(kind, spec) for kind, spec in entries if spec is not None]
    size = equal_size(model["heads"], max(model["width"] // model["heads"], 1))
    return [
        issue.under("model")
        for kind, spec in components
        for issue in find_component_issues(kind, spec, size.arguments(model["width"]))
    ]


def find_component_issues(kind: str, component: Any, arguments: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    """Yield the issues of a component about its own options. Others may be caused by the rest of the model."""
    try:
        _, chosen_options = parse_spec(kind, component)
    except HqltError:  # reported when the section is filled
        return
    try:
        with meta_device():
            build(kind, component, **arguments)
    except HqltError as error:
        option_paths = [f"{kind}.{option}" for option in chosen_options]
        yield from (issue for issue in list_issues(error) if issue.path in option_paths)
    except Exception:  # inconsistent sizes can raise any error inside a component
        return


def check_agent_settings(cell: Cell) -> Issues:
    """Return one issue for each setting that is not supported for agents."""
    train, trainer = cell.train, cell.trainer
    conflicts = (
        ("trainer.devices", trainer.devices > 1, "an agent is trained in one process.", "Use 1."),
        ("trainer.nodes", trainer.nodes > 1, "an agent is trained in one process.", "Use 1."),
        ("trainer.precision", trainer.precision == "16-mixed", "gradients are not scaled.", "Use 'bf16-mixed'."),
        ("train.accumulate", train.accumulate > 1, "a batch of episodes is not split.", "Use 1."),
        ("train.window", train.window is not None, "an agent acts and learns with the same window.", "Leave it out."),
        ("train.compile", train.compile, "an agent reads one observation at a time.", "Leave it out."),
        ("train.probe_every", bool(train.probe_every), "probes need examples, and there are none.", "Use 0."),
    )
    return [
        ConfigIssue(path, "not_supported_for_agents", f"task {cell.task['name']!r} is an environment: {reason}", hint)
        for path, is_conflict, reason, hint in conflicts
        if is_conflict
    ]


def build_meta_model(cell: Cell, vocabulary: int | None) -> Any:
    """Build the model of a cell on the meta device, without allocating memory."""
    from hqlt_lab.model.sequence_model import SequenceModel

    with meta_device():
        return SequenceModel(ModelConfig(**cell.model, vocabulary=vocabulary))


@contextmanager
def meta_device() -> Iterator[None]:
    """Create tensors on the meta device and skip initialization inside the `with` block."""
    import torch

    from hqlt_lab.model.initialize import SkipInit

    with torch.device("meta"), SkipInit():
        yield


def check_empty_fast_weights(model: Any, tokens: int, cell: Cell) -> tuple[Issues, Issues]:
    """Return issues and warnings if the delay is so long that the fast weights stay empty for most of a sequence."""
    for memory in model.memories:
        schedule = memory.schedule
        first = first_read_position(schedule.delay, schedule.hold)
        num_empty = first - model.config.meta_tokens  # tokens that read empty fast weights
        if memory.update_rule is None or num_empty <= 0:
            continue
        length = f"the {tokens} tokens of the longest training sequence of task {cell.task['name']!r}"
        if num_empty >= tokens:
            message = f"the fast weights stay empty, because the delay of {first} is not shorter than {length}."
            hint = (
                "Use a smaller window, or timing 'synchronous'. If this is intended, set in the arm: "
                f"allow: [{EMPTY_FAST_WEIGHTS}]."
            )
            return [ConfigIssue("model.timing", EMPTY_FAST_WEIGHTS, message, hint)], []
        if 2 * num_empty > tokens:
            message = f"the fast weights are empty for the first {num_empty} of {length}."
            return [], [ConfigIssue("model.timing", "mostly_empty_fast_weights", message)]
    return [], []


def check_window_length(model: Any, task: Any, cell: Cell) -> Issues:
    """Return a warning if a KV cache is more than MAX_WINDOW_RATIO times as long as any sequence of the task."""
    longest = longest_document(model, task)
    capacity = max((memory.kv_cache_capacity or 0 for memory in model.memories), default=0)
    if capacity <= MAX_WINDOW_RATIO * longest:
        return []
    message = (
        f"the window holds {capacity:,} tokens, but the longest sequence of task {cell.task['name']!r} has {longest:,}."
    )
    return [
        ConfigIssue("model.timing", "window_far_too_long", message, f"A window of {longest:,} gives the same result.")
    ]


def check_training_of_memories(model: Any, cell: Cell) -> CheckResult:
    """Return the issues and warnings of `train.memories` and `train.window`: settings that have no effect."""
    from hqlt_lab.model.window_override import has_softmax_window

    issues, warnings = list[ConfigIssue](), list[ConfigIssue]()
    for name in cell.train.memories:
        path = f"train.memories.{name}"
        components = [component for memory in model.memories for component in memory.own_components(name)]
        if not any(name in memory.mixer.reads for memory in model.memories):
            issues.append(ConfigIssue(path, "unread_memory", f"no mixer of this model reads {name}.", "Leave it out."))
        elif cell.train.memory(name).lr_scale != 1 and not any(any(True for _ in c.parameters()) for c in components):
            message = f"{name} has no parameters of its own in this model, so its learning rate has no effect."
            warnings.append(ConfigIssue(f"{path}.lr_scale", "memory_without_parameters", message))
    if cell.train.window is not None and not any(map(has_softmax_window, model.memories)):
        message = "no layer has a softmax window that could be drawn."
        issues.append(ConfigIssue("train.window", "no_window_to_draw", message, "Set the window of a timing."))
    return issues, warnings


def check_document_length(model: Any, task: Any, cell: Cell) -> Issues:
    """Return an issue if positions have a length and some sequence of the task is longer."""
    limit = None if model.positions is None else model.positions.max_length
    longest = longest_document(model, task)
    if limit is None or longest <= limit:
        return []
    message = f"there are {limit:,} positions, but the longest sequence of task {cell.task['name']!r} has {longest:,}"
    message += ", meta tokens included." if model.config.meta_tokens else "."
    return [ConfigIssue("model.positions", "document_longer_than_positions", message, f"Use {longest} or more.")]


def longest_document(model: Any, task: Any) -> int:
    """Return the number of tokens of the longest sequence of a task, with the meta tokens of the model."""
    longest: int = max(task.sequence_length(split) for split in task.splits) + model.config.meta_tokens
    return longest


def first_read_position(delay: int, hold: int | None) -> int:
    """Return the first position at which the fast weights are not empty; 0 without a delay."""
    if hold is None:
        return delay
    return -(-(delay + 1) // hold) * hold


def find_all_issues(
    experiment: "Experiment",
    arm: "Arm",
    point: Mapping[str, Any],
    metrics: RequestedMetrics,
    result_cache: dict[str, CheckResult],
) -> Issues:
    """Return one issue for each mistake of an arm at a tuned point, although the cell cannot be built."""
    config, change_issues = apply_each_change(experiment.base, arm.changes, VARIABLE_SECTIONS)
    arm_issues = [issue.under(arm.location) for issue in change_issues]
    config, axis_issues = apply_each_change(config, {**arm.levels, **point}, VARIABLE_SECTIONS)
    sections, reference_issues = resolve_each_section(config)
    filled, section_issues = fill_each_section(sections)
    has_invalid_change = bool(arm_issues or axis_issues)
    cell_issues = [] if has_invalid_change else check_valid_sections(filled, metrics, arm.allow, result_cache)
    component_issues = [] if "model" in filled else check_model_components(sections.get("model"))
    return [*arm_issues, *axis_issues, *reference_issues, *section_issues, *component_issues, *cell_issues]


def check_valid_sections(
    sections: Mapping[str, Any],
    metrics: RequestedMetrics,
    allowed_issues: tuple[str, ...],
    result_cache: dict[str, CheckResult],
) -> Issues:
    """Check task and model, or the one of them that is valid."""
    task, model = sections.get("task"), sections.get("model")
    cell = Cell(**{"task": {}, "model": {}} | dict(sections))
    if task and model:
        issues = check_cell(cell, metrics, allowed_issues, result_cache)[0]
        # the overlap depends on the number of training examples
        return issues if "train" in sections else [issue for issue in issues if issue.code != TRAIN_TEST_OVERLAP]
    if task:
        return check_task(cell, metrics)[1]
    return check_model(cell, PLACEHOLDER_VOCABULARY)[1] if model else []


def check_model_components(model: Any) -> Issues:
    """Check the component options of an invalid model section, with default sizes in place of invalid ones."""
    if not isinstance(model, Mapping):
        return []
    sizes = {name: model[name] for name in ("width", "heads") if type(model.get(name)) is int}
    valid_sizes = {name: size for name, size in sizes.items() if 0 < size <= MAX_TRIAL_SIZE}
    components = {kind: model.get(kind) for kind in COMPONENT_KINDS}
    return check_component_options(vars(ModelConfig()) | components | valid_sizes)


class CompositionChecker:
    """Checks the compositions of an experiment one by one, and caches results and keys."""

    def __init__(self, experiment: "Experiment", metrics: RequestedMetrics) -> None:
        self.experiment, self.metrics = experiment, metrics
        self.result_cache: dict[str, CheckResult] = {}
        # cell key -> arm and tuned point of the first composition with it
        self.compositions_by_key: dict[str, tuple[Arm, Mapping[str, Any]]] = {}
        self.num_failed = 0

    def check_arm(self, arm: "Arm", point: Mapping[str, Any]) -> CheckResult:
        """Return the issues and warnings of an arm at a tuned point."""
        try:
            cell = self.experiment.make_cell(arm, point, self.experiment.seeds[0])
        except HqltError as error:
            issues = dict.fromkeys([*self.find_hidden_issues(arm, point), *list_issues(error)])
            return [add_replacement_hint(issue, arm) for issue in issues], []
        cell_issues, warnings = check_cell(cell, self.metrics, arm.allow, self.result_cache)
        return [*cell_issues, *self.find_duplicate(cell, arm, point)], warnings

    def find_hidden_issues(self, arm: "Arm", point: Mapping[str, Any]) -> Issues:
        """Return all issues of a composition that cannot be built; none after MAX_EXHAUSTIVE_CHECKS compositions."""
        self.num_failed += 1
        if self.num_failed > MAX_EXHAUSTIVE_CHECKS:
            return []
        return find_all_issues(self.experiment, arm, point, self.metrics, self.result_cache)

    def find_duplicate(self, cell: Cell, arm: "Arm", point: Mapping[str, Any]) -> Issues:
        """Return an issue if another composition has the same cell key."""
        first_arm, first_point = self.compositions_by_key.setdefault(cell_key(cell), (arm, point))
        if first_arm is arm and first_point is point:
            return []
        points = [format_levels(composition_point) for composition_point in (first_point, point)]
        at_points = f" at {', '.join(points[0])} and at {', '.join(points[1])}" if point else ""
        message = f"these arms are identical{at_points}: all settings that affect the result are equal."
        arms = tuple(dict.fromkeys([first_arm.title, arm.title]))
        return [ConfigIssue(arm.location, "identical_arms", message, arms=arms)]


def add_replacement_hint(issue: ConfigIssue, arm: "Arm") -> ConfigIssue:
    """Add a hint if an arm sets only the name of a component, and the new one lacks an option of the old one."""
    for path, name in (*arm.changes.items(), *arm.levels.items()):
        component = path.removesuffix(".name")
        if component != path and issue.code == "unknown_option" and component in parent_paths(issue.path):
            hint = f"To drop the options of the old component, replace it: {{{component}: {name}}}."
            return replace(issue, hint=join_sentences(issue.hint, hint))
    return issue
