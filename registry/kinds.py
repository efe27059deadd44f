"""The kinds of components: purpose, package of the built-in ones, arguments that the lab provides, base classes."""

from typing import NamedTuple

from hqlt_lab.errors import RegistryError, did_you_mean, format_names, join_sentences


class Kind(NamedTuple):
    """A kind of interchangeable component, such as update rules or mixers: one axis of an ablation."""

    summary: str
    package: str | None  # the package whose modules register the built-in components
    provided: tuple[str, ...] = ()  # arguments that the lab passes to a factory by name; all other ones are options
    # classes in `package`._base that a component may subclass; the last one declares all required methods
    base_classes: tuple[str, ...] = ()


KINDS: dict[str, Kind] = {
    "update_rule": Kind(
        "how a token updates the fast weights",
        "hqlt_lab.components.update_rules",
        ("width", "heads", "key_dim", "value_dim"),
        ("LinearRule", "StepRule", "UpdateRule"),
    ),
    "attention": Kind(
        "how softmax reads the tokens of its window",
        "hqlt_lab.components.attention",
        ("width", "heads", "key_dim", "value_dim"),
        ("Attention",),
    ),
    "timing": Kind("when a token enters which memory, and for how long", "hqlt_lab.components.timings"),
    "mixer": Kind(
        "how the outputs of the two memories are combined",
        "hqlt_lab.components.mixers",
        ("width", "heads", "value_dim"),
        ("Mixer",),
    ),
    "positions": Kind(
        "how softmax attention encodes token positions",
        "hqlt_lab.components.positions",
        ("width", "heads", "key_dim"),
        ("Positions",),
    ),
    "feature_map": Kind(
        "the map applied to queries and keys before the fast weights",
        "hqlt_lab.components.feature_maps",
        ("width", "heads", "key_dim"),
        ("FeatureMap",),
    ),
    "task": Kind("what the model is trained on", "hqlt_lab.tasks", base_classes=("Task",)),
    "launcher": Kind(
        "where the cells of a study are trained, and with which resources", "hqlt_lab.study.launchers", ("context",)
    ),
}


def get_kind(name: str) -> Kind:
    """Return the kind of that name. Raise RegistryError with the list of kinds if there is none."""
    if name not in KINDS:
        raise RegistryError.at(
            "kind",
            "unknown_kind",
            f"no kind of component is called {name!r}.",
            join_sentences(did_you_mean(name, KINDS), f"Kinds: {format_names(KINDS)}."),
        )
    return KINDS[name]
