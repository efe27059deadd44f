"""The page of experiment files: from the schema that `hqlt schema` prints, and so from the code that checks a file."""

from collections.abc import Iterator
from typing import Any

from hqlt_lab.experiment.json_schema import json_schema
from hqlt_lab.experiment.read import as_yaml
from hqlt_lab.reference.markdown import code, heading, item, page
from hqlt_lab.registry import KINDS, available, describe, options, spelled

Schema = dict[str, Any]
WORDS: dict[str, str] = {
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "string": "str",
    "array": "list",
    "object": "mapping",
}
INTRODUCTION = (
    "Every section of an experiment file, every key in it, and every part that it can name. Only `question` and `task` "
    "must be there. What a file looks like as a whole: [experiments.md](../experiments.md). `hqlt schema` gives the "
    "same to editors, and `hqlt show KIND NAME` tells all of one part."
)
FORMS = {
    "arms": "A mapping of names to changes: `{vector: {model.mixer: vector}}`. Besides changes an arm may have:",
    "match": "`parameters`, `state` or `flops`; `null` takes back what an extended file asks for. Or a mapping with:",
    "tune": "A mapping of paths to lists: `{train.lr: [1e-3, 1e-4]}`. Or, in the place of a list, a range:",
    "evaluate": "A list of tasks, or a mapping with:",
}  # what stands before the keys, where a section is more than they
LOOK = {"task": "task", "launcher": "launcher"}  # sections that are a part


def experiment_file() -> str:
    """The whole page."""
    sections = json_schema()["properties"]
    lines = [INTRODUCTION, *heading(2, "Sections")]
    for name, told in sections.items():
        lines += section(name, told)
    lines += heading(2, "Parts")
    lines.append("A part is its name, or a mapping with its name and options: `{name: delta, max_beta: 2}`.")
    for kind in KINDS:
        lines += parts(kind)
    return page("Experiment files, key by key", *lines)


def section(name: str, told: Schema) -> list[str]:
    """Its sentence, its form, its keys."""
    lines = [*heading(3, name), told["description"]]
    if name in LOOK:
        lines += ["", f"One of the parts below: [{name}](#{name}_1).{default(told, ' Default: {}.')}"]
    elif keys := keys_of(told):
        lines += [
            *(["", FORMS[name]] if name in FORMS else []),
            "",
            *(line for key, one in keys.items() for line in entry(key, one)),
        ]
    else:
        lines += ["", f"Form: {form_of(told)}.{default(told, ' Default: {}.')}"]
    return lines


def keys_of(told: Schema) -> dict[str, Schema]:
    """The keys of a section, whether it must be a mapping or may be one, or is one of such."""
    inner = told.get("additionalProperties")
    places = [told, *told.get("oneOf", ()), *([inner, *inner.get("oneOf", ())] if isinstance(inner, dict) else ())]
    return {key: one for place in places for key, one in place.get("properties", {}).items()}


def entry(name: str, told: Schema) -> list[str]:
    """One key."""
    return item(name, [form_of(told), default(told, "default {}")], told["description"])


def default(told: Schema, form: str) -> str:
    """As YAML has it."""
    if "default" not in told:
        return ""
    return form.format(code(yaml(told["default"])))


def yaml(value: Any) -> str:
    return as_yaml({"value": value}).removeprefix("value:").strip() if not isinstance(value, list) else str(value)


def form_of(told: Schema) -> str:
    """What may stand there, in words."""
    if "enum" in told:
        return " | ".join(code(yaml(one)) for one in told["enum"])
    for word in ("anyOf", "oneOf"):
        if word in told:
            return alternatives(told[word])
    kind: Any = told.get("type", "any value")
    if isinstance(kind, list):
        return " | ".join(WORDS.get(str(one), str(one)) for one in kind)
    if kind == "array":
        return f"list of {form_of(told['items'])}" if "items" in told else "list"
    inner = told.get("additionalProperties")
    if kind == "object" and isinstance(inner, dict):
        return f"mapping of names to {form_of(inner)}"
    return WORDS.get(kind, str(kind))


def alternatives(several: list[Schema]) -> str:
    """Without what is told elsewhere: a mapping that has keys, a part with options."""
    if any("const" in one.get("properties", {}).get("name", {}) for one in several):
        return "a part, or a list of parts" if any(one.get("type") == "array" for one in several) else "a part"
    return " | ".join(form_of(one) for one in several if "properties" not in one)


def parts(kind: str) -> Iterator[str]:
    """Every part of a kind, with its options."""
    yield from heading(3, kind)
    yield f"{KINDS[kind].idea.capitalize()}."
    for name in available(kind):
        yield from heading(4, f"{kind} {name}")
        yield describe(kind, name).idea
        yield ""
        for option in options(kind, name).values():
            usual = "required" if option.required else f"default {code(yaml(option.default))}"
            yield from item(option.name, [spelled(option.type), usual], option.says)
        if not options(kind, name):
            yield "No options."
