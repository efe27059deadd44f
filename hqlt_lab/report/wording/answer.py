"""Compose the answer to a study's question from the rows: the best arm, then the comparisons with the baseline.

    synchronous does best: test/normalized_accuracy 100.0 (median of 3 seeds), solved by 3 of 3 seeds.

    Compared with the baseline synchronous (paired by seed, 95 % CI, Holm-corrected for 2 comparisons):
    - delayed_stream: significantly worse, -98.7 [-100.0, -97.1]
    - deltanet: not significant (needs about 12 seeds), +0.4 [-0.3, +1.1], smallest detectable difference 0.9

The first sentence makes no claim of significance. With many comparisons, the list has one item per arm of a grid:

    Compared with delta with the same mixer and timing (paired by seed, 95 % CI, Holm-corrected for 8 comparisons):
    - linear: significantly worse in 2 of 4 combinations (-48.0 to -33.5), not significant in 2 (-1.0 to +0.4)

Without a grid it counts the comparisons by verdict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hqlt_lab.experiment.apply_overrides import short_path
from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.experiment.parse_seeds import MIN_SEEDS
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.formatting import pluralize_count
from hqlt_lab.report.arm_rows import Row, reported_metrics
from hqlt_lab.report.stats.summary import Summary
from hqlt_lab.report.value_formatting import (
    format_arm_title,
    format_range,
    format_rounded,
    format_signed,
    join_names,
)
from hqlt_lab.report.wording.verdicts import VERDICT_TEXTS, format_verdict
from hqlt_lab.rundir.cell_state import SETTLED_STATES
from hqlt_lab.stats.baseline_differences import Difference
from hqlt_lab.study.ledger.cell_record import CellRecord

MAX_ARMS_NAMED = 6  # of more arms, the first three are named
MAX_COMPARISONS_LISTED = 6  # more comparisons are summarized by arm or counted by verdict


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Answer to the question of a study. `str` returns it as plain text with one line per list item."""

    summary: str
    comparisons_heading: str = ""  # ends with a colon; with no items it is a sentence
    comparisons: Sequence[str] = ()  # one item per comparison; if there are many, one per arm of a grid or per verdict

    def __str__(self) -> str:
        details = "\n".join([self.comparisons_heading, *(f"- {item}" for item in self.comparisons)])
        return f"{self.summary}\n\n{details}".strip()


def compose_answer(experiment: Experiment, rows: Sequence[Row], records: Sequence[CellRecord]) -> Answer:
    """Compose the answer to the question of the study."""
    heading, items = compose_comparisons(rows, experiment.measure)
    summary = compose_summary(experiment.measure, rows, records)
    return Answer(summary=summary, comparisons_heading=heading, comparisons=items)


def compose_summary(measure: MeasureConfig, rows: Sequence[Row], records: Sequence[CellRecord]) -> str:
    """Return sentences on the best arms, on which arms solve the task, and on arms without a result."""
    arms = [row for row in rows if not row.is_quoted]
    ranked = rank_rows([row for row in arms if reported_metrics(measure)[0] in row.summaries], measure)
    if not ranked:
        return describe_no_result(records)
    ranked_titles = {row.title for row in ranked}
    unranked = [row for row in arms if row.title not in ranked_titles]
    missing = f"{join_titles(unranked)} {'has' if len(unranked) == 1 else 'have'} no result." if unranked else ""
    sentences = [f"{progress_prefix(records)}{describe_best(ranked, measure)}", describe_solvers(ranked, measure)]
    return " ".join(filter(None, [*sentences, missing]))


def rank_rows(rows: Sequence[Row], measure: MeasureConfig) -> list[Row]:
    """Return the rows from best to worst; ties keep the order of the file."""
    sign = -1 if measure.metric_direction(reported_metrics(measure)[0]) == "maximize" else 1
    return sorted(rows, key=lambda row: sign * first_metric_value(row, measure))


def first_summary(row: Row, measure: MeasureConfig) -> Summary:
    return row.summaries[reported_metrics(measure)[0]]


def first_metric_value(row: Row, measure: MeasureConfig) -> float:
    """Return the arm's primary metric, aggregated over seeds by `measure.statistic`."""
    value: float = getattr(first_summary(row, measure), measure.statistic)
    return value


