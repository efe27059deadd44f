"""The comparisons with the baseline in words: who is better, who is worse, and what is not known yet."""

from collections.abc import Sequence

from hqlt_lab.experiment.settings import MeasureConfig
from hqlt_lab.report.differences import Difference
from hqlt_lab.report.rows import Row, reported
from hqlt_lab.report.words import between, counted, joined, signed, spoken

MANY = 6  # with more comparisons, only those with a verdict are named


def verdict(rows: Sequence[Row], measure: MeasureConfig) -> str:
    """A sentence or two; nothing where nothing is compared."""
    metric = reported(measure)[0]
    found = {spoken(row.title): row.differences[metric] for row in rows if metric in row.differences}
    if not found:
        return ""
    judged = {title: one for title, one in found.items() if one.verdict}
    if not judged:
        return "One seed gives no verdict: another seed may turn the order around."
    unjudged = f" {joined([title for title in found if title not in judged], MANY)}: one seed gives no verdict."
    told = each(judged, metric) if len(judged) <= MANY else in_groups(judged)
    return told + (unjudged if len(judged) < len(found) else "")


def each(found: dict[str, Difference], metric: str) -> str:
    """Against synchronous, in the mean of 3 paired seeds: delayed_stream is worse: -96.2 [-98.4, -94.0]; ..."""
    baselines = list(dict.fromkeys(one.baseline for one in found.values()))
    seeds = between(min(one.n for one in found.values()), max(one.n for one in found.values()))
    against = spoken(baselines[0]) if len(baselines) == 1 else "their baselines"
    told = [f"{title} is {saying(one, metric)}" for title, one in found.items()]
    return f"Against {against}, in the mean of {seeds} paired seeds: {'; '.join(told)}."


def saying(one: Difference, metric: str) -> str:
    """worse: -96.2 [-98.4, -94.0]; undecided at +0.3 [-2.0, +2.6] (about 40 seeds would decide)"""
    size = f"{signed(one.mean, metric)} [{signed(one.low, metric)}, {signed(one.high, metric)}]"
    if one.verdict != "undecided":
        return f"{one.verdict}: {size}"
    why = f"about {one.needed} seeds would decide" if one.needed else one.why
    return f"undecided at {size}" + (f" ({why})" if why else "")


def in_groups(found: dict[str, Difference]) -> str:
    """Of 12 comparisons with a baseline: 2 are better (a and b), 3 worse (c, d and e), 7 undecided."""
    groups = {word: [title for title, one in found.items() if one.verdict == word] for word in ("better", "worse")}
    told = [f"{len(titles)} {word} ({joined(titles, MANY)})" for word, titles in groups.items() if titles]
    undecided = sum(one.verdict == "undecided" for one in found.values())
    told += [f"{undecided} undecided"] if undecided else []
    return f"Of {counted(len(found), 'comparison')} with a baseline, paired by seed: {', '.join(told)}."
