"""Numbers of lm-eval stand beside each other only if they were made alike: same task version, length, documents.

Of each metric the protocol of most cells counts, one that asked all documents before others; what was made otherwise
is left out of the rows, and the reader is told.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hqlt_lab.report.words import joined
from hqlt_lab.study.record import Record

PART = "the first "  # documents: how a protocol says that it is not about all


def alike(records: Sequence[Record]) -> list[Record]:
    """The records without numbers that were made otherwise than most."""
    chosen = protocols(records)
    return [without(record, otherwise(record, chosen)) for record in records]


def protocols(records: Sequence[Record]) -> dict[str, str]:
    """By metric, the one that counts."""
    found: dict[str, Counter[str]] = {}
    for record in records:
        for metric, protocol in record.made_by.items():
            found.setdefault(metric, Counter())[protocol] += 1
    return {metric: max(some, key=lambda one: (PART not in one, some[one])) for metric, some in found.items()}


def otherwise(record: Record, chosen: dict[str, str]) -> list[str]:
    """The metrics of a record that were made in another way."""
    return [metric for metric, protocol in record.made_by.items() if chosen[metric] != protocol]


def without(record: Record, metrics: Sequence[str]) -> Record:
    if not metrics:
        return record
    kept = {name: value for name, value in record.metrics.items() if name not in metrics}
    return replace(record, metrics=kept)


def mixed(records: Sequence[Record], reported: Sequence[str]) -> list[str]:
    """A sentence for each reported metric whose numbers were made in several ways."""
    chosen, told = protocols(records), []
    for metric in (metric for metric in reported if metric in chosen):
        arms = dict.fromkeys(record.arm for record in records if metric in otherwise(record, chosen))
        others = dict.fromkeys(record.made_by[metric] for record in records if metric in otherwise(record, chosen))
        if arms:
            told.append(
                f"{metric}: {joined(list(arms), 6)} was asked otherwise ({joined(list(others), 2)}) than the rest "
                f"({chosen[metric]}), and is left out. `hqlt evaluate` asks it again."
            )
    return told


def asked_by(records: Sequence[Record], reported: Sequence[str]) -> list[str]:
    """How the reported numbers of lm-eval were made, in short; the JSON report has all of it."""
    chosen = protocols(records)
    single = [one for metric in reported for one in chosen.get(metric, "").split("; ") if one]
    brief = dict.fromkeys(", ".join(one.split(", ")[:3]) + (", in part" if PART in one else "") for one in single)
    return [f"eval/: {told}." for told in brief]
