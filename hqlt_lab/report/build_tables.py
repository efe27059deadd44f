"""Build tables of text cells, without markup: results, effects of a grid, and hyperparameter importance."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.experiment.parse_seeds import MIN_SEEDS
from hqlt_lab.formatting import format_bytes, format_count
from hqlt_lab.report.arm_rows import Row, reported_metrics
from hqlt_lab.report.stats.factorial_effects import Effect
from hqlt_lab.report.stats.summary import Summary
from hqlt_lab.report.value_formatting import (
    format_p_value,
    format_point,
    format_range,
    format_rounded,
    format_signed,
)
from hqlt_lab.report.wording.table_notes import compose_notes
from hqlt_lab.report.wording.verdicts import format_verdict
from hqlt_lab.stats.baseline_differences import Difference

CellTexts = list[str]
VERDICT_COLUMN = "verdict"  # after the prefix of its metric


@dataclass(frozen=True)
class Table:
    """A table of unescaped text cells with notes, as input of all renderers."""

    columns: list[str]
    rows: list[CellTexts]
    notes: list[str] = field(default_factory=list)


def build_results_table(experiment: Experiment, rows: Sequence[Row]) -> Table:
    """Build the results table, one line per row, without empty columns."""
    metrics = reported_metrics(experiment.measure)
    columns: dict[str, CellTexts] = {
        "arm": [row.title for row in rows],
        "seeds": [format_seed_count(row) for row in rows],
    }
    for metric in metrics:
        columns |= metric_columns(rows, metric, column_prefix(metric, metrics))
    columns |= {
        "chosen": [format_point(row.point or {}) for row in rows],
        "steps": steps_column(rows),
        **cost_columns(rows),
        "unfinished": [format_unfinished(row) for row in rows],
    }
    non_empty = {name: cells for name, cells in columns.items() if name == "arm" or any(cells)}
    return Table(
        list(non_empty),
        [list(cells) for cells in zip(*non_empty.values(), strict=True)],
        compose_notes(experiment, rows),
    )


def column_prefix(metric: str, metrics: Sequence[str]) -> str:
    """Return the prefix of the columns of one metric: its name, if the table has several metrics."""
    return f"{metric}: " if len(metrics) > 1 else ""


def find_verdicts(table: Table, experiment: Experiment, rows: Sequence[Row]) -> list[dict[int, str]]:
    """Return the verdicts of each row of the results table, by the index of their column."""
    metrics = reported_metrics(experiment.measure)
    columns = {metric: f"{column_prefix(metric, metrics)}{VERDICT_COLUMN}" for metric in metrics}
    return [
        {
            table.columns.index(columns[metric]): difference.verdict
            for metric, difference in row.differences.items()
            if difference.verdict
        }
        for row in rows
    ]


def cost_columns(rows: Sequence[Row]) -> dict[str, CellTexts]:
    """Return the columns of parameters, state size, FLOPs and throughput."""
    return {
        "parameters": [format_count(row.parameters) if row.parameters else "" for row in rows],
        "state": [format_bytes(row.state_bytes) if row.state_bytes else "" for row in rows],
        "FLOPs/token": [format_count(row.flops_per_token) if row.flops_per_token else "" for row in rows],
        "tokens/s": [format_count(row.tokens_per_second) if row.tokens_per_second else "" for row in rows],
    }


def format_seed_count(row: Row) -> str:
    """Return e.g. "3", or "2 of 3" if some seeds have no result (yet)."""
    done = len(row.finished_records)
    return "" if row.is_quoted else str(done) if done == row.num_seeds else f"{done} of {row.num_seeds}"


def metric_columns(rows: Sequence[Row], metric: str, prefix: str) -> dict[str, CellTexts]:
    """Return the columns of one metric: summaries, comparison with the baseline, and published values."""

    def summary_column(cell: Callable[[Summary, str], str]) -> CellTexts:
        return [cell(row.summaries[metric], metric) if metric in row.summaries else "" for row in rows]

    def difference_column(cell: Callable[[Difference, str], str]) -> CellTexts:
        return [cell(row.differences[metric], metric) if metric in row.differences else "" for row in rows]

    return {
        f"{prefix}median ± MAD": summary_column(format_median),
        f"{prefix}mean [95 % CI]": summary_column(format_mean),
        f"{prefix}paired difference [95 % CI]": difference_column(format_difference),
        f"{prefix}{VERDICT_COLUMN}": verdict_column(rows, metric),
        f"{prefix}best": summary_column(lambda summary, metric: format_rounded(summary.best, metric)),
        f"{prefix}solved": summary_column(
            lambda summary, metric: "{} of {}".format(*summary.solved) if summary.solved else ""
        ),
        f"{prefix}p (permutation)": difference_column(
            lambda difference, metric: (
                format_p_value(difference.permutation) if difference.n > 1 and difference.look is None else ""
            )
        ),
        f"{prefix}p (Fisher, solved)": difference_column(
            lambda difference, metric: "" if difference.fisher is None else format_p_value(difference.fisher)
        ),
        f"{prefix}published": [format_published(row.published_values.get(metric, {}), metric) for row in rows],
    }


def format_median(summary: Summary, metric: str) -> str:
    """Return e.g. "99.7 ± 0.1" (median and MAD); without the MAD for a single seed."""
    mad = f" ± {format_rounded(summary.mad, metric)}" if summary.n > 1 else ""
    return format_rounded(summary.median, metric) + mad


def format_mean(summary: Summary, metric: str) -> str:
    """Return e.g. "99.6 [99.1, 100.1]"."""
    if summary.low is None:
        return format_rounded(summary.mean, metric)
    interval = f"[{format_rounded(summary.low, metric)}, {format_rounded(summary.high, metric)}]"
    return f"{format_rounded(summary.mean, metric)} {interval}"


def format_difference(difference: Difference, metric: str) -> str:
    """Return e.g. "+3.0 [+0.5, +5.5]"."""
    if difference.low is None:
        return format_signed(difference.mean, metric)
    interval = f"[{format_signed(difference.low, metric)}, {format_signed(difference.high, metric)}]"
    return f"{format_signed(difference.mean, metric)} {interval}"


def verdict_column(rows: Sequence[Row], metric: str) -> CellTexts:
    """Return the verdict of each row as text; "baseline" for arms that others are compared with."""
    baselines = find_tested_baselines(rows, metric)
    return [
        format_verdict(row.differences[metric])
        if metric in row.differences
        else "baseline"
        if row.title in baselines
        else ""
        for row in rows
    ]


def find_tested_baselines(rows: Sequence[Row], metric: str) -> set[ArmTitle]:
    """Return the baselines of all comparisons that have a verdict."""
    differences = [row.differences[metric] for row in rows if metric in row.differences]
    return {difference.baseline for difference in differences if difference.verdict}


def format_published(values: Mapping[str, Any], metric: str) -> str:
    """Return e.g. "99.7 ± 0.1, best 100.0"."""
    texts = {name: format_rounded(value, metric) for name, value in values.items()}
    mad = texts.pop("mad", "") if "median" in texts else ""
    median = texts.pop("median", "") + (f" ± {mad}" if mad else "")
    return ", ".join(([median] if median else []) + [f"{name} {value}" for name, value in texts.items()])


def steps_column(rows: Sequence[Row]) -> CellTexts:
    """Return the trained steps of each row; empty cells if all are equal, as the answer then states them."""
    texts = [format_range(*row.step_range) if row.step_range else "" for row in rows]
    all_equal = len({step for row in rows for step in row.step_range or ()}) < 2
    return [""] * len(rows) if all_equal else texts


def format_unfinished(row: Row) -> str:
    return ", ".join(f"{count} {state}" for state, count in row.unfinished_counts.items() if count)


MAX_INTERACTIONS = 40  # those with the smallest p are shown


def build_effects_table(effects: Sequence[Effect], metric: str) -> Table:
    """Build the table of main effects in the order of the file, then interactions by p."""
    mains = [effect for effect in effects if len(effect.levels) == 1]
    pairs = sorted((effect for effect in effects if len(effect.levels) > 1), key=p_value_or_one)
    notes = [
        f"{metric}: difference of each level from the first level of its factor, per seed, averaged over all other "
        "factors. An interaction is how much one effect changes with the other. Intervals are Holm-corrected: the "
        "probability of any false effect in the table is at most 5 %. significant: the interval excludes 0, with at "
        f"least {MIN_SEEDS} seeds; if the values form two groups, such as solved and not solved, an exact permutation "
        "test must also reject."
    ]
    if len(pairs) > MAX_INTERACTIONS:
        notes.append(f"{len(pairs) - MAX_INTERACTIONS} interactions with a larger p are omitted.")
    columns = ["effect", "reference", "seeds", "paired difference [95 % CI]", "p", "significant"]
    return Table(columns, [effect_row(effect, metric) for effect in [*mains, *pairs[:MAX_INTERACTIONS]]], notes)


def p_value_or_one(effect: Effect) -> float:
    return 1.0 if effect.p is None else effect.p


def effect_row(effect: Effect, metric: str) -> list[str]:
    has_interval = effect.low is not None and effect.high is not None
    interval = f" [{format_signed(effect.low, metric)}, {format_signed(effect.high, metric)}]" if has_interval else ""
    reason = " (values form two groups)" if effect.is_blocked_by_groups else ""
    significance = "" if effect.n < MIN_SEEDS else "yes" if effect.excludes_zero else f"no{reason}"
    return [
        " × ".join(effect.levels),
        " × ".join(effect.reference_levels),
        str(effect.n),
        format_signed(effect.mean, metric) + interval,
        format_p_value(effect.p),
        significance,
    ]


def build_importance_table(importance: Mapping[str, Mapping[str, float]], select: str) -> Table:
    """Build the table of importance, one line per arm and one column per hyperparameter."""
    paths = list(dict.fromkeys(path for by_path in importance.values() for path in by_path))
    rows = [
        [arm, *(f"{100 * by_path[path]:.0f} %" if path in by_path else "" for path in paths)]
        for arm, by_path in importance.items()
    ]
    note = (
        f"Functional ANOVA over all finished cells: how much of the variance of {select} each setting explains alone."
    )
    return Table(["arm", *paths], rows, [note])
