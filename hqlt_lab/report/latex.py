r"""The table for a paper: booktabs, the best of each column in bold, what was published beside what was found.

    arm & ours & published & difference \\        under a head for each metric, where there are several

Whatever the user wrote is shown, not obeyed: every character that LaTeX knows is escaped.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.settings import MeasureConfig
from hqlt_lab.report.differences import Difference
from hqlt_lab.report.rows import Row, reported
from hqlt_lab.report.statistics import Summary
from hqlt_lab.report.words import shown

PACKAGES = "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}; letters beyond Latin need XeLaTeX or LuaLaTeX"
LONG = 45  # rows that a page holds; more go on over pages
SHRUNK = "% needs \\usepackage{graphicx}"
SHRINK = "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"
PAGES = "% needs \\usepackage{longtable}"
ESCAPES = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "[": "{[}", "]": "{]}", "±": r"$\pm$", "-": "-{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}  # fmt: skip
MARKS = {"better": "$^{+}$", "worse": "$^{-}$", "undecided": "$^{\\circ}$", None: ""}
VERDICTS = (
    "Difference to the baseline over paired seeds, with its corrected interval: $^{+}$ better, $^{-}$ worse, "
    "$^{\\circ}$ undecided."
)


def latex(experiment: Experiment, rows: Sequence[Row], notes: Sequence[str]) -> str:
    """A table environment; one that goes over pages where it must."""
    metrics = reported(experiment.measure)
    columns = {metric: columns_of(rows, metric, experiment.measure) for metric in metrics}
    columns = {metric: of_metric for metric, of_metric in columns.items() if of_metric}
    told = [*map(escaped, notes), *([VERDICTS] if any("difference" in one for one in columns.values()) else [])]
    heads = heads_of(columns)
    body = [line(*cells) for cells in zip(arm_names(rows), *cells_of(columns), strict=True)]
    ours = sum(not row.quoted for row in rows)
    body = [*body[:ours], *(["\\midrule", *body[ours:]] if 0 < ours < len(rows) else body[ours:])]
    places = "l" + "r" * sum(map(len, columns.values()))
    make = pages if len(rows) > LONG else floating
    return "\n".join(make(experiment.question, places, heads, body, told)) + "\n"


def floating(question: str, places: str, heads: Sequence[str], body: Sequence[str], notes: Sequence[str]) -> list[str]:
    """On one page, wherever LaTeX finds room; smaller where it would be wider than the text."""
    caption, begin = f"\\caption{{{escaped(question)}}}", f"\\begin{{tabular}}{{{places}}}"
    return [
        PACKAGES, SHRUNK, "\\begin{table}", "\\centering", caption, SHRINK, begin, "\\toprule", *heads, "\\midrule",
        *body, "\\bottomrule", "\\end{tabular}}", *small(notes), "\\end{table}",
    ]  # fmt: skip


def pages(question: str, places: str, heads: Sequence[str], body: Sequence[str], notes: Sequence[str]) -> list[str]:
    """As long as it is, with its head on every page."""
    return [
        PACKAGES, PAGES, f"\\begin{{longtable}}{{{places}}}", f"\\caption{{{escaped(question)}}} \\\\",
        "\\toprule", *heads, "\\midrule", "\\endhead", *body, "\\bottomrule", "\\end{longtable}", *small(notes),
    ]  # fmt: skip


def small(notes: Sequence[str]) -> list[str]:
    return ["", f"{{\\footnotesize {' '.join(notes)}\\par}}"] if notes else []


def heads_of(columns: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The columns' names; above them the metrics, each over its columns."""
    names = [name for of_metric in columns.values() for name in of_metric]
    above = ["", *(f"\\multicolumn{{{len(one)}}}{{c}}{{{escaped(metric)}}}" for metric, one in columns.items())]
    ends = list(itertools.accumulate(map(len, columns.values()), initial=1))
    rules = [f"\\cmidrule(lr){{{before + 1}-{end}}}" for before, end in itertools.pairwise(ends)]
    return [" & ".join(above) + r" \\", " ".join(rules), line("arm", *names)]


def columns_of(rows: Sequence[Row], metric: str, measure: MeasureConfig) -> dict[str, list[str]]:
    """Of one metric, without those that say nothing."""
    statistic, way = measure.statistic, measure.way(metric)
    values = [getattr(row.summaries.get(metric), statistic, None) for row in rows]
    published = [row.published.get(metric, {}) for row in rows]
    theirs = [one.get(statistic) for one in published]
    differences = [row.differences.get(metric) for row in rows]
    texts = [ours(row.summaries.get(metric), metric, statistic) for row in rows]
    made = {
        statistic: bold(texts, values, way, metric),
        "published": bold([of_paper(one, metric) for one in published], theirs, way, metric),
        "difference": [difference(one, metric) for one in differences],
    }
    return {name: cells for name, cells in made.items() if any(cells)}


def ours(summary: Summary | None, metric: str, statistic: str) -> str:
    """99.7 ± 0.1 (median), 99.6 [99.1, 100.1] (mean), 100.0 (best)"""
    if summary is None:
        return ""
    value = number(getattr(summary, statistic), metric)
    if statistic == "mean" and summary.low is not None:
        return f"{value} {{[}}{number(summary.low, metric)}, {number(summary.high, metric)}{{]}}"
    return f"{value} $\\pm$ {number(summary.mad, metric)}" if statistic == "median" and summary.n > 1 else value


def of_paper(values: Mapping[str, Any], metric: str) -> str:
    """99.7 ± 0.1, best 100.0"""
    told = {word: number(value, metric) for word, value in values.items()}
    spread = told.pop("mad", "") if "median" in told else ""
    middle = told.pop("median", "") + (f" $\\pm$ {spread}" if spread else "")
    return ", ".join([*filter(None, [middle]), *(f"{escaped(word)} {value}" for word, value in told.items())])


def difference(found: Difference | None, metric: str) -> str:
    """-3.1 [-4.0, -2.2] with its mark"""
    if found is None:
        return ""
    reach = "" if found.low is None else f" {{[}}{number(found.low, metric)}, {number(found.high, metric)}{{]}}"
    return f"{number(found.mean, metric)}{reach}{MARKS[found.verdict]}"


def number(value: Any, metric: str) -> str:
    """With a minus that is one."""
    text = escaped(shown(value, metric))
    return f"$-${text[3:]}" if text.startswith("-{}") else text


def bold(texts: Sequence[str], values: Sequence[float | None], way: str, metric: str) -> list[str]:
    """The best of several, and all that look equal to it."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return list(texts)
    choose: Callable[[list[float]], float] = max if way == "maximize" else min
    best = shown(choose(known), metric)
    return [
        f"\\textbf{{{text}}}" if value is not None and shown(value, metric) == best else text
        for text, value in zip(texts, values, strict=True)
    ]


def cells_of(columns: Mapping[str, Mapping[str, list[str]]]) -> list[list[str]]:
    return [cells for of_metric in columns.values() for cells in of_metric.values()]


def arm_names(rows: Sequence[Row]) -> list[str]:
    return [escaped(row.title) for row in rows]


def line(*cells: str) -> str:
    return " & ".join(cells) + r" \\"


def escaped(text: str) -> str:
    """On one line, as it is read."""
    return " ".join("".join(ESCAPES.get(letter, letter) for letter in text).split())
