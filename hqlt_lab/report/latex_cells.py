r"""One cell of a LaTeX table.  Whatever the user wrote is shown, not obeyed: what LaTeX knows is escaped."""

from collections.abc import Callable, Sequence
from typing import Any

from hqlt_lab.report.differences import Difference
from hqlt_lab.report.statistics import Summary
from hqlt_lab.report.words import shown, signed

ESCAPES = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "[": "{[}", "]": "{]}", "±": r"$\pm$", "-": "-{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}  # fmt: skip
MARKS = {"better": "$^{+}$", "worse": "$^{-}$", "undecided": "$^{\\circ}$", None: ""}


def ours(summary: Summary | None, metric: str, statistic: str) -> str:
    """99.7 ± 0.1 (median), 99.6 [99.1, 100.1] (mean, or a single seed over test examples), 100.0 (best)"""
    if summary is None:
        return ""
    value = number(getattr(summary, statistic), metric)
    if (statistic == "mean" or summary.over == "examples") and summary.low is not None:
        return f"{value} {{[}}{number(summary.low, metric)}, {number(summary.high, metric)}{{]}}"
    return f"{value} $\\pm$ {number(summary.mad, metric)}" if statistic == "median" and summary.n > 1 else value


def solved(summary: Summary | None) -> str:
    """3/3"""
    return "" if summary is None or summary.solved is None else "{}/{}".format(*summary.solved)


def difference(found: Difference | None, metric: str) -> str:
    """+3.1 [+2.2, +4.0] with its mark"""
    if found is None:
        return ""
    mean, low, high = (number(value, metric, signed) for value in (found.mean, found.low, found.high))
    return f"{mean}{'' if found.low is None else f' {{[}}{low}, {high}{{]}}'}{MARKS[found.verdict]}"


def number(value: Any, metric: str, told: Callable[[Any, str], str] = shown) -> str:
    """With a minus that is one."""
    text = escaped(told(value, metric))
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


def escaped(text: str) -> str:
    """On one line, as it is read."""
    return " ".join("".join(ESCAPES.get(letter, letter) for letter in text).split())
