"""Compare the code that cells were trained with: hashes of hqlt_lab and of each component, and commits if known.

A component that only one target uses is a difference in settings, not in code.
"""

from collections.abc import Sequence

from hqlt_lab.report.build_tables import Table
from hqlt_lab.report.compare.comparison_section import EMPTY_CELL, ComparisonSection
from hqlt_lab.report.compare.comparison_targets import ComparedCell, ComparedStudy
from hqlt_lab.report.value_formatting import join_names
from hqlt_lab.study.study_snapshot import find_missing_sources

COMMIT_LENGTH = 12  # characters of a commit hash


def compare_code(targets: Sequence[ComparedCell | ComparedStudy]) -> ComparisonSection:
    """Return the code section: one line per source that differs between targets or has changed since training."""
    names = [target.name for target in targets]
    sources = dict.fromkeys(source for target in targets for source in target.hashes_by_source)
    entries = []
    for source in sources:
        versions = [list(target.hashes_by_source.get(source, ())) for target in targets]
        non_empty = [hashes for hashes in versions if hashes]
        changed = [target.name for target in targets if source in target.changed_sources]
        if changed or any(sorted(hashes) != sorted(non_empty[0]) or len(hashes) > 1 for hashes in non_empty):
            entries.append({"source": source, "versions": versions, "changed_since": changed})
    rows = [[source_label(str(entry["source"])), *map(join_hashes, entry["versions"])] for entry in entries]
    commits = [[commit[:COMMIT_LENGTH] for commit in target.commits] for target in targets]
    if any(hashes != commits[0] for hashes in commits[1:]):
        rows.append(["git commit", *map(join_hashes, commits)])
    table = Table(["code", *names], rows) if rows else None
    return ComparisonSection(
        name="code",
        sentences=describe_code(targets, bool(entries)),
        table=table,
        entries=[*entries, {"commits": [list(target.commits) for target in targets]}],
    )


def describe_code(targets: Sequence[ComparedCell | ComparedStudy], has_differences: bool) -> list[str]:
    """Return sentences on whether the code is the same, unknown, or has changed since training."""
    unknown = [target.name for target in targets if not target.hashes_by_source]
    changed = dict.fromkeys(source_label(source) for target in targets for source in target.changed_sources)
    sentences = [f"The code that trained {join_names(unknown, 6)} is not known."] if unknown else []
    missing = find_missing_sources(dict.fromkeys(source for target in targets for source in target.hashes_by_source))
    if not unknown and not has_differences:
        sentences.append(f"All were trained with the same code{'' if missing else ', which has not changed since'}.")
    if missing:
        sentences.append(
            f"Whether {join_names(missing, 6)} changed is unknown, because it is not loaded: use hqlt --with FILE.py."
        )
    if changed:
        sentences.append(f"Changed since training: {join_names(list(changed), 6)}.")
    return sentences


def source_label(source: str) -> str:
    return "hqlt_lab" if source == "lab" else source


def join_hashes(hashes: Sequence[str]) -> str:
    return ", ".join(hashes) or EMPTY_CELL