def join_titles(rows: Sequence[Row]) -> str:
    return join_names([format_arm_title(row.title) for row in rows], MAX_ARMS_NAMED)


def describe_no_result(records: Sequence[CellRecord]) -> str:
    """Return the sentence that replaces the answer if no cell has a result."""
    settled = sum(record.state in SETTLED_STATES for record in records)
    yet = "" if records and settled == len(records) else " yet"
    return f"No results{yet}: {settled} of {pluralize_count(len(records), 'cell')} ended, none with a result."


def progress_prefix(records: Sequence[CellRecord]) -> str:
    settled = sum(record.state in SETTLED_STATES for record in records)
    return "" if settled == len(records) else f"So far ({settled} of {pluralize_count(len(records), 'cell')}), "


def describe_best(ranked_rows: Sequence[Row], measure: MeasureConfig) -> str:
    """Return e.g. "synchronous does best: test/accuracy 100.0 (median of 2 seeds), solved by 2 of 2 seeds."."""
    metric = reported_metrics(measure)[0]
    top = best_rows(ranked_rows, measure)
    best = format_rounded(first_metric_value(top[0], measure), metric)
    if len(top) < len(ranked_rows):
        lead = f"{join_titles(top)} {'does' if len(top) == 1 else 'do'} best:"
    else:
        lead = f"{join_titles(top)} {'reaches' if len(top) == 1 else 'perform equally:'}"
    solved = {first_summary(row, measure).solved for row in top}
    fraction = solved.pop() if len(solved) == 1 else None
    solved_note = f", solved by {fraction[0]} of {pluralize_count(fraction[1], 'seed')}" if fraction else ""
    return f"{lead} {metric} {best} ({describe_seeds(top, measure)}){solved_note}."


def best_rows(ranked_rows: Sequence[Row], measure: MeasureConfig) -> list[Row]:
    """Return the first row, and those that are equal to it after rounding."""
    metric = reported_metrics(measure)[0]
    values = [format_rounded(first_metric_value(row, measure), metric) for row in ranked_rows]
    return [row for row, value in zip(ranked_rows, values, strict=True) if value == values[0]]


def describe_solvers(ranked_rows: Sequence[Row], measure: MeasureConfig) -> str:
    """Return a sentence on the arms that solve the task; empty if these are the best arms, or without a threshold."""
    if measure.solved is None:
        return ""
    solvers = [row for row in ranked_rows if is_solved(row, measure)]
    if not solvers:
        return "No arm solves the task with all seeds."
    if solvers == best_rows(ranked_rows, measure):
        return ""
    return f"{join_titles(solvers)} {'solves' if len(solvers) == 1 else 'solve'} the task with all seeds."


def is_solved(row: Row, measure: MeasureConfig) -> bool:
    """Return whether every seed reached the threshold; seeds without a result count as not solved."""
    solved = first_summary(row, measure).solved
    return solved is not None and solved[0] == solved[1]


def describe_seeds(rows: Sequence[Row], measure: MeasureConfig) -> str:
    """Return e.g. "median of 2 seeds", "best of 1 to 3 seeds" or "1 seed"."""
    counts = [first_summary(row, measure).n for row in rows]
    if max(counts) == 1:
        return "1 seed"
    return f"{measure.statistic} of {format_range(min(counts), max(counts))} seeds"


def compose_comparisons(rows: Sequence[Row], measure: MeasureConfig) -> tuple[str, list[str]]:
    """Return a heading and a list of comparisons with the baseline; both empty if nothing was compared."""
    metric = reported_metrics(measure)[0]
    differences = {row.title: row.differences[metric] for row in rows if metric in row.differences}
    tested = {title: difference for title, difference in differences.items() if difference.verdict}
    if not differences:
        return "", []
    if not tested:
        return f"Differences are not tested, because there is only one seed. A verdict needs {MIN_SEEDS} seeds.", []
    untested = [format_arm_title(title) for title in differences if title not in tested]
    if len(tested) <= MAX_COMPARISONS_LISTED:
        items = list_comparisons(tested, metric)
    elif is_grid(tested) and len({title.name for title in tested}) <= MAX_COMPARISONS_LISTED:
        items = summarize_arms_of_grid(tested, metric)
    else:
        items = count_comparisons(tested)
    items += [f"{join_names(untested, MAX_ARMS_NAMED)}: not tested (only one seed)"] if untested else []
    return compose_heading(tested), items


