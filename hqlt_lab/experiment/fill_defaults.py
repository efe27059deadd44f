"""Fill in all defaults of an experiment's sections, and strip them again for cell keys.

A stored run contains every default, so it does not change if a later version has other defaults. A cell key is made
from the stripped settings: without values at their default and without components that no layer uses. So an option
that is added later does not change the keys of existing results.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

from hqlt_lab.errors import ConfigError, ConfigIssue, HqltError, list_issues
from hqlt_lab.experiment.run_settings import AgentConfig, TrainConfig, TrainerConfig
from hqlt_lab.model.config import (
    COMPONENT_KINDS,
    KINDS_BY_SETTING,
    PER_LAYER_SETTINGS,
    ModelConfig,
    OpsConfig,
    model_config,
)
from hqlt_lab.model.layer_pattern import expand_layers, layer_value
from hqlt_lab.registry import build, find_factory, options, parse_settings, parse_spec
from hqlt_lab.registry.settings_parsing import raise_if_invalid

FilledComponent = dict[str, Any]
# kinds that did not exist in the first version, with their default, which is left out of the cell key
LATER_KINDS: dict[str, FilledComponent] = {"attention": {"name": "softmax"}}
SectionCache = dict[tuple[str, str, str | None], Any]  # (section, its repr as written, task name) -> filled section


def fill_defaults(config: Mapping[str, Any], section_cache: SectionCache | None = None) -> dict[str, Any]:
    """Fill in and check task, model, train, agent, trainer and ops. Report all mistakes in one error.

    `section_cache` holds sections that were filled before: the cells of a study have few different ones.
    """
    filled, issues = fill_each_section(
        {section: config.get(section, {}) for section in (*FILL_FUNCTIONS, "agent")}, section_cache
    )
    raise_if_invalid(issues)
    return filled | {"train": resolve_epochs(filled["train"], filled["task"])}


def resolve_epochs(train: TrainConfig, task: FilledComponent) -> TrainConfig:
    """Return the training settings with the steps of `epochs`, which depend on the task and on the batch size."""
    if train.epochs is None:
        return train
    steps_per_epoch = build("task", task).steps_per_epoch(train.batch_size)
    if steps_per_epoch is None:
        message = f"task {task['name']!r} has no finite training set, so it has no epochs."
        raise ConfigError.at("train.epochs", "epochs_without_rows", message, "Set task.rows, or use train.steps.")
    return replace(train, steps=train.epochs * steps_per_epoch)


def fill_each_section(
    sections: Mapping[str, Any], section_cache: SectionCache | None = None
) -> tuple[dict[str, Any], list[ConfigIssue]]:
    """Return the valid sections, filled in, and one issue for each mistake in the others."""
    section_cache, issues = {} if section_cache is None else section_cache, list[ConfigIssue]()
    filled: dict[str, Any] = {}
    fill_functions = FILL_FUNCTIONS | {
        "agent": lambda section: fill_agent(section, filled.get("task", {}).get("name")),
    }
    for section, fill in fill_functions.items():
        if section not in sections:
            continue
        cache_key = (section, repr(sections[section]), filled.get("task", {}).get("name"))
        try:
            filled[section] = section_cache[cache_key] = (
                section_cache[cache_key] if cache_key in section_cache else fill(sections[section])
            )
        except HqltError as error:
            issues += [issue.under(section) for issue in list_issues(error)]
    return filled, issues


def fill_task(section: Any) -> FilledComponent:
    if section == {}:
        raise ConfigError.at("", "missing_task", "there is no task to train on.", "Name one, such as {name: parity}.")
    task = fill_component("task", section, "")
    factory: Any = find_factory("task", task["name"])
    return task | factory.pin_options(task)


def fill_component(kind: str, spec: Any, location: str) -> FilledComponent:
    """Return a component as a mapping with its name and all its options. `location` is its path, for issues."""
    name, chosen_options = parse_spec(kind, spec, location)
    defaults = {option.name: option.default for option in options(kind, name).values() if not option.is_required}
    return {"name": name} | defaults | chosen_options


def fill_model(section: Any) -> dict[str, Any]:
    settings = require_mapping(section)
    issues: list[ConfigIssue] = []
    if "vocabulary" in settings:
        issues.append(ConfigIssue("vocabulary", "set_by_task", "the task determines the vocabulary.", "Leave it out."))
    try:
        model_config(settings | {"vocabulary": 1})  # a placeholder; the vocabulary of the task is checked later
    except ConfigError as error:
        issues += error.issues
    raise_if_invalid(issues)
    filled = deepcopy(dict(default_values(ModelConfig))) | settings
    filled |= {name: expand_layers(filled[name], filled["layers"]) for name in PER_LAYER_SETTINGS}
    for kind in COMPONENT_KINDS:
        spec = filled[kind]
        if isinstance(spec, list):
            filled[kind] = [fill_optional_component(kind, layer_spec) for layer_spec in spec]
        else:
            filled[kind] = fill_optional_component(kind, spec)
    return {name: value for name, value in filled.items() if name != "vocabulary"}


def fill_optional_component(kind: str, spec: Any) -> FilledComponent | None:
    """Return a component of the model with all its options; None stays None: the default of another component."""
    return None if spec is None else fill_component(kind, spec, kind)


def fill_train(section: Any) -> TrainConfig:
    settings = require_mapping(section)
    if "steps" in settings and settings.get("epochs") is not None:
        message = "epochs determine the number of steps."
        raise ConfigError.at("steps", "steps_and_epochs", message, "Leave one out, or set train.epochs to null.")
    return parse_settings(TrainConfig, settings)


def fill_trainer(section: Any) -> TrainerConfig:
    return parse_settings(TrainerConfig, require_mapping(section))


def fill_ops(section: Any) -> OpsConfig:
    return parse_settings(OpsConfig, require_mapping(section))


def fill_agent(section: Any, task: str | None) -> AgentConfig | None:
    """Return the agent settings, or None if the task is not an environment. `task` is None if it is invalid."""
    agent = parse_settings(AgentConfig, require_mapping(section))
    factory: Any = None if task is None else find_factory("task", task)
    if factory is not None and not factory.is_environment:
        if section:
            raise ConfigError.at(
                "",
                "agent_without_environment",
                f"task {task!r} is not an environment, so it has no agent.",
                "Leave it out.",
            )
        return None
    return agent


FILL_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "task": fill_task,
    "model": fill_model,
    "train": fill_train,
    "trainer": fill_trainer,
    "ops": fill_ops,
}


def require_mapping(section: Any) -> dict[str, Any]:
    if not isinstance(section, Mapping):
        raise ConfigError.at("", "not_a_mapping_of_settings", f"a mapping of settings is needed, got {section!r}.")
    return dict(section)


def strip_component_defaults(kind: str, component: Mapping[str, Any]) -> FilledComponent:
    """Return a component without the options that are at their default."""
    declared = options(kind, component["name"])
    return {key: value for key, value in component.items() if key == "name" or value != declared[key].default}


def strip_model_defaults(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return model settings without those at their default, and without components that no layer uses."""
    defaults = default_values(ModelConfig)
    model = {**defaults, **model}  # a model that was stored by an earlier version has fewer settings
    kinds = {name: list_layers(model, name) for name in KINDS_BY_SETTING}
    values = dict(model) | {name: merge_equal_layers(layer_kinds) for name, layer_kinds in kinds.items()}
    if not {"swiglu", "gelu"} & set(kinds["mlp"]):
        values["mlp_width"] = defaults["mlp_width"]  # no layer uses it
    if values["dropout"] == 0:
        values["dropout_on"] = defaults["dropout_on"]
    values |= strip_memory_sizes(model)
    settings = {key: value for key, value in values.items() if key not in COMPONENT_KINDS and value != defaults[key]}
    components = {kind: list_layers(model, kind) for kind in COMPONENT_KINDS}
    layers = [
        strip_layer_defaults({kind: specs[layer] for kind, specs in components.items()}, kinds["layer_kind"][layer])
        for layer in range(model["layers"])
    ]
    # the key "parts" is hashed into every cell key: renaming it would orphan all existing results
    return settings | {"parts": merge_equal_layers(layers)}


