"""Tables of memory profiles: one line per score of one profile, or one column per profile."""

from collections.abc import Sequence

from hqlt_lab.formatting import format_bytes
from hqlt_lab.memory_profile.load_battery import BATTERY
from hqlt_lab.memory_profile.memory_profile import MemoryProfile
from hqlt_lab.memory_profile.profile_scores import ProfileScore
from hqlt_lab.report.build_tables import Table
from hqlt_lab.report.render.text_tables import escape_markdown, render_markdown_table
from hqlt_lab.report.value_formatting import format_rounded

NORMALIZED_NOTE = "normalized: (mean - chance) / (100 - chance) in percent: 0 is chance, 100 perfect."


def build_profile_table(profile: MemoryProfile) -> Table:
    """Build the table of one profile, with notes on its composition and on what is missing."""
    columns = {
        "test": [score.label for score in profile.scores],
        "metric": [score.metric.split("/")[1] for score in profile.scores],
        "mean [95 % CI]": [format_score(score) for score in profile.scores],
        "chance": [format_rounded(score.chance, score.metric) for score in profile.scores],
        "normalized": [format_normalized(score) for score in profile.scores],
        "solved": [format_solved(score) for score in profile.scores],
        "state": [format_bytes(score.state_bytes) if score.state_bytes else "" for score in profile.scores],
        "unfinished": [format_states(score) for score in profile.scores],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells) or name not in ("solved", "unfinished")}
    rows = [list(cells) for cells in zip(*shown.values(), strict=True)]
    return Table(list(shown), rows, [*compose_notes(profile)])


def compose_notes(profile: MemoryProfile) -> list[str]:
    """Return sentences below the table of a profile."""
    notes = [f"Components: {profile.composition}.", *profile.notes, NORMALIZED_NOTE]
    thresholds = {score.threshold for score in profile.scores if score.threshold is not None}
    if len(thresholds) == 1:
        notes.append(f"solved: seeds with a score of at least {thresholds.pop():g}.")
    if missing := list_missing_tests(profile):
        notes.append(f"Tests without a result: {', '.join(missing)}.")
    return notes


def list_missing_tests(profile: MemoryProfile) -> list[str]:
    """Return the tests of the battery without any score."""
    scored = {score.test for score in profile.scores if score.mean is not None}
    return [test for test in BATTERY if test not in scored]


def format_score(score: ProfileScore) -> str:
    """Return e.g. "99.6 [99.1, 100.0]", or nothing if no seed has finished."""
    if score.mean is None:
        return ""
    mean = format_rounded(score.mean, score.metric)
    if score.low is None or score.high is None:
        return mean
    return f"{mean} [{format_rounded(score.low, score.metric)}, {format_rounded(score.high, score.metric)}]"


def format_normalized(score: ProfileScore) -> str:
    return "" if score.normalized is None else format_rounded(score.normalized, score.metric)


def format_solved(score: ProfileScore) -> str:
    return "" if score.threshold is None or not score.ended else f"{score.solved} of {score.ended}"


def format_states(score: ProfileScore) -> str:
    return ", ".join(f"{count} {state}" for state, count in score.unfinished.items())


def build_comparison_table(profiles: Sequence[MemoryProfile]) -> Table:
    """Build the table of several profiles: normalized scores, one line per test and one column per profile."""
    by_profile = [{(score.test, score.metric): score for score in profile.scores} for profile in profiles]
    keys = dict.fromkeys(key for scores in by_profile for key in scores)
    rows = []
    for key in sorted(keys, key=lambda key: BATTERY.index(key[0])):  # stable: metrics keep their order
        found = [scores.get(key) for scores in by_profile]
        label = next(score.label for score in found if score is not None)
        rows.append([label, *("" if score is None else format_normalized(score) for score in found)])
    notes = [NORMALIZED_NOTE]
    for profile in profiles:
        notes += [" ".join([f"{profile.name}: {profile.composition}.", *profile.notes])]
    return Table(["test", *(profile.name for profile in profiles)], rows, notes)


def render_profile_markdown(title: str, table: Table) -> str:
    """Render a title, a table and its notes as Markdown."""
    blocks = [f"# {escape_markdown(title)}", render_markdown_table(table), *map(escape_markdown, table.notes)]
    return "\n\n".join(blocks) + "\n"
