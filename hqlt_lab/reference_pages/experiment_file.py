"""Reference page of experiment files, generated from the JSON Schema of `hqlt schema` and from the registry."""

from collections.abc import Iterator
from typing import Any

from hqlt_lab.experiment.json_schema import build_json_schema
from hqlt_lab.experiment.yaml.read_experiment_files import dump_yaml
from hqlt_lab.reference_pages.markdown import heading_lines, inline_code, list_item, render_page
from hqlt_lab.registry import KINDS, available, describe, format_type, options

Schema = dict[str, Any]
TYPE_NAMES: dict[str, str] = {
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "string": "str",
    "array": "list",
    "object": "mapping",
}
EXPERIMENT_FILE_INTRODUCTION = (
    "This page lists every section and key of an experiment file, and every component that it can name. Only "
    "`question` and `task` are required. Complete examples: [experiments.md](../experiments.md). `hqlt schema` prints "
    "the same as a JSON Schema for editors, and `hqlt show KIND NAME` shows the documentation of one component."
)
SECTION_FORMS = {
    "arms": "A mapping of names to changes: `{vector: {model.mixer: vector}}`. An arm may also have:",
    "match": "`parameters`, `state` or `flops`; `null` removes the `match` of an extended file. Or a mapping with:",
    "tune": "A mapping of paths to lists: `{train.lr: [1e-3, 1e-4]}`. Or, instead of a list, a range:",
    "seeds": "A number (default `3`), or a list. Or, to add seeds until all comparisons are decided, a mapping with:",
    "evaluate": "A list of tasks, or a mapping with:",
}  # introduces the keys of a section that has other forms too
COMPONENT_SECTIONS = {"task": "task", "launcher": "launcher"}  # sections that are a component


def experiment_file_page() -> str:
    sections = build_json_schema()["properties"]
    lines = [EXPERIMENT_FILE_INTRODUCTION, *heading_lines(2, "Sections")]
    for name, schema in sections.items():
        lines += section_lines(name, schema)
    lines += heading_lines(2, "Components")
    lines.append("A component is its name, or a mapping with its name and options: `{name: delta, max_beta: 2}`.")
    for kind in KINDS:
        lines += component_lines(kind)
    return render_page("Experiment files, key by key", *lines)


def section_lines(name: str, schema: Schema) -> list[str]:
    """Return description, form and keys of a section."""
    lines = [*heading_lines(3, name), schema["description"]]
    if name in COMPONENT_SECTIONS:
        lines += ["", f"One of the components below: [{name}](#{name}_1).{format_default(schema, ' Default: {}.')}"]
    elif keys := section_keys(schema):
        lines += [
            *(["", SECTION_FORMS[name]] if name in SECTION_FORMS else []),
            "",
            *(line for key, key_schema in keys.items() for line in key_lines(key, key_schema)),
        ]
    else:
        lines += ["", f"Form: {format_schema_type(schema)}.{format_default(schema, ' Default: {}.')}"]
    return lines


def section_keys(schema: Schema) -> dict[str, Schema]:
    """Return the keys of a section that is a mapping, may be one, or is a mapping of names to such mappings."""
    inner = schema.get("additionalProperties")
    inner_schemas = [inner, *inner.get("oneOf", ())] if isinstance(inner, dict) else []
    schemas = [schema, *schema.get("oneOf", ()), *inner_schemas]
    return {key: key_schema for nested in schemas for key, key_schema in nested.get("properties", {}).items()}


def key_lines(name: str, schema: Schema) -> list[str]:
    return list_item(name, [format_schema_type(schema), format_default(schema, "default {}")], schema["description"])


def format_default(schema: Schema, template: str) -> str:
    """Return the template filled with the default as YAML, or "" if there is none."""
    if "default" not in schema:
        return ""
    return template.format(inline_code(format_yaml(schema["default"])))


def format_yaml(value: Any) -> str:
    return dump_yaml({"value": value}).removeprefix("value:").strip() if not isinstance(value, list) else str(value)


def format_schema_type(schema: Schema) -> str:
    """Return the allowed types or values of a schema, as text."""
    if "enum" in schema:
        return " | ".join(inline_code(format_yaml(value)) for value in schema["enum"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return format_alternatives(schema[keyword])
    kind: Any = schema.get("type", "any value")
    if isinstance(kind, list):
        return " | ".join(TYPE_NAMES.get(str(name), str(name)) for name in kind)
    if kind == "array":
        return f"list of {format_schema_type(schema['items'])}" if "items" in schema else "list"
    inner = schema.get("additionalProperties")
    if kind == "object" and isinstance(inner, dict):
        return f"mapping of names to {format_schema_type(inner)}"
    return TYPE_NAMES.get(kind, str(kind))


def format_alternatives(schemas: list[Schema]) -> str:
    """Join the alternatives; mappings with keys and options of components are documented elsewhere on the page."""
    if any("const" in schema.get("properties", {}).get("name", {}) for schema in schemas):
        allows_list = any(schema.get("type") == "array" for schema in schemas)
        return "a component, or a list of components" if allows_list else "a component"
    return " | ".join(format_schema_type(schema) for schema in schemas if "properties" not in schema)


def component_lines(kind: str) -> Iterator[str]:
    """Yield every component of a kind, with its options."""
    yield from heading_lines(3, kind)
    yield f"{KINDS[kind].summary.capitalize()}."
    for name in available(kind):
        yield from heading_lines(4, f"{kind} {name}")
        yield describe(kind, name).summary
        yield ""
        for option in options(kind, name).values():
            default = "required" if option.is_required else f"default {inline_code(format_yaml(option.default))}"
            yield from list_item(option.name, [format_type(option.type), default], option.help)
        if not options(kind, name):
            yield "No options."
