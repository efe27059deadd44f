"""The rules of an experiment file as JSON Schema, so that an editor completes and checks the YAML while it is written.

    # yaml-language-server: $schema=experiment.schema.json

Derived from the same dataclasses and the same registry that check a file; what takes looking at several places at once
(parts that do not go together, arms that are the same) only `hqlt plan` can tell.
"""

from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hqlt_lab.experiment.agent import AgentConfig
from hqlt_lab.experiment.composition import ALLOWED
from hqlt_lab.experiment.evaluation import EvaluateConfig
from hqlt_lab.experiment.experiment import SEEDS, TUNE_SEEDS
from hqlt_lab.experiment.settings import ON, MatchConfig, MeasureConfig, PruneConfig, TrainConfig, TrainerConfig
from hqlt_lab.experiment.tune import Range
from hqlt_lab.model.config import PARTS, ModelConfig, OpsConfig
from hqlt_lab.registry import available, describe, options, sentences

PLAIN = {int: "integer", float: "number", bool: "boolean", str: "string", NoneType: "null", dict: "object"}
Schema = dict[str, Any]


SETTINGS = {
    "model": ModelConfig,
    "train": TrainConfig,
    "agent": AgentConfig,
    "trainer": TrainerConfig,
    "ops": OpsConfig,
    "measure": MeasureConfig,
    "prune": PruneConfig,
}  # sections that are settings and nothing else
SAYS = {
    "question": "What the experiment asks, in a sentence.",
    "extends": "Another file to start from: what builds and trains is merged into it, what is compared replaces it.",
    "task": "What is learned: a task by its name, or with its options.",
    "arms": "Named changes to the base; the first arm is the baseline. Left out: the base alone.",
    "cross": "Axes: a path and its values; every arm is trained at every choice of them.",
    "one_at_a_time": "Axes in the same form; every arm is trained as it is, and with one value of one axis changed.",
    "tune": "What is tuned, for every arm alike: a path and its values, or a range that is searched.",
    "seeds": "How many seeds every cell is trained with, or a list of them.",
    "tune_seeds": "Seeds that a range is searched with, which are not reported; a number counts from 1000.",
    "evaluate": "What language models are asked when all is trained: a list of tasks, or settings.",
    "launcher": "Who trains the cells, and with how much of the machine.",
    "published": "What a paper says of an arm, shown beside ours: {arm: {metric: {best: 100.0}}}.",
    "quoted": "Rows of other papers in the same form, shown and never run.",
}


def json_schema() -> Schema:
    """The schema of a whole experiment file."""
    axis = {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}}
    seeds = {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "array", "items": {"type": "integer"}}]}
    meant = "What would be a mistake elsewhere, but is meant in this arm."
    allow = {"type": "array", "items": {"enum": list(ALLOWED)}, "description": meant}
    arm = {"type": ["object", "null"], "properties": {"allow": allow}}
    rows = {"type": "object", "additionalProperties": {"type": "object"}}
    asked = section(EvaluateConfig) | {"required": ["tasks"]}
    properties: Schema = {
        "question": {"type": "string"},
        "extends": {"type": "string"},
        "task": part("task"),
        **{name: model() if name == "model" else section(maker) for name, maker in SETTINGS.items()},
        "evaluate": {"oneOf": [{"type": "array", "items": {"type": "string"}}, asked]},
        "launcher": part("launcher") | {"default": "local"},
        "arms": {"type": "object", "additionalProperties": arm},
        "cross": axis,
        "one_at_a_time": axis,
        "match": {"oneOf": [{"enum": [*ON, None]}, section(MatchConfig) | {"required": ["on"]}]},
        "tune": {"type": "object", "additionalProperties": {"oneOf": [{"type": "array"}, section(Range)]}},
        "seeds": seeds | {"default": SEEDS},
        "tune_seeds": seeds | {"default": TUNE_SEEDS},
        "published": rows,
        "quoted": rows,
    }
    words = SAYS | {name: idea_of(maker) for name, maker in (SETTINGS | {"match": MatchConfig}).items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hqlt_lab experiment",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: {"description": words[name]} | told for name, told in properties.items()},
    }


def idea_of(maker: type) -> str:
    """What a section is about: the first line of its words."""
    return (maker.__doc__ or "").splitlines()[0]


def model() -> Schema:
    """ModelConfig without the vocabulary; a part, or a list of parts."""
    made = section(ModelConfig)
    del made["properties"]["vocabulary"]
    for kind in PARTS:
        setting, one = made["properties"][kind], part(kind)
        made["properties"][kind] = setting | {"oneOf": [*one["oneOf"], {"type": "array", "items": one}]}
    return made


def section(maker: type) -> Schema:
    """A dataclass of settings, each with its sentence and default."""
    hints, words = get_type_hints(maker), sentences(maker)
    properties = {}
    for field in fields(maker):
        properties[field.name] = typed(hints[field.name]) | {"description": words[field.name]}
        if field.default is not MISSING:
            properties[field.name]["default"] = field.default
        elif field.default_factory is not MISSING:
            properties[field.name]["default"] = field.default_factory()
    return {"type": "object", "additionalProperties": False, "properties": properties}


def part(kind: str) -> Schema:
    """A registered name, or a name with its options."""
    names = available(kind)
    return {"oneOf": [{"enum": names}, *(with_options(kind, name) for name in names)]}


def with_options(kind: str, name: str) -> Schema:
    """{name: ..., option: ...} of one part."""
    properties: Schema = {"name": {"const": name, "description": describe(kind, name).idea}}
    for option in options(kind, name).values():
        default = {} if option.required else {"default": option.default}
        says = {"description": option.says} if option.says else {}
        properties[option.name] = typed(option.type) | default | says
    required = ["name", *(option.name for option in options(kind, name).values() if option.required)]
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def typed(wanted: Any) -> Schema:
    """A Python type in the words of JSON Schema."""
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        return {"anyOf": [typed(one) for one in inner]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (list, tuple):
        return {"type": "array", "items": typed(inner[0])}
    return {"type": PLAIN[wanted]} if wanted in PLAIN else {}
