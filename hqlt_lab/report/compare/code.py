"""Where the code differs that made the results: hashes of the lab and of every part, and commits where they are known.

A part that only one of them uses is a difference of settings, not of code.
"""

from collections.abc import Sequence

from hqlt_lab.report.compare.section import NOTHING, Section
from hqlt_lab.report.compare.subject import Study, Trained
from hqlt_lab.report.table import Table
from hqlt_lab.report.words import joined
from hqlt_lab.study.past import absent

SHORT = 12  # letters of a commit


def code_differs(things: Sequence[Trained | Study]) -> Section:
    """A line per source that is not the same everywhere, or not the same today."""
    names = [thing.name for thing in things]
    sources = dict.fromkeys(source for thing in things for source in thing.versions)
    entries = []
    for source in sources:
        versions = [list(thing.versions.get(source, ())) for thing in things]
        there = [one for one in versions if one]
        changed = [thing.name for thing in things if source in thing.changed]
        if changed or any(sorted(one) != sorted(there[0]) or len(one) > 1 for one in there):
            entries.append({"source": source, "versions": versions, "changed_since": changed})
    rows = [[told(str(entry["source"])), *map(joined_or_nothing, entry["versions"])] for entry in entries]
    commits = [[commit[:SHORT] for commit in thing.commits] for thing in things]
    if any(one != commits[0] for one in commits[1:]):
        rows.append(["git commit", *map(joined_or_nothing, commits)])
    table = Table(["code", *names], rows) if rows else None
    return Section(
        name="code",
        said=sentences(things, bool(entries)),
        table=table,
        entries=[*entries, {"commits": [list(thing.commits) for thing in things]}],
    )


def sentences(things: Sequence[Trained | Study], differs: bool) -> list[str]:
    """Same code, unknown code, code that is another one today."""
    unknown = [thing.name for thing in things if not thing.versions]
    changed = dict.fromkeys(told(source) for thing in things for source in thing.changed)
    said = [f"Of {joined(unknown, 6)} it is not known which code made it."] if unknown else []
    gone = absent(dict.fromkeys(source for thing in things for source in thing.versions))
    if not unknown and not differs:
        said.append(f"The same code made all of them{'' if gone else ', and it has not changed since'}.")
    if gone:
        said.append(f"Whether {joined(gone, 6)} changed cannot be told, as it is not here: hqlt --with FILE.py ...")
    if changed:
        said.append(f"Today another code than theirs is installed: {joined(list(changed), 6)}.")
    return said


def told(source: str) -> str:
    return "the lab" if source == "lab" else source


def joined_or_nothing(versions: Sequence[str]) -> str:
    return ", ".join(versions) or NOTHING
