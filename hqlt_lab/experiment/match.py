"""The `match` section: what it may say, and what must not stand beside it.

match: parameters                                       or state, or flops
match: {on: parameters, by: mlp_width, within: 0.01}
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hqlt_lab.errors import ConfigError, did_you_mean, listed
from hqlt_lab.experiment.settings import BY, ON, MatchConfig
from hqlt_lab.registry import settings_from
from hqlt_lab.registry.settings import refuse


def match_of(told: Any) -> MatchConfig | None:
    """The `match` section: one word, or a mapping with `on`."""
    if told is None:
        return None
    given = {"on": told} if isinstance(told, str) else told
    if not isinstance(given, Mapping) or "on" not in given:
        raise ConfigError(
            f"match: one of {listed(ON)} is needed, or {{on: parameters, by: mlp_width, within: 0.01}}; got {told!r}."
        )
    refuse(
        [
            f"{'match' if isinstance(told, str) else f'match.{word}'}: {value!r} cannot be matched {word}."
            f"{did_you_mean(value, known)} There is: {listed(known)}."
            for word, known in (("on", ON), ("by", BY))
            if isinstance(value := given.get(word), str) and value not in known
        ]
    )
    try:
        return settings_from(MatchConfig, given)
    except ConfigError as error:
        raise ConfigError("\n".join(f"match.{line}" for line in str(error).splitlines())) from error


def conflicts(told: Mapping[str, Any], match: MatchConfig) -> Iterator[str]:
    """A sentence for every place of the file that sets what is solved, or follows it."""
    path = f"model.{match.setting}"
    arms = {f"arms.{name}": changes for name, changes in (told.get("arms") or {}).items()}
    places = arms | {word: told.get(word) for word in ("cross", "one_at_a_time", "tune")}
    for place, changes in places.items():
        if path in flat(changes):
            yield (
                f"{place}.{path}: match solves it for every arm, so that it cannot be set here. Set it in the base, "
                f"which the reference keeps{otherwise(match)}."
            )
    if f"${{{path}}}" in repr(told):
        yield f"match: some setting follows ${{{path}}}, which is solved later. Write its value instead."


def otherwise(match: MatchConfig) -> str:
    """What else could be solved; the state depends on the width alone."""
    return "" if match.on == "state" else f", or match by: {next(word for word in BY if word != match.setting)}"


def flat(changes: Any) -> dict[str, Any]:
    """Path -> value; a whole section is its settings."""
    told = changes if isinstance(changes, Mapping) else {}
    rest = {path: value for path, value in told.items() if path != "model"}
    model = told.get("model")
    return rest | ({f"model.{key}": value for key, value in model.items()} if isinstance(model, Mapping) else {})
