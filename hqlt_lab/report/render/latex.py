"""Render the results table for a paper: booktabs, the best of each column in bold, published values beside ours.

    arm & seeds & median & solved & published & paired difference & parameters & state & FLOPs/token & tokens/s \\

with a heading over the columns of each metric, and one over the columns of cost. The tables of tuned values and of
steps to solve follow it, each in an environment of its own. User text is escaped.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.report.arm_rows import Row, reported_metrics
from hqlt_lab.report.build_tables import Table, cost_columns, format_published
from hqlt_lab.report.stats.summary import Summary
from hqlt_lab.report.value_formatting import format_rounded, format_signed
from hqlt_lab.stats.baseline_differences import Difference

LATEX_ESCAPES = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "[": "{[}", "]": "{]}", "±": r"$\pm$", "-": "-{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
}  # fmt: skip
STATISTIC_COLUMNS = {"median": "median ± MAD", "mean": "mean [95 % CI]"}
VERDICT_MARKS = {
    "better": "$^{+}$", "worse": "$^{-}$", "equivalent": "$^{=}$", "not_significant": "$^{\\circ}$", None: "",
}  # fmt: skip


def format_summary(summary: Summary | None, metric: str, statistic: str) -> str:
    """Return the statistic of a summary, with MAD for a median and with the interval for a mean.

    A single seed has the interval over test examples, if known.
    """
    if summary is None:
        return ""
    value = format_latex_number(getattr(summary, statistic), metric)
    if (statistic == "mean" or summary.interval_over == "examples") and summary.low is not None:
        return (
            f"{value} {{[}}{format_latex_number(summary.low, metric)}, {format_latex_number(summary.high, metric)}{{]}}"
        )
    return (
        f"{value} $\\pm$ {format_latex_number(summary.mad, metric)}"
        if statistic == "median" and summary.n > 1
        else value
    )


def solved_cell(summary: Summary | None) -> str:
    """Return solved and total seeds, e.g. "3/3"."""
    return "" if summary is None or summary.solved is None else "{}/{}".format(*summary.solved)


def difference_cell(difference: Difference | None, metric: str) -> str:
    """Return the difference with its interval and the mark of its verdict, e.g. "+3.1 [+2.2, +4.0]"."""
    if difference is None:
        return ""
    mean, low, high = (
        format_latex_number(value, metric, format_signed)
        for value in (difference.mean, difference.low, difference.high)
    )
    return f"{mean}{'' if difference.low is None else f' {{[}}{low}, {high}{{]}}'}{VERDICT_MARKS[difference.verdict]}"


def format_latex_number(value: Any, metric: str, formatter: Callable[[Any, str], str] = format_rounded) -> str:
    """Return an escaped number with a typographic minus sign."""
    text = escape_latex(formatter(value, metric))
    return f"$-${text[3:]}" if text.startswith("-{}") else text


def bold_best(texts: Sequence[str], values: Sequence[float | None], direction: str, metric: str) -> list[str]:
    """Set the best value, and all that are equal after rounding, in bold; unchanged with fewer than two values."""
    present = [value for value in values if value is not None]
    if len(present) < 2:
        return list(texts)
    select: Callable[[list[float]], float] = max if direction == "maximize" else min
    best = format_rounded(select(present), metric)
    return [
        f"\\textbf{{{text}}}" if value is not None and format_rounded(value, metric) == best else text
        for text, value in zip(texts, values, strict=True)
    ]


def escape_latex(text: str) -> str:
    """Return text on one line, with LaTeX special characters escaped."""
    return " ".join("".join(LATEX_ESCAPES.get(char, char) for char in text).split())


PACKAGES_COMMENT = (
    "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}; letters beyond Latin need XeLaTeX or LuaLaTeX"
)
MAX_FLOATING_ROWS = 45  # longer tables use longtable, which spans pages
GRAPHICX_COMMENT = "% needs \\usepackage{graphicx}"
RESIZE_COMMAND = "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"
LONGTABLE_COMMENT = "% needs \\usepackage{longtable}"
VERDICT_LEGEND = (
    "Verdicts: $^{+}$ significantly better than the baseline, $^{-}$ significantly worse, $^{=}$ equivalent, "
    "$^{\\circ}$ not significant."
)


def render_latex(experiment: Experiment, rows: Sequence[Row], notes: Sequence[str]) -> str:
    """Render a table environment, or a longtable if there are many rows."""
    metrics = reported_metrics(experiment.measure)
    columns = {
        "": drop_empty_columns({"seeds": ["" if row.is_quoted else str(len(row.finished_records)) for row in rows]})
    }
    columns |= {metric: latex_metric_columns(rows, metric, experiment.measure) for metric in metrics}
    columns |= {"cost": drop_empty_columns(cost_columns(rows))}
    columns = {heading: group for heading, group in columns.items() if group}
    footnotes = [escape_latex(note) for note in notes]
    has_verdict = any(difference.verdict for row in rows for difference in row.differences.values())
    footnotes += [VERDICT_LEGEND] if has_verdict else []
    header = header_lines(columns)
    body = [latex_row(*cells) for cells in zip(arm_title_cells(rows), *flatten_columns(columns), strict=True)]
    num_arms = sum(not row.is_quoted for row in rows)
    body = [*body[:num_arms], *(["\\midrule", *body[num_arms:]] if 0 < num_arms < len(rows) else body[num_arms:])]
    column_spec = "l" + "r" * sum(map(len, columns.values()))
    environment = longtable_environment if len(rows) > MAX_FLOATING_ROWS else table_environment
    return "\n".join(environment(experiment.question, column_spec, header, body, footnotes)) + "\n"


def render_latex_table(title: str, table: Table) -> str:
    """Render another table of the report with its title as caption, as a table environment or a longtable."""
    header = [latex_row(*map(escape_latex, table.columns))]
    body = [latex_row(*map(escape_latex, cells)) for cells in table.rows]
    column_spec = "l" + "r" * (len(table.columns) - 1)
    environment = longtable_environment if len(body) > MAX_FLOATING_ROWS else table_environment
    return "\n".join(environment(title, column_spec, header, body, [*map(escape_latex, table.notes)])) + "\n"


def table_environment(
    caption_text: str, column_spec: str, header: Sequence[str], body: Sequence[str], notes: Sequence[str]
) -> list[str]:
    """Return the lines of a floating table, scaled down if it is wider than the text."""
    caption, begin = f"\\caption{{{escape_latex(caption_text)}}}", f"\\begin{{tabular}}{{{column_spec}}}"
    return [
        PACKAGES_COMMENT, GRAPHICX_COMMENT, "\\begin{table}", "\\centering", caption, RESIZE_COMMAND, begin,
        "\\toprule", *header, "\\midrule", *body, "\\bottomrule", "\\end{tabular}}", *footnote_lines(notes),
        "\\end{table}",
    ]  # fmt: skip


def longtable_environment(
    caption_text: str, column_spec: str, header: Sequence[str], body: Sequence[str], notes: Sequence[str]
) -> list[str]:
    """Return the lines of a table that spans pages and repeats its header."""
    caption, begin = f"\\caption{{{escape_latex(caption_text)}}} \\\\", f"\\begin{{longtable}}{{{column_spec}}}"
    return [
        PACKAGES_COMMENT, LONGTABLE_COMMENT, begin, caption, "\\toprule", *header, "\\midrule", "\\endhead", *body,
        "\\bottomrule", "\\end{longtable}", *footnote_lines(notes),
    ]  # fmt: skip


def footnote_lines(notes: Sequence[str]) -> list[str]:
    return ["", f"{{\\footnotesize {' '.join(notes)}\\par}}"] if notes else []


def header_lines(columns: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the header lines: column names, and above them the headings of column groups, if any."""
    names = [name for group in columns.values() for name in group]
    if not any(columns):
        return [latex_row("arm", *map(escape_latex, names))]
    headings = [f"\\multicolumn{{{len(group)}}}{{c}}{{{escape_latex(heading)}}}" for heading, group in columns.items()]
    ends = list(itertools.accumulate(map(len, columns.values()), initial=1))
    spans = zip(columns, itertools.pairwise(ends), strict=True)
    rules = [f"\\cmidrule(lr){{{before + 1}-{end}}}" for heading, (before, end) in spans if heading]
    return [" & ".join(["", *headings]) + r" \\", " ".join(rules), latex_row("arm", *map(escape_latex, names))]


