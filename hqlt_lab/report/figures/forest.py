"""What differs from the baseline: a point per arm with its corrected interval, and the line at no difference.

An interval that does not touch the line, and whose middle lies outside the margin, is a verdict.  Where arms are
crossed with levels, each level has its own baseline and its own group.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hqlt_lab.report.differences import Difference
from hqlt_lab.report.figures.material import Material
from hqlt_lab.report.figures.picture import Picture
from hqlt_lab.report.figures.style import FAINT, GREEN, INK, VERMILLION, cut, sheet
from hqlt_lab.report.rows import Row
from hqlt_lab.report.words import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 40
LOOKS = {"better": (GREEN, "^"), "worse": (VERMILLION, "v"), "undecided": (FAINT, "o"), None: (FAINT, "o")}
Pairs = list[tuple[Row, Difference]]


def forest(material: Material) -> Picture | None:
    """Arms from top to bottom, in the order of the file."""
    pairs = [(row, row.differences[material.metric]) for row in material.finished if material.metric in row.differences]
    if not pairs:
        return None
    shown = clearest(pairs)
    groups: dict[str, Pairs] = {}
    for row, difference in shown:
        groups.setdefault(difference.baseline, []).append((row, difference))
    lines = len(shown) + len(groups)
    figure, (panel,) = sheet(1.2 + 0.25 * lines)
    margin: float = material.experiment.measure.margin
    if margin:
        panel.axvspan(-margin, margin, color=FAINT, alpha=0.18, linewidth=0)
    panel.axvline(0, color=INK, linewidth=0.9)
    place(panel, groups)
    panel.set_ylim(lines - 0.4, -0.6)
    sides = ("worse", "better") if material.upwards else ("better", "worse")
    panel.set_xlabel(f"← {sides[0]}  ·  difference  ·  {sides[1]} →")
    panel.set_title(material.metric)
    panel.grid(True, axis="x")
    caption = told(shown, margin) + left_out(pairs)
    return Picture(name="forest", title="What differs from the baseline", caption=caption, figure=figure)


def clearest(pairs: Pairs) -> Pairs:
    """Of many, those with a verdict and the largest differences; in their order."""
    ranked = sorted(pairs, key=lambda pair: (pair[1].verdict not in ("better", "worse"), -abs(pair[1].mean)))
    kept = {row.title for row, _ in ranked[:MOST]}
    return [pair for pair in pairs if pair[0].title in kept]


def place(panel: "Axes", groups: dict[str, Pairs]) -> None:
    """Each group under the name of its baseline."""
    names: list[str] = []
    for baseline, pairs in groups.items():
        names.append(f"against {cut(baseline)}")
        for row, difference in pairs:
            draw(panel, len(names), difference)
            names.append(f"{cut(apart(row.title, baseline), 30)} ({difference.n})")
    panel.set_yticks(range(len(names)), names)
    heads = {0, *(number for number, name in enumerate(names) if name.startswith("against "))}
    for number, label in enumerate(panel.get_yticklabels()):
        label.set_fontstyle("italic" if number in heads else "normal")
    panel.tick_params(axis="y", length=0)


def apart(title: str, baseline: str) -> str:
    """An arm's title without the levels that it shares with its baseline."""
    levels = baseline.partition(", ")[2]
    return title.removesuffix(f", {levels}") if levels else title


def draw(panel: "Axes", line: int, difference: Difference) -> None:
    """One arm; a single pair of seeds has a point and no interval."""
    colour, marker = LOOKS[difference.verdict]
    if difference.low is not None and difference.high is not None:
        panel.plot([difference.low, difference.high], [line, line], color=colour, linewidth=2, solid_capstyle="butt")
    panel.plot([difference.mean], [line], marker=marker, color=colour, markersize=7, linestyle="none")


def told(pairs: Pairs, margin: float) -> str:
    """How to read it."""
    confidences = sorted({round(100 * difference.confidence, 1) for _, difference in pairs})
    levels = " to ".join(f"{level:g}" for level in dict.fromkeys([confidences[0], confidences[-1]]))
    band = f" The grey band is the margin of {margin:g}." if margin else ""
    return (
        f"Mean difference over paired seeds (their number in brackets), with intervals of {levels} % that are "
        f"corrected for the number of comparisons. Green triangles up are better, red triangles down worse, grey dots "
        f"undecided.{band}"
    )


def left_out(pairs: Sequence[tuple[Row, Difference]]) -> str:
    rest = len(pairs) - MOST
    return f" Drawn are the {MOST} clearest; {counted(rest, 'arm')} left out." if rest > 0 else ""