def is_grid(differences: Mapping[ArmTitle, Difference]) -> bool:
    """Return whether each arm is compared with another arm at the same levels of all crossed axes."""
    return all(
        title.levels and title.levels == difference.baseline.levels and title.name != difference.baseline.name
        for title, difference in differences.items()
    )


def compose_heading(differences: Mapping[ArmTitle, Difference]) -> str:
    """Return e.g. "Compared with the baseline a (paired by seed, 95 % CI, Holm-corrected for 3 comparisons):"."""
    baselines = list(dict.fromkeys(difference.baseline for difference in differences.values()))
    if len(baselines) == 1:
        reference = f"the baseline {format_arm_title(baselines[0])}"
    elif is_grid(differences):
        paths = baselines[0].levels
        axes = join_names([short_path(path, paths) for path in paths], len(paths))
        reference = f"{format_arm_title(ArmTitle(baselines[0].name))} with the same {axes}"
    else:
        reference = "their baselines"
    num_looks = max(difference.look or 0 for difference in differences.values())
    correction = f", Holm-corrected for {len(differences)} comparisons" if len(differences) > 1 else ""
    if num_looks:
        correction += f"{' and' if correction else ', corrected for'} {pluralize_count(num_looks, 'look')}"
    return f"Compared with {reference} (paired by seed, 95 % CI{correction}):"


def list_comparisons(differences: Mapping[ArmTitle, Difference], metric: str) -> list[str]:
    """Return one item per comparison, e.g. "b: significantly worse, -96.2 [-98.4, -94.0]"."""
    names_baselines = len({difference.baseline for difference in differences.values()}) > 1 and not is_grid(differences)
    items = []
    for title, difference in differences.items():
        baseline = f" vs. {format_arm_title(difference.baseline.drop_levels(title))}" if names_baselines else ""
        low, high = format_signed(difference.low, metric), format_signed(difference.high, metric)
        value = f"{format_signed(difference.mean, metric)} [{low}, {high}]"
        detectable = describe_detectable_difference(difference, metric)
        items.append(f"{format_arm_title(title)}{baseline}: {format_verdict(difference)}, {value}{detectable}")
    return items


def summarize_arms_of_grid(differences: Mapping[ArmTitle, Difference], metric: str) -> list[str]:
    """Return one item per arm, e.g. "b: significantly worse in 2 of 4 combinations (-9.0 to -5.0), ..."."""
    items = []
    for name in dict.fromkeys(title.name for title in differences):
        of_arm = [difference for title, difference in differences.items() if title.name == name]
        parts: list[str] = []
        for verdict, text in VERDICT_TEXTS.items():
            means = sorted(difference.mean for difference in of_arm if difference.verdict == verdict)
            if means:
                low, high = format_signed(means[0], metric), format_signed(means[-1], metric)
                total = "" if parts else f" of {pluralize_count(len(of_arm), 'combination')}"
                values = low if low == high else f"{low} to {high}"
                parts.append(f"{text} in {len(means)}{total} ({values})")
        items.append(f"{format_arm_title(ArmTitle(name))}: {', '.join(parts)}")
    return items


def describe_detectable_difference(difference: Difference, metric: str) -> str:
    """Return e.g. ", smallest detectable difference 1.5"; empty for a comparison with a verdict."""
    if difference.verdict != "not_significant" or difference.detectable is None:
        return ""
    return f", smallest detectable difference {format_rounded(difference.detectable, metric)}"


def count_comparisons(differences: Mapping[ArmTitle, Difference]) -> list[str]:
    """Return one item per verdict, e.g. "significantly better: 2 (a and b)" and "not significant: 7"."""
    items = []
    for verdict, text in VERDICT_TEXTS.items():
        titles = [format_arm_title(title) for title, difference in differences.items() if difference.verdict == verdict]
        names = "" if verdict == "not_significant" else f" ({join_names(titles, MAX_ARMS_NAMED)})"
        items += [f"{text}: {len(titles)}{names}"] if titles else []
    return items
