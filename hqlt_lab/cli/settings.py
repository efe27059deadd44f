"""Settings on the command line: `key=value`, the value read as YAML reads it."""

from typing import Any

from hqlt_lab.errors import ConfigError


def chosen_options(pairs: list[str]) -> dict[str, Any]:
    """['max_beta=2'] -> {'max_beta': 2}."""
    from hqlt_lab.experiment.read import parsed

    chosen = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"{pair!r}: an option is given as name=value.")
        chosen[key] = parsed(value)
    return chosen
