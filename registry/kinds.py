"""The kinds of parts, what each is for, where its shelf stands and what the lab hands to its makers."""

from typing import NamedTuple

from hqlt_lab.errors import RegistryError, did_you_mean, listed


class Kind(NamedTuple):
    """One axis of an ablation."""

    idea: str
    shelf: str | None  # the package whose files register the parts of this kind
    given: tuple[str, ...] = ()  # what the lab offers a maker by name; all other parameters are options
    bases: tuple[str, ...] = ()  # in the shelf's `_base`, what a class may subclass; the last has all that is asked


KINDS: dict[str, Kind] = {
    "update_rule": Kind(
        "how a token changes the fast weights",
        "hqlt_lab.components.update_rules",
        ("width", "heads"),
        ("LinearRule", "StepRule", "UpdateRule"),
    ),
    "timing": Kind("when a token enters which memory, and for how long", "hqlt_lab.components.timings"),
    "mixer": Kind(
        "how the two memories' answers become one", "hqlt_lab.components.mixers", ("width", "heads"), ("Mixer",)
    ),
    "positions": Kind(
        "how softmax knows where a token stood", "hqlt_lab.components.positions", ("width", "heads"), ("Positions",)
    ),
    "feature_map": Kind(
        "what the fast weights see of a query or a key",
        "hqlt_lab.components.feature_maps",
        ("width", "heads"),
        ("FeatureMap",),
    ),
    "task": Kind("what is learned", "hqlt_lab.tasks", bases=("Task",)),
    "launcher": Kind("who trains the cells of a study, and where", "hqlt_lab.study.launchers", ("errand",)),
}


def kind_named(kind: str) -> Kind:
    """The kind of that name, or a sentence that lists them."""
    if kind not in KINDS:
        raise RegistryError(f"No kind of part is called {kind!r}.{did_you_mean(kind, KINDS)} Kinds: {listed(KINDS)}.")
    return KINDS[kind]
