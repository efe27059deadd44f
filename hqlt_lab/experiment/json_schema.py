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
from hqlt_lab.experiment.settings import ON, MatchConfig, MeasureConfig, PruneConfig, TrainConfig, TrainerConfig
from hqlt_lab.experiment.tune import Range
from hqlt_lab.model.config import PARTS, ModelConfig, OpsConfig
from hqlt_lab.registry import available, describe, options, sentences

PLAIN = {int: "integer", float: "number", bool: "boolean", str: "string", NoneType: "null", dict: "object"}
Schema = dict[str, Any]


def json_schema() -> Schema:
    """The schema of a whole experiment file."""
    axis = {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}}
    seeds = {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "array", "items": {"type": "integer"}}]}
    meant = "What would be a mistake elsewhere, but is meant in this arm."
    allow = {"type": "array", "items": {"enum": list(ALLOWED)}, "description": meant}
    arm = {"type": ["object", "null"], "properties": {"allow": allow}}
    rows = {"type": "object", "additionalProperties": {"type": "object"}}
    asked = section(EvaluateConfig) | {"required": ["tasks"]}
    properties = {
        "question": {"type": "string", "description": "What the experiment asks, in a sentence."},
        "extends": {"type": "string", "description": "Another file to start from."},
        "task": part("task"),
        "model": model(),
        "train": section(TrainConfig),
        "agent": section(AgentConfig),
        "trainer": section(TrainerConfig),
        "ops": section(OpsConfig),
        "measure": section(MeasureConfig),
        "prune": section(PruneConfig),
        "evaluate": {"oneOf": [{"type": "array", "items": {"type": "string"}}, asked]},
        "launcher": part("launcher"),
        "arms": {"type": "object", "additionalProperties": arm},
        "cross": axis,
        "one_at_a_time": axis,
        "match": {"oneOf": [{"enum": [*ON, None]}, section(MatchConfig) | {"required": ["on"]}]},
        "tune": {"type": "object", "additionalProperties": {"oneOf": [{"type": "array"}, section(Range)]}},
        "seeds": seeds,
        "tune_seeds": seeds,
        "published": rows,
        "quoted": rows,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hqlt_lab experiment",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def model() -> Schema:
    """ModelConfig without the vocabulary; a part, or a list of parts."""
    made = section(ModelConfig)
    del made["properties"]["vocabulary"]
    for kind in PARTS:
        words = made["properties"][kind]["description"]
        one = part(kind)
        made["properties"][kind] = {"description": words, "oneOf": [*one["oneOf"], {"type": "array", "items": one}]}
    return made


def section(maker: type) -> Schema:
    """A dataclass of settings, each with its sentence and default."""
    hints, words = get_type_hints(maker), sentences(maker)
    properties = {}
    for field in fields(maker):
        properties[field.name] = typed(hints[field.name]) | {"description": words[field.name]}
        if field.default is not MISSING and field.name not in PARTS:
            properties[field.name]["default"] = field.default
    return {"type": "object", "additionalProperties": False, "properties": properties}


def part(kind: str) -> Schema:
    """A registered name, or a name with its options."""
    names = available(kind)
    return {"oneOf": [{"enum": names}, *(with_options(kind, name) for name in names)]}


def with_options(kind: str, name: str) -> Schema:
    """{name: ..., option: ...} of one part."""
    properties: Schema = {"name": {"const": name, "description": describe(kind, name).idea}}
    for option in options(kind, name).values():
        properties[option.name] = typed(option.type) | ({} if option.required else {"default": option.default})
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
