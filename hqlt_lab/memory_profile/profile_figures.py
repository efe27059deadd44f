"""Figures of memory profiles: normalized scores of each test, and how they change with the length of sequences.

A dot is the mean over seeds, with a 95 % confidence interval, and a tick is one seed.  The axis begins a little below
0; scores and intervals that reach further are drawn to its edge.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hqlt_lab.formatting import pluralize_count
from hqlt_lab.memory_profile.memory_profile import MemoryProfile
from hqlt_lab.memory_profile.profile_scores import ProfileScore
from hqlt_lab.report.figures.report_figure import ReportFigure
from hqlt_lab.report.figures.style import (
    FOREGROUND,
    MARKERS,
    MUTED,
    PALETTE,
    add_legend,
    create_figure,
    style_context,
    truncate_label,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOWEST, HIGHEST = -12, 106  # limits of the axis of normalized scores
MAX_PROFILES = len(PALETTE)


def draw_profile(profile: MemoryProfile) -> ReportFigure | None:
    """Draw one profile: a dot per score, and lines over the length of sequences; None without scores."""
    scores = [score for score in profile.scores if score.mean is not None]
    if not scores:
        return None
    lines = group_by_length(scores)
    height = 1.2 + 0.26 * len(scores)
    with style_context():
        ratios = [height, 2.4] if lines else [height]
        figure, panels = create_figure(sum(ratios) + 0.3, len(ratios), height_ratios=ratios)
        draw_scores(panels[0], scores, {score.label: index for index, score in enumerate(scores)}, 0.0, 0)
        finish_score_panel(panels[0], [score.label for score in scores])
        panels[0].set_title(truncate_label(profile.name))
        if lines:
            draw_lengths(panels[1], lines)
            add_legend(figure, panels[1])
    caption = (
        "Scores normalized so that 0 is chance and 100 perfect: means over seeds with 95 % confidence intervals, and a "
        "tick for each seed. "
        "Open markers, and lengths above 1: sequences that are longer than the longest in training. "
        f"Components: {profile.composition}."
    )
    return ReportFigure(name="profile", title=f"Memory profile of {profile.name}", caption=caption, figure=figure)


def draw_comparison(profiles: Sequence[MemoryProfile]) -> ReportFigure | None:
    """Draw several profiles: one row per score, one color per profile; None without scores."""
    drawn = [profile for profile in profiles if any(score.mean is not None for score in profile.scores)]
    drawn, omitted = drawn[:MAX_PROFILES], len(drawn) - MAX_PROFILES
    if not drawn:
        return None
    labels = list(dict.fromkeys(score.label for profile in drawn for score in profile.scores if score.mean is not None))
    rows = {label: index for index, label in enumerate(labels)}
    with style_context():
        figure, (panel,) = create_figure(1.4 + 0.1 * len(drawn) + len(labels) * (0.2 + 0.08 * len(drawn)))
        for index, profile in enumerate(drawn):
            offset = 0.7 * ((index + 0.5) / len(drawn) - 0.5)
            scores = [score for score in profile.scores if score.mean is not None]
            draw_scores(panel, scores, rows, offset, index, truncate_label(profile.name))
        finish_score_panel(panel, labels)
        add_legend(figure, panel)
    note = f" {pluralize_count(omitted, 'profile')} omitted." if omitted > 0 else ""
    caption = (
        "Scores normalized so that 0 is chance and 100 perfect: means over seeds with 95 % confidence intervals, and a "
        "tick for each seed. "
        f"Open markers: sequences that are longer than in training.{note}"
    )
    return ReportFigure(name="profiles", title="Memory profiles", caption=caption, figure=figure)


def draw_scores(
    panel: "Axes", scores: Sequence[ProfileScore], rows: dict[str, int], offset: float, index: int, name: str = ""
) -> None:
    """Draw a dot and an interval for each score, in the row of its label; `index` selects color and marker."""
    color, marker = PALETTE[index % len(PALETTE)], MARKERS[index % len(MARKERS)]
    for score in scores:
        y = rows[score.label] + offset
        low, high = score.normalize(score.low), score.normalize(score.high)
        if low is not None and high is not None:
            panel.plot([low, high], [y, y], color=color, linewidth=1.6, solid_capstyle="butt")
        seeds = [max(value, LOWEST) for value in score.normalized_values]
        panel.plot(seeds, [y] * len(seeds), marker="|", color=color, markersize=9, linestyle="none")
        face = "white" if score.is_longer else color
        panel.plot([drawn_value(score)], [y], marker=marker, color=color, markerfacecolor=face, linestyle="none")
    if name:
        panel.plot([], [], marker=marker, color=color, linestyle="none", label=name)


def drawn_value(score: ProfileScore) -> float:
    """Return the normalized score, or the edge of the axis if it is below."""
    return max(score.normalized or 0.0, LOWEST)


def finish_score_panel(panel: "Axes", labels: Sequence[str]) -> None:
    """Label the rows and mark chance and a perfect score."""
    for value in (0, 100):
        panel.axvline(value, color=FOREGROUND if value == 0 else MUTED, linewidth=0.9, zorder=0)
    panel.set_xlim(LOWEST, HIGHEST)
    panel.set_ylim(len(labels) - 0.4, -0.6)
    panel.set_yticks(range(len(labels)), [truncate_label(label) for label in labels])
    panel.tick_params(axis="y", length=0)
    panel.set_xlabel("normalized score (0: chance, 100: perfect)")
    panel.grid(True, axis="x")


def group_by_length(scores: Sequence[ProfileScore]) -> dict[str, list[ProfileScore]]:
    """Return the scores of each test that was run at several lengths, shortest first."""
    by_test: dict[str, list[ProfileScore]] = {}
    for score in scores:
        if score.relative_length is not None:
            by_test.setdefault(score.test, []).append(score)
    lines = {test: sorted(entries, key=lambda score: score.lengths or ()) for test, entries in by_test.items()}
    return {test: entries for test, entries in lines.items() if len(entries) > 1}


def draw_lengths(panel: "Axes", lines: dict[str, list[ProfileScore]]) -> None:
    """Draw the score of each test over the length of its sequences, relative to the longest in training."""
    panel.axvspan(0.5, 1, color=MUTED, alpha=0.18, linewidth=0)
    for index, (test, scores) in enumerate(lines.items()):
        x, y = [score.relative_length or math.nan for score in scores], [drawn_value(score) for score in scores]
        color, marker = PALETTE[index % len(PALETTE)], MARKERS[index % len(MARKERS)]
        panel.plot(x, y, color=color, marker=marker, label=test.replace("_", " "))
    ticks = sorted({round(score.relative_length or 0, 1) for scores in lines.values() for score in scores})
    panel.set_xscale("log", base=2)
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.minorticks_off()
    panel.set_xlim(0.8, max(ticks) * 1.15)
    panel.set_ylim(LOWEST, HIGHEST)
    panel.set(xlabel="test length / training length", ylabel="normalized score")
    panel.grid(True, axis="y")
