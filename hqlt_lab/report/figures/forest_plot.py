"""Forest plot: the difference of each arm from its baseline, with its corrected interval.

An arm is better or worse if its interval excludes 0 and its mean lies outside the margin. It is equivalent if its
interval lies within the margin. If arms are crossed with levels, each combination of levels has its own baseline and
forms its own group.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.formatting import pluralize_count
from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.figures.drawn_arms import DrawnArms
from hqlt_lab.report.figures.report_figure import ReportFigure
from hqlt_lab.report.figures.style import BLUE, FOREGROUND, GREEN, MUTED, VERMILION, create_figure, truncate_title
from hqlt_lab.report.value_formatting import join_names
from hqlt_lab.report.wording.verdicts import VERDICT_TEXTS
from hqlt_lab.stats.baseline_differences import Difference

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_ARMS = 40
VERDICT_STYLES = {
    "better": (GREEN, "^"),
    "worse": (VERMILION, "v"),
    "equivalent": (BLUE, "s"),
    "not_significant": (MUTED, "o"),
    None: (MUTED, "o"),
}
RowDifferences = list[tuple[Row, Difference]]


def forest(data: DrawnArms) -> ReportFigure | None:
    """Draw the arms from top to bottom, in the order of the file, grouped by baseline."""
    pairs = [(row, row.differences[data.metric]) for row in data.finished_rows if data.metric in row.differences]
    if not pairs:
        return None
    shown = select_clearest(pairs)
    groups: dict[ArmTitle, RowDifferences] = {}
    for row, difference in shown:
        groups.setdefault(difference.baseline, []).append((row, difference))
    lines = len(shown) + len(groups)
    figure, (panel,) = create_figure(1.2 + 0.25 * lines)
    margin: float = data.experiment.measure.margin
    if margin:
        panel.axvspan(-margin, margin, color=MUTED, alpha=0.18, linewidth=0)
    panel.axvline(0, color=FOREGROUND, linewidth=0.9)
    draw_groups(panel, groups)
    panel.set_ylim(lines - 0.4, -0.6)
    sides = ("worse", "better") if data.higher_is_better else ("better", "worse")
    panel.set_xlabel(f"← {sides[0]}  ·  paired difference  ·  {sides[1]} →")
    panel.set_title(data.metric)
    panel.grid(True, axis="x")
    caption = f"{count_verdicts(pairs)}{compose_caption(shown, margin)}{describe_omitted(pairs)}"
    return ReportFigure(name="forest", title="Paired differences from the baseline", caption=caption, figure=figure)


def select_clearest(pairs: RowDifferences) -> RowDifferences:
    """Return at most MAX_ARMS pairs in their order, preferring verdicts and large differences."""
    ranked = sorted(pairs, key=lambda pair: (pair[1].verdict in ("not_significant", None), -abs(pair[1].mean)))
    titles = {row.title for row, _ in ranked[:MAX_ARMS]}
    return [pair for pair in pairs if pair[0].title in titles]


def draw_groups(panel: "Axes", groups: dict[ArmTitle, RowDifferences]) -> None:
    """Draw each group below the name of its baseline."""
    labels: list[str] = []
    headings: set[int] = set()
    for baseline, pairs in groups.items():
        headings.add(len(labels))
        labels.append(f"baseline: {truncate_title(baseline)}")
        for row, difference in pairs:
            draw_difference(panel, len(labels), difference)
            labels.append(f"{truncate_title(row.title.drop_levels(baseline), 30)} ({difference.n})")
    panel.set_yticks(range(len(labels)), labels)
    for number, tick_label in enumerate(panel.get_yticklabels()):
        tick_label.set_fontstyle("italic" if number in headings else "normal")
    panel.tick_params(axis="y", length=0)


def draw_difference(panel: "Axes", y: int, difference: Difference) -> None:
    """Draw one arm as a point and its interval; a single pair of seeds has no interval."""
    color, marker = VERDICT_STYLES[difference.verdict]
    if difference.low is not None and difference.high is not None:
        panel.plot([difference.low, difference.high], [y, y], color=color, linewidth=2, solid_capstyle="butt")
    panel.plot([difference.mean], [y], marker=marker, color=color, markersize=7, linestyle="none")


def count_verdicts(pairs: RowDifferences) -> str:
    """Return e.g. "Of 4 differences, 3 are significantly worse and 1 is not significant. "; empty without verdicts."""
    counts = Counter(str(difference.verdict) for _, difference in pairs)
    parts = [
        f"{counts[verdict]} {'is' if counts[verdict] == 1 else 'are'} {text}"
        for verdict, text in VERDICT_TEXTS.items()
        if counts[verdict]
    ]
    return f"Of {pluralize_count(len(pairs), 'difference')}, {join_names(parts, len(parts))}. " if parts else ""


def compose_caption(pairs: RowDifferences, margin: float) -> str:
    """Return the caption: what points, intervals and colors mean."""
    confidences = sorted({round(100 * difference.confidence, 1) for _, difference in pairs})
    levels = " to ".join(f"{level:g}" for level in dict.fromkeys([confidences[0], confidences[-1]]))
    correction = "" if levels == "95" else f", corrected for multiple comparisons (Holm, {levels} % each)"
    band = f" The gray band is the margin of {margin:g}; blue square: equivalent." if margin else ""
    return (
        "Each row shows an arm's mean difference from its baseline, paired by seed (number of seeds in brackets). "
        f"Horizontal lines are 95 % confidence intervals{correction}. Green triangle up: significantly better; "
        f"red triangle down: significantly worse; gray dot: not significant.{band}"
    )


def describe_omitted(pairs: Sequence[tuple[Row, Difference]]) -> str:
    num_omitted = len(pairs) - MAX_ARMS
    return (
        f" Only the {MAX_ARMS} clearest differences are shown; {pluralize_count(num_omitted, 'arm')} omitted."
        if num_omitted > 0
        else ""
    )
