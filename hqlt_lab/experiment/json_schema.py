"""JSON Schema of experiment files, with which an editor completes and checks the YAML.

    # yaml-language-server: $schema=experiment.schema.json

The schema is generated from the settings dataclasses and the registry. It cannot express checks that involve several
settings (incompatible components, identical arms); `hqlt plan` does these.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hqlt_lab.experiment.lm_eval_section import EvaluateConfig
from hqlt_lab.experiment.parse_axes import Range
from hqlt_lab.experiment.parse_seeds import DEFAULT_SEEDS, DEFAULT_TUNE_SEEDS, SeedsUntilDecided
from hqlt_lab.experiment.run_settings import (
    MATCH_QUANTITIES,
    MEMORIES,
    AgentConfig,
    MatchConfig,
    MeasureConfig,
    MemoryTrainConfig,
    PruneConfig,
    TrainConfig,
    TrainerConfig,
    WindowRange,
)
from hqlt_lab.experiment.validate.arm_checks import ALLOWABLE_ISSUES
from hqlt_lab.model.config import COMPONENT_KINDS, KINDS_BY_SETTING, ModelConfig, OpsConfig
from hqlt_lab.model.memory_size_config import MEMORY_SIZE_CONFIGS
from hqlt_lab.registry import available, describe, options, read_field_docs

JSON_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string", NoneType: "null", dict: "object"}
Schema = dict[str, Any]

# sections that are a settings dataclass
SETTINGS_SECTIONS = {
    "model": ModelConfig,
    "train": TrainConfig,
    "agent": AgentConfig,
    "trainer": TrainerConfig,
    "ops": OpsConfig,
    "measure": MeasureConfig,
    "prune": PruneConfig,
}
SECTION_DESCRIPTIONS = {
    "question": "The question that the experiment answers, in one sentence.",
    "extends": "Another file to start from. Sections of models and training are merged, all others replaced.",
    "task": "The task to train on: its name, or a mapping with name and options.",
    "arms": "Named changes to the base; the first arm is the baseline. Default: the base alone.",
    "cross": "Axes, each a path and its values; every arm is trained with every combination.",
    "one_at_a_time": "Axes as in `cross`; every arm is trained unchanged, and with one value of one axis at a time.",
    "tune": "Settings tuned for every arm: a path and its values, or a range to search.",
    "seeds": "Number of seeds per setting, a list of seeds, or a mapping that adds seeds until all are decided.",
    "tune_seeds": "Seeds for tuning; they are not reported. A list, or how many, starting at seed 1000. They are used "
    "for ranges, and also for lists if seeds are added until all comparisons are decided.",
    "evaluate": "lm-eval tasks for trained language models: a list of tasks, or settings.",
    "launcher": "Where the cells are trained, and with which resources.",
    "published": "Published results of arms, shown beside the results: {arm: {metric: {best: 100.0}}}.",
    "quoted": "Published results of other models, in the same form; shown but not trained.",
}


def build_json_schema() -> Schema:
    """Return the JSON Schema of an experiment file."""
    axis = {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}}
    seeds = {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "array", "items": {"type": "integer"}}]}
    allow_description = "Issues that are normally rejected, but intended in this arm."
    allow = {"type": "array", "items": {"enum": list(ALLOWABLE_ISSUES)}, "description": allow_description}
    arm = {"type": ["object", "null"], "properties": {"allow": allow}}
    rows = {"type": "object", "additionalProperties": {"type": "object"}}
    evaluate = settings_schema(EvaluateConfig) | {"required": ["tasks"]}
    properties: Schema = {
        "question": {"type": "string"},
        "extends": {"type": "string"},
        "task": component_schema("task"),
        **{
            name: NESTED_SCHEMAS[name]() if name in NESTED_SCHEMAS else settings_schema(settings_type)
            for name, settings_type in SETTINGS_SECTIONS.items()
        },
        "evaluate": {"oneOf": [{"type": "array", "items": {"type": "string"}}, evaluate]},
        "launcher": component_schema("launcher") | {"default": "local"},
        "arms": {"type": "object", "additionalProperties": arm},
        "cross": axis,
        "one_at_a_time": axis,
        "match": {"oneOf": [{"enum": [*MATCH_QUANTITIES, None]}, settings_schema(MatchConfig) | {"required": ["on"]}]},
        "tune": {"type": "object", "additionalProperties": {"oneOf": [{"type": "array"}, settings_schema(Range)]}},
        "seeds": {"oneOf": [*seeds["oneOf"], settings_schema(SeedsUntilDecided)], "default": DEFAULT_SEEDS},
        "tune_seeds": seeds | {"default": DEFAULT_TUNE_SEEDS},
        "published": rows,
        "quoted": rows,
    }
    descriptions = SECTION_DESCRIPTIONS | {
        name: section_summary(settings_type)
        for name, settings_type in (SETTINGS_SECTIONS | {"match": MatchConfig}).items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hqlt_lab experiment",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: {"description": descriptions[name]} | schema for name, schema in properties.items()},
    }


def section_summary(settings_type: type) -> str:
    """Return the first line of the docstring of a settings class."""
    return (settings_type.__doc__ or "").splitlines()[0]


def model_schema() -> Schema:
    """Return the schema of the `model` section: ModelConfig without vocabulary, with nested settings and patterns."""
    schema = settings_schema(ModelConfig)
    del schema["properties"]["vocabulary"]
    for kind in COMPONENT_KINDS:
        component = component_schema(kind)
        schema["properties"][kind] |= {"oneOf": [*component["oneOf"], *list_forms_over_layers(component)]}
    for name, sizes in MEMORY_SIZE_CONFIGS.items():
        schema["properties"][name] |= settings_schema(sizes)
    for name, kinds in KINDS_BY_SETTING.items():
        values: Schema = {"enum": list(kinds)}
        schema["properties"][name] |= {"oneOf": [values, *list_forms_over_layers(values)]}
    return schema


def train_schema() -> Schema:
    """Return the schema of the `train` section, with the settings of single memories and of the drawn window."""
    schema = settings_schema(TrainConfig)
    memories = {
        name: settings_schema(MemoryTrainConfig) | {"description": f"How the {MEMORY_TITLES[name]} are trained."}
        for name in MEMORIES
    }
    schema["properties"]["memories"] |= {"type": "object", "additionalProperties": False, "properties": memories}
    window = settings_schema(WindowRange) | {"required": ["low", "high"]}
    schema["properties"]["window"] |= {"anyOf": [window, {"type": "null"}]}
    return schema


MEMORY_TITLES = {"fw": "fast weights", "kv": "parameters of softmax attention"}
NESTED_SCHEMAS: dict[str, Callable[[], Schema]] = {"model": model_schema, "train": train_schema}


def list_forms_over_layers(value: Schema) -> list[Schema]:
    """Return the schemas of a list and of both patterns of values over the layers."""
    run = {"type": "array", "prefixItems": [value, {"type": "integer", "minimum": 1}], "minItems": 2, "maxItems": 2}
    exceptions = {"type": "object", "patternProperties": {"^-?[0-9]+$": value}, "additionalProperties": False}
    return [
        {"type": "array", "items": value},
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["repeat"],
            "properties": {
                "repeat": {
                    "type": "array",
                    "items": run,
                    "minItems": 1,
                    "description": "Values with the number of consecutive layers that have them, from the first layer.",
                }
            },
        },
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["default", "at"],
            "properties": {
                "default": {**value, "description": "The value of all layers that `at` does not name."},
                "at": {**exceptions, "description": "Values of single layers by number: 0 is the first, -1 the last."},
            },
        },
    ]


def settings_schema(settings_type: type) -> Schema:
    """Return the schema of a settings dataclass, with description and default of each setting."""
    hints, docs = get_type_hints(settings_type), read_field_docs(settings_type)
    properties = {}
    for field in fields(settings_type):
        properties[field.name] = type_schema(hints[field.name]) | {"description": docs[field.name]}
        if field.default is not MISSING:
            properties[field.name]["default"] = field.default
        elif field.default_factory is not MISSING:
            properties[field.name]["default"] = field.default_factory()
    return {"type": "object", "additionalProperties": False, "properties": properties}


def component_schema(kind: str) -> Schema:
    """Return the schema of a component: a registered name, or a mapping with name and options."""
    names = available(kind)
    return {"oneOf": [{"enum": names}, *(options_schema(kind, name) for name in names)]}


def options_schema(kind: str, name: str) -> Schema:
    """Return the schema of one component as a mapping {name: ..., option: ...}."""
    properties: Schema = {"name": {"const": name, "description": describe(kind, name).summary}}
    for option in options(kind, name).values():
        default = {} if option.is_required else {"default": option.default}
        description = {"description": option.help} if option.help else {}
        properties[option.name] = type_schema(option.type) | default | description
    required = ["name", *(option.name for option in options(kind, name).values() if option.is_required)]
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def type_schema(type_hint: Any) -> Schema:
    """Return the JSON Schema of a Python type."""
    origin, inner = get_origin(type_hint), get_args(type_hint)
    if origin in (Union, UnionType):
        return {"anyOf": [type_schema(member) for member in inner]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (list, tuple):
        return {"type": "array", "items": type_schema(inner[0])}
    return {"type": JSON_TYPES[type_hint]} if type_hint in JSON_TYPES else {}
