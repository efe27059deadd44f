"""From a name and options, as YAML gives them, to the part itself."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from hqlt_lab.errors import HqltError, RegistryError, did_you_mean, listed
from hqlt_lab.registry.entries import canonical, find
from hqlt_lab.registry.kinds import KINDS
from hqlt_lab.registry.options import fits, options, parameters, rewritten, spelled

Spec = str | Mapping[str, Any]  # "delta", or {"name": "delta", "max_beta": 2}


def split(kind: str, spec: Spec, at: str | None = None) -> tuple[str, dict[str, Any]]:
    """The name and the options of a part, checked against its signature; every mistake in one message."""
    at = at or kind
    if isinstance(spec, Mapping):
        chosen = {str(key): value for key, value in spec.items()}
        if "name" not in chosen:
            raise RegistryError(
                f"{at}: a {kind} is given by its name, or as {{name: ..., option: ...}}; got {dict(spec)}."
            )
        name = chosen.pop("name")
    else:
        name, chosen = spec, {}
    find(kind, name, at)
    if complaints := mistakes(kind, name, chosen, at):
        raise RegistryError("\n".join(complaints))
    return canonical(name), chosen


def mistakes(kind: str, name: str, chosen: Mapping[str, Any], at: str) -> list[str]:
    """What is wrong with these options, a sentence each."""
    known = options(kind, name, at)
    found = [
        f"{at}: {kind} {name!r} has no option {key!r}.{did_you_mean(key, known)} Options: {listed(known)}."
        for key in chosen
        if key not in known
    ]
    found += [
        f"{at}.{key}: {kind} {name!r} takes {spelled(known[key].type)} here, got {value!r}."
        f"{rewritten(value, known[key].type)}"
        for key, value in chosen.items()
        if key in known and not fits(value, known[key].type)
    ]
    return found + [
        f"{at}: {kind} {name!r} needs the option {option.name!r} ({spelled(option.type)}).{handed_over(kind)}"
        for option in known.values()
        if option.required and option.name not in chosen
    ]


def handed_over(kind: str) -> str:
    """What a maker may name without its being an option, in a sentence."""
    given = KINDS[kind].given
    return f" (What the lab hands to every {kind} that names it: {listed(given)}.)" if given else ""


def check_class(kind: str, name: str, maker: Callable[..., Any], at: str) -> None:
    """A class that lacks what the lab asks of its kind is told which one to subclass; a function may make anything."""
    bases, place = KINDS[kind].bases, f"{KINDS[kind].shelf}._base"
    if not inspect.isclass(maker) or not bases:
        return
    asked = vars(getattr(importlib.import_module(place), bases[-1]))
    if lacks := [each for each in asked if not each.startswith("_") and not hasattr(maker, each)]:
        raise RegistryError(
            f"{at}: {kind} {name!r} is the class {maker.__name__}, which has no {' or '.join(lacks[:2])}. "
            f"Subclass {' or '.join(bases)}: from {place} import {bases[0]}"
        )


def build(kind: str, spec: Spec, at: str | None = None, **given: Any) -> Any:
    """Make the part; of what is `given` (width, heads, ...) it receives what its signature names."""
    at = at or kind
    name, chosen = split(kind, spec, at)
    maker = find(kind, name)
    check_class(kind, name, maker, at)
    asked = [key for key in parameters(maker) if key in KINDS[kind].given]
    if missing := [key for key in asked if key not in given and parameters(maker)[key].required]:
        raise RegistryError(f"{at}: {kind} {name!r} asks for {listed(missing)}, which was not given here.")
    try:
        return maker(**chosen, **{key: given[key] for key in asked if key in given})
    except HqltError as error:
        # a part's own complaints ("window: at least 1 is needed"), a line each, gain the place where they were written
        raise type(error)("\n".join(f"{at}.{line}" for line in str(error).splitlines())) from error
