"""The question answered in one sentence, from the rows alone.

It says which arm does best by the first reported metric, within how many steps and over how many seeds.  It does not
say that a difference is more than chance.
"""

from collections.abc import Sequence
from dataclasses import replace

from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.settings import MeasureConfig
from hqlt_lab.report.rows import Row, reported
from hqlt_lab.report.statistics import Summary
from hqlt_lab.report.words import between, counted, joined, shown, spoken
from hqlt_lab.study.record import SETTLED, Record

MANY = 6  # with more arms, those in the middle are not named


def answer(experiment: Experiment, rows: Sequence[Row], records: Sequence[Record]) -> str:
    """One sentence."""
    measure = experiment.measure
    arms = [replace(row, title=spoken(row.title)) for row in rows if not row.quoted]
    ranked = in_order([row for row in arms if reported(measure)[0] in row.summaries], measure)
    if not ranked:
        return nothing_yet(records)
    told = {row.title for row in ranked}
    silent = [row.title for row in arms if row.title not in told]
    without = f"; {joined(silent, MANY)} {'has' if len(silent) == 1 else 'have'} no result" if silent else ""
    sentence = f"{so_far(records)}within {steps_of(ranked)}, {finding(ranked, measure)}{without}."
    return sentence[0].upper() + sentence[1:]


def in_order(rows: Sequence[Row], measure: MeasureConfig) -> list[Row]:
    """The best first; of equals the first in the file."""
    sign = -1 if measure.way(reported(measure)[0]) == "maximize" else 1
    return sorted(rows, key=lambda row: sign * value_of(row, measure))


def summary_of(row: Row, measure: MeasureConfig) -> Summary:
    return row.summaries[reported(measure)[0]]


def value_of(row: Row, measure: MeasureConfig) -> float:
    """What stands for the arm's seeds."""
    value: float = getattr(summary_of(row, measure), measure.statistic)
    return value


def nothing_yet(records: Sequence[Record]) -> str:
    """Why there is no answer."""
    settled = sum(record.state in SETTLED for record in records)
    yet = "" if records and settled == len(records) else " yet"
    return f"There is no answer{yet}: {settled} of {counted(len(records), 'cell')} ended, none with a result."


def so_far(records: Sequence[Record]) -> str:
    settled = sum(record.state in SETTLED for record in records)
    return "" if settled == len(records) else f"so far ({settled} of {counted(len(records), 'cell')}), "


def steps_of(ranked: Sequence[Row]) -> str:
    """300 steps, 120 to 300 steps"""
    steps = [step for row in ranked for step in row.steps or ()]
    return f"{between(min(steps), max(steps))} {'step' if max(steps) == 1 else 'steps'}"


def finding(ranked: Sequence[Row], measure: MeasureConfig) -> str:
    """Who solves it, where that is asked and someone does; else who does best."""
    if measure.solved is None:
        return who_does_best(ranked, measure)
    solvers = [row for row in ranked if solves(row, measure)]
    if not solvers:
        return f"no arm solves it with every seed; {who_does_best(ranked, measure)}"
    return who_solves(ranked, solvers, measure)


def solves(row: Row, measure: MeasureConfig) -> bool:
    """With every seed, the lost ones included."""
    solved = summary_of(row, measure).solved
    return solved is not None and solved[0] == solved[1]


def who_solves(ranked: Sequence[Row], solvers: Sequence[Row], measure: MeasureConfig) -> str:
    """synchronous and deltanet solve it (... in 2 of 2 seeds); delayed_chunk (0 of 2) does not"""
    fractions = {row.title: "{} of {}".format(*(summary_of(row, measure).solved or (0, 0))) for row in ranked}
    told = {fractions[row.title] for row in solvers}
    seeds = f"{told.pop()} seeds" if len(told) == 1 else "all seeds"
    bound = "at least" if measure.way(reported(measure)[0]) == "maximize" else "at most"
    names = joined([row.title for row in solvers], MANY)
    verb = "solves" if len(solvers) == 1 else "solve"
    others = [f"{row.title} ({fractions[row.title]})" for row in ranked if row not in solvers]
    rest = f"; {joined(others, MANY)} {'does' if len(others) == 1 else 'do'} not" if others else ""
    return f"{names} {verb} it ({reported(measure)[0]} {bound} {shown(measure.solved)} in {seeds}){rest}"


def who_does_best(ranked: Sequence[Row], measure: MeasureConfig) -> str:
    """synchronous does best: test/accuracy 100.0 (median of 2 seeds); delayed_stream 3.1, delayed_chunk 2.0"""
    values = {row.title: shown(value_of(row, measure), reported(measure)[0]) for row in ranked}
    titles = list(values)
    first = values[titles[0]]
    top = [title for title in titles if values[title] == first]
    rest = [f"{title} {values[title]}" for title in titles[len(top) :]]
    told = f"{reported(measure)[0]} {first} ({seeds_of(ranked, measure)})"
    if not rest:
        return f"{joined(top, MANY)} {'reaches' if len(top) == 1 else 'end alike:'} {told}"
    lead = f"{joined(top, MANY)} {'does' if len(top) == 1 else 'do'} best: {told}"
    if len(titles) <= MANY:
        return f"{lead}; {', '.join(rest)}"
    near = rest[: max(0, 3 - len(top))]
    last = values[titles[-1]]
    ties = sum(values[title] == last for title in titles[len(top) + len(near) :])
    end = f"{rest[-1]} is the worst" if ties == 1 else f"{ties} share the last place with {last}"
    middle = len(rest) - len(near) - ties
    pieces = [lead, f"then {', '.join(near)}" if near else "", f"{middle} lie between" if middle else ""]
    return "; ".join([*filter(None, pieces), end])


def seeds_of(ranked: Sequence[Row], measure: MeasureConfig) -> str:
    """median of 2 seeds, best of 1 to 3 seeds, 1 seed"""
    counts = [summary_of(row, measure).n for row in ranked]
    if max(counts) == 1:
        return "1 seed"
    return f"{measure.statistic} of {between(min(counts), max(counts))} seeds"