def strip_memory_sizes(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of the memories without those that are equal to the shared value or that no layer uses."""
    sizes = {key: model.get(key, default_values(ModelConfig)[key]) for key in ("head_dim", "fw", "kv", "projections")}
    if sizes["head_dim"] is not None and sizes["head_dim"] * model["heads"] == model["width"]:
        sizes["head_dim"] = None
    head_dim = sizes["head_dim"] or model["width"] // model["heads"]
    shared = {"heads": model["heads"], "key_dim": head_dim, "value_dim": head_dim}
    reads = [mixer_reads(mixer) for mixer in list_layers(model, "mixer")]
    for name in ("fw", "kv"):
        section = sizes[name] if any(name in memories for memories in reads) else {}
        defaults = shared | {"groups": section.get("heads") or model["heads"]}
        sizes[name] = {key: value for key, value in section.items() if value not in (None, defaults[key])}
    if not any(len(memories) == 2 for memories in reads):
        sizes["projections"] = "shared"
    return sizes


def mixer_reads(mixer: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the memories that a mixer reads."""
    return getattr(find_factory("mixer", mixer["name"]), "reads", ("fw", "kv"))


def list_layers(model: Mapping[str, Any], name: str) -> list[Any]:
    """Return the value of a setting in each layer; a list repeats over the layers."""
    return [layer_value(model[name], layer) for layer in range(model["layers"])]


def merge_equal_layers(values: list[Any]) -> Any:
    """Return the value of all layers if it is the same, else the list of their values."""
    return values[0] if all(value == values[0] for value in values) else values


def strip_layer_defaults(components: Mapping[str, Any], layer_kind: str) -> dict[str, FilledComponent]:
    """Return the components of one layer without their defaults, and only those that affect its output."""
    reads = mixer_reads(components["mixer"])
    # positions with `embed` are added to the layer's input, which both memories read
    is_added_to_input = "embed" in vars(find_factory("positions", components["positions"]["name"]))
    unread = {"positions"} if "kv" not in reads and not is_added_to_input else set()
    unread |= {"attention"} if "kv" not in reads else set()
    unread |= {"update_rule", "feature_map"} if "fw" not in reads else set()
    if layer_kind != "memory":
        unread = {*COMPONENT_KINDS} - ({"positions"} if is_added_to_input else set())
    if "kv" not in reads and components["timing"]["name"] == "synchronous":
        unread.add("timing")  # its only option is the softmax window
    stripped = {
        kind: strip_component_defaults(kind, component)
        for kind, component in components.items()
        if kind not in unread and component is not None
    }
    return {kind: component for kind, component in stripped.items() if component != LATER_KINDS.get(kind)}


def strip_settings_defaults(settings: Any, excluded: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings of a dataclass that are neither excluded nor at their default."""
    defaults = default_values(type(settings))  # type: ignore[arg-type]  # a class has a hash
    return {key: value for key, value in vars(settings).items() if key not in excluded and value != defaults[key]}


@cache
def default_values(settings_type: Callable[[], Any]) -> Mapping[str, Any]:
    """Return the default values of a settings dataclass. Cached."""
    return vars(settings_type())