def latex_metric_columns(rows: Sequence[Row], metric: str, measure: MeasureConfig) -> dict[str, list[str]]:
    """Return the non-empty columns of one metric."""
    statistic, direction = measure.statistic, measure.metric_direction(metric)
    values = [getattr(row.summaries.get(metric), statistic, None) for row in rows]
    published = [row.published_values.get(metric, {}) for row in rows]
    published_values = [fields.get(statistic) for fields in published]
    differences = [row.differences.get(metric) for row in rows]
    texts = [format_summary(row.summaries.get(metric), metric, statistic) for row in rows]
    published_texts = [escape_latex(format_published(fields, metric)) for fields in published]
    columns = {
        STATISTIC_COLUMNS.get(statistic, statistic): bold_best(texts, values, direction, metric),
        "solved": [solved_cell(row.summaries.get(metric)) for row in rows],
        "published": bold_best(published_texts, published_values, direction, metric),
        "paired difference [95 % CI]": [difference_cell(difference, metric) for difference in differences],
    }
    return drop_empty_columns(columns)


def drop_empty_columns(columns: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: cells for name, cells in columns.items() if any(cells)}


def flatten_columns(columns: Mapping[str, Mapping[str, list[str]]]) -> list[list[str]]:
    return [cells for group in columns.values() for cells in group.values()]


def arm_title_cells(rows: Sequence[Row]) -> list[str]:
    return [escape_latex(row.title) for row in rows]


def latex_row(*cells: str) -> str:
    return " & ".join(cells) + r" \\"
