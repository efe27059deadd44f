"""Values per layer, written as one value, a list or a pattern.  This module does not import torch.

    a                                           every layer has a
    [a, b]                                      the list repeats over the layers: a, b, a, b, ...
    {repeat: [[a, 3], [b, 1]]}                  the same as [a, a, a, b]
    {default: a, at: {0: b, -1: b}}             a, and b in the first and in the last layer

A value is a component or the name of an MLP.  Patterns are expanded to lists when settings are read, so a pattern and
the list that it stands for are the same model, with the same cell key.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hqlt_lab.errors import ConfigIssue

PATTERN_KEYS = ("repeat", "default", "at")


def is_pattern(value: Any) -> bool:
    """Return whether a setting is a pattern; a mapping with a name is a component."""
    return isinstance(value, Mapping) and "name" not in value and any(key in value for key in PATTERN_KEYS)


def iter_layer_values(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each value that a setting gives to layers, with its path inside the setting, such as ".at.0" or "[1]"."""
    if isinstance(value, list):
        yield from ((f"[{index}]", entry) for index, entry in enumerate(value))
    elif not is_pattern(value):
        yield "", value
    else:
        runs = value.get("repeat", [])
        for index, run in enumerate(runs if isinstance(runs, list) else []):
            if is_run(run):
                yield f".repeat[{index}][0]", run[0]
        if "default" in value:
            yield ".default", value["default"]
        exceptions = value.get("at", {})
        if isinstance(exceptions, Mapping):
            yield from ((f".at.{layer}", entry) for layer, entry in exceptions.items())


def find_form_issues(name: str, value: Any) -> list[ConfigIssue]:
    """Return what is wrong with the form of a pattern, whatever the number of layers is."""
    if not is_pattern(value):
        return []
    issues = [
        ConfigIssue(f"{name}.{key}", "invalid_layer_pattern", f"a pattern has no {key!r}.", FORM_HINT)
        for key in value
        if key not in PATTERN_KEYS
    ]
    if "repeat" in value and len(value) > len(issues) + 1:
        message = "repeat cannot be combined with default and at."
        return [*issues, ConfigIssue(name, "invalid_layer_pattern", message, FORM_HINT)]
    if "repeat" in value:
        return issues + find_run_issues(f"{name}.repeat", value["repeat"])
    if "default" not in value:
        message = "a pattern with exceptions needs a default for the other layers."
        issues.append(ConfigIssue(name, "invalid_layer_pattern", message, FORM_HINT))
    return issues + find_exception_issues(f"{name}.at", value.get("at"))


FORM_HINT = "Write {repeat: [[a, 3], [b, 1]]}, or {default: a, at: {0: b, -1: b}}."


def find_run_issues(path: str, runs: Any) -> list[ConfigIssue]:
    """Return what is wrong with the entries of `repeat`."""
    if not isinstance(runs, list) or not runs:
        message = f"a list of [value, number of layers] is needed, got {runs!r}."
        return [ConfigIssue(path, "invalid_layer_pattern", message, FORM_HINT)]
    return [
        ConfigIssue(
            f"{path}[{index}]",
            "invalid_layer_pattern",
            f"a value and its number of layers are needed, at least 1, got {run!r}.",
            FORM_HINT,
        )
        for index, run in enumerate(runs)
        if not is_run(run)
    ]


def is_run(run: Any) -> bool:
    """Return whether an entry of `repeat` is a value with a number of layers."""
    return isinstance(run, list) and len(run) == 2 and type(run[1]) is int and run[1] >= 1


def find_exception_issues(path: str, exceptions: Any) -> list[ConfigIssue]:
    """Return what is wrong with the entries of `at`."""
    if not isinstance(exceptions, Mapping):
        message = f"a mapping of layer numbers to values is needed, got {exceptions!r}."
        return [ConfigIssue(path, "invalid_layer_pattern", message, FORM_HINT)]
    message = "a layer number is needed: 0 is the first layer, -1 the last."
    return [
        ConfigIssue(f"{path}.{layer}", "invalid_layer_pattern", message)
        for layer in exceptions
        if layer_number(layer) is None
    ]


def layer_number(key: Any) -> int | None:
    """Return the layer that a key of `at` names, None if it is not a number.  Keys of JSON files are strings."""
    if type(key) is int:
        return key
    digits = key.removeprefix("-") if isinstance(key, str) else ""
    return int(key) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None


def find_layer_issues(name: str, value: Any, layers: int) -> list[ConfigIssue]:
    """Return what is wrong with a list or a well-formed pattern for a model with this number of layers."""
    if isinstance(value, list):
        if value and layers % len(value) == 0:
            return []
        message = f"a list of {len(value)} components does not repeat evenly over {layers} layers."
        return [ConfigIssue(name, "layers_not_divisible", message)]
    if not is_pattern(value):
        return []
    if "repeat" in value:
        period = sum(count for _, count in value["repeat"])
        message = f"a pattern of {period} layers does not repeat evenly over {layers} layers."
        return [ConfigIssue(f"{name}.repeat", "layers_not_divisible", message)] if layers % period else []
    return list(iter_exception_issues(f"{name}.at", value["at"], layers))


def iter_exception_issues(path: str, exceptions: Mapping[Any, Any], layers: int) -> Iterator[ConfigIssue]:
    """Yield one issue for each layer that does not exist or has two values."""
    values: dict[int, Any] = {}
    for key, value in exceptions.items():
        number = layer_number(key)
        assert number is not None
        if not -layers <= number < layers:
            message = f"there is no layer {number}: the layers are 0 to {layers - 1}, or -{layers} to -1 from the end."
            yield ConfigIssue(f"{path}.{key}", "layer_out_of_range", message)
        elif values.setdefault(number % layers, value) != value:
            message = f"layer {number % layers} of {layers} is set twice, to different values."
            yield ConfigIssue(f"{path}.{key}", "layer_set_twice", message, "Numbers below 0 count from the last layer.")


def expand_layers(value: Any, layers: int) -> Any:
    """Return a valid pattern as the list that it stands for, and any other setting as it is."""
    if not is_pattern(value):
        return value
    if "repeat" in value:
        return [entry for entry, count in value["repeat"] for _ in range(count)]
    exceptions = {(layer_number(key) or 0) % layers: entry for key, entry in value["at"].items()}
    return [exceptions.get(layer, value["default"]) for layer in range(layers)]


def layer_value(value: Any, layer: int) -> Any:
    """Return the value of a setting in a layer; a list repeats over the layers."""
    return value[layer % len(value)] if isinstance(value, list) else value


def expand_all_layers(value: Any, layers: int) -> list[Any]:
    """Return the value of a valid setting in each layer."""
    expanded = expand_layers(value, layers)
    return [layer_value(expanded, layer) for layer in range(layers)]


def format_pattern(pattern: Mapping[str, Any]) -> str:
    """Return a pattern as one line of text, such as "fw_only*3 + kv_only*1" or "fw_only(0=kv_only)"."""
    if isinstance(runs := pattern.get("repeat"), list):
        return " + ".join(f"{run[0]}*{run[1]}" if is_run(run) else str(run) for run in runs)
    exceptions = pattern.get("at")
    pairs = exceptions.items() if isinstance(exceptions, Mapping) else []
    return f"{pattern.get('default')}({','.join(f'{layer}={value}' for layer, value in pairs)})"
