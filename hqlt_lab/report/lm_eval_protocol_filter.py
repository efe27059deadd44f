"""Drop lm-eval results that were measured with a different protocol: task version, length, number of documents.

For each metric the protocol of most cells is used, with preference for one that evaluated all documents. Results of
other protocols are left out of the rows, with a warning.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hqlt_lab.report.value_formatting import join_names
from hqlt_lab.rundir.lm_eval_results import Protocols, format_protocols
from hqlt_lab.study.ledger.cell_record import CellRecord


def drop_other_protocols(records: Sequence[CellRecord]) -> list[CellRecord]:
    """Return the records without metrics that were not measured with the majority protocol."""
    protocol_by_metric = majority_protocols(records)
    return [drop_metrics(record, metrics_of_other_protocol(record, protocol_by_metric)) for record in records]


def majority_protocols(records: Sequence[CellRecord]) -> dict[str, Protocols]:
    """Return the protocol used for each metric: that of most cells, protocols over all documents first."""
    counts_by_metric: dict[str, Counter[Protocols]] = {}
    for record in records:
        for metric, protocols in record.protocols.items():
            counts_by_metric.setdefault(metric, Counter())[protocols] += 1
    return {
        metric: max(
            counts, key=lambda protocols: (not any(protocol.is_partial for protocol in protocols), counts[protocols])
        )
        for metric, counts in counts_by_metric.items()
    }


def metrics_of_other_protocol(record: CellRecord, protocol_by_metric: dict[str, Protocols]) -> list[str]:
    """Return the metrics of a record that were measured with another protocol than the given one."""
    return [metric for metric, protocols in record.protocols.items() if protocol_by_metric[metric] != protocols]


def drop_metrics(record: CellRecord, metrics: Sequence[str]) -> CellRecord:
    if not metrics:
        return record
    remaining = {name: value for name, value in record.metrics.items() if name not in metrics}
    return replace(record, metrics=remaining)


def describe_mixed_protocols(records: Sequence[CellRecord], metrics: Sequence[str]) -> list[str]:
    """Return a warning for each reported metric that was measured with several protocols."""
    chosen, warnings = majority_protocols(records), []
    for metric in (metric for metric in metrics if metric in chosen):
        arms = dict.fromkeys(record.arm for record in records if metric in metrics_of_other_protocol(record, chosen))
        other_protocols = dict.fromkeys(
            format_protocols(record.protocols[metric])
            for record in records
            if metric in metrics_of_other_protocol(record, chosen)
        )
        if arms:
            warnings.append(
                f"{metric}: {join_names(list(arms), 6)} omitted, because the lm-eval protocol "
                f"({join_names(list(other_protocols), 2)}) differs from that of the other arms "
                f"({format_protocols(chosen[metric])}). `hqlt lm-eval` evaluates again."
            )
    return warnings


def protocol_notes(records: Sequence[CellRecord], metrics: Sequence[str]) -> list[str]:
    """Return short notes on the lm-eval protocols of the reported metrics; the JSON report has the full protocols."""
    chosen = majority_protocols(records)
    protocols = [protocol for metric in metrics for protocol in chosen.get(metric, ())]
    notes = dict.fromkeys(
        protocol.short_text + (", on a part of the documents" if protocol.is_partial else "") for protocol in protocols
    )
    return [f"eval/: {note}." for note in notes]
