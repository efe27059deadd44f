"""Tables beside the main one: the effects of a grid, and what explains the variance."""

from collections.abc import Mapping, Sequence

from hqlt_lab.report.effects import Effect
from hqlt_lab.report.table import Table
from hqlt_lab.report.words import chance, signed

MOST = 40  # interactions that are shown, the surest first


def effects_table(effects: Sequence[Effect], metric: str) -> Table:
    """Main effects as the file orders them, then interactions."""
    mains = [effect for effect in effects if len(effect.levels) == 1]
    pairs = sorted((effect for effect in effects if len(effect.levels) > 1), key=surest)
    notes = [
        f"{metric}: each level against the first of its factor, averaged over all other factors, within each seed; "
        "t-intervals corrected by Holm's method. An interaction is how much the one effect changes with the other."
    ]
    if len(pairs) > MOST:
        notes.append(f"{len(pairs) - MOST} interactions with a larger p are left out.")
    columns = ["effect", "against", "seeds", "difference [95 %]", "p", "0 excluded"]
    return Table(columns, [line_of(effect, metric) for effect in [*mains, *pairs[:MOST]]], notes)


def surest(effect: Effect) -> float:
    return 1.0 if effect.p is None else effect.p


def line_of(effect: Effect, metric: str) -> list[str]:
    known = effect.low is not None and effect.high is not None
    reach = f" [{signed(effect.low, metric)}, {signed(effect.high, metric)}]" if known else ""
    excluded = known and not effect.low <= 0 <= effect.high  # type: ignore[operator]
    return [
        " × ".join(effect.levels),
        " × ".join(effect.against),
        str(effect.n),
        signed(effect.mean, metric) + reach,
        chance(effect.p),
        "yes" if excluded else "",
    ]


def importance_table(importance: Mapping[str, Mapping[str, float]], select: str) -> Table:
    """A line per arm, a column per hyper-parameter."""
    paths = list(dict.fromkeys(path for each in importance.values() for path in each))
    rows = [
        [arm, *(f"{100 * each[path]:.0f} %" if path in each else "" for path in paths)]
        for arm, each in importance.items()
    ]
    note = f"Functional ANOVA of {select} over all finished cells: how much of its variance each one explains alone."
    return Table(["of", *paths], rows, [note])
