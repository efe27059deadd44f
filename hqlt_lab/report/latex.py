r"""The table for a paper: booktabs, the best of each column in bold, what was published beside what was found.

    arm & seeds & ours & solved & published & difference & parameters & state & FLOPs/token & tokens/s \\

with a head over the columns of each metric, and one over what an arm costs.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.settings import MeasureConfig
from hqlt_lab.report.latex_cells import bold, difference, escaped, ours, solved
from hqlt_lab.report.rows import Row, reported
from hqlt_lab.report.table import costs, published

PACKAGES = "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}; letters beyond Latin need XeLaTeX or LuaLaTeX"
LONG = 45  # rows that a page holds; more go on over pages
SHRUNK = "% needs \\usepackage{graphicx}"
SHRINK = "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"
PAGES = "% needs \\usepackage{longtable}"
VERDICTS = (
    "Difference to the baseline over paired seeds, with its corrected interval: $^{+}$ better, $^{-}$ worse, "
    "$^{\\circ}$ undecided."
)


def latex(experiment: Experiment, rows: Sequence[Row], notes: Sequence[str]) -> str:
    """A table environment; one that goes over pages where it must."""
    metrics = reported(experiment.measure)
    columns = {"": told_in({"seeds": ["" if row.quoted else str(len(row.done)) for row in rows]})}
    columns |= {metric: columns_of(rows, metric, experiment.measure) for metric in metrics}
    columns |= {"cost": told_in(costs(rows))}
    columns = {metric: of_metric for metric, of_metric in columns.items() if of_metric}
    told = [escaped(note) for note in notes if not note.startswith("p (")]  # it has no such columns
    told += [VERDICTS] if any(one.verdict for row in rows for one in row.differences.values()) else []
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
    """The columns' names; above them the metrics, each over its columns, if there are any."""
    names = [name for of_metric in columns.values() for name in of_metric]
    if not any(columns):
        return [line("arm", *names)]
    above = ["", *(f"\\multicolumn{{{len(one)}}}{{c}}{{{escaped(metric)}}}" for metric, one in columns.items())]
    ends = list(itertools.accumulate(map(len, columns.values()), initial=1))
    spans = zip(columns, itertools.pairwise(ends), strict=True)
    rules = [f"\\cmidrule(lr){{{before + 1}-{end}}}" for over, (before, end) in spans if over]
    return [" & ".join(above) + r" \\", " ".join(rules), line("arm", *names)]


def columns_of(rows: Sequence[Row], metric: str, measure: MeasureConfig) -> dict[str, list[str]]:
    """Of one metric, without those that say nothing."""
    statistic, way = measure.statistic, measure.way(metric)
    values = [getattr(row.summaries.get(metric), statistic, None) for row in rows]
    papers = [row.published.get(metric, {}) for row in rows]
    theirs = [one.get(statistic) for one in papers]
    differences = [row.differences.get(metric) for row in rows]
    texts = [ours(row.summaries.get(metric), metric, statistic) for row in rows]
    made = {
        statistic: bold(texts, values, way, metric),
        "solved": [solved(row.summaries.get(metric)) for row in rows],
        "published": bold([escaped(published(one, metric)) for one in papers], theirs, way, metric),
        "difference": [difference(one, metric) for one in differences],
    }
    return told_in(made)


def told_in(columns: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Without those that say nothing."""
    return {name: cells for name, cells in columns.items() if any(cells)}


def cells_of(columns: Mapping[str, Mapping[str, list[str]]]) -> list[list[str]]:
    return [cells for of_metric in columns.values() for cells in of_metric.values()]


def arm_names(rows: Sequence[Row]) -> list[str]:
    return [escaped(row.title) for row in rows]


def line(*cells: str) -> str:
    return " & ".join(cells) + r" \\"
