"""harness.json: results of a trained cell on lm-eval tasks, each with the protocol it was evaluated by.

    [{"task": "piqa", "lesion": null, "protocol": {"harness": "0.4.13", "length": 2048, ...},
      "metrics": {"eval/piqa/acc": 66.2, ...}, ...}, ...]

Results of one task by different protocols are stored side by side: a test on ten documents never replaces a result on
all of them.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean

from hqlt_lab.experiment.lm_eval_section import TASK_SETS, average_metric
from hqlt_lab.file_lock import locked_update
from hqlt_lab.files import check_numbers, check_types, read_json, translate_damage, write_atomic

LM_EVAL_FILE = "harness.json"
SAMPLES_DIR = "samples"
TASK_RESULT_TYPES: Mapping[str, tuple[type, ...]] = {
    "task": (str,), "lesion": (str, type(None)), "protocol": (dict,), "metrics": (dict,), "errors": (dict,),
    "truncated": (int,), "samples": (str,), "time": (int,),
}  # fmt: skip
PROTOCOL_TYPES: Mapping[str, tuple[type, ...]] = {
    "harness": (str,), "length": (int,), "limit": (int, type(None)), "source": (str,), "version": (str,),
    "config": (str,), "data": (str,), "documents": (int,), "shots": (int,),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EvalProtocol:
    """How a task was evaluated.  Numbers of different protocols are not comparable."""

    harness: str  # version of lm-eval
    length: int  # tokens of context
    limit: int | None  # maximum number of documents; None: all
    source: str  # digest of local files that replace the hub's data or lm-eval's task definition; "": none do
    version: str = ""  # version of the task
    config: str = ""  # digest of its prompt, metrics and splits
    data: str = ""  # digest of the documents
    documents: int = 0  # number of documents in the task
    shots: int = 0

    @property
    def is_partial(self) -> bool:
        """Whether only the first documents of the task were evaluated."""
        return bool(self.limit)

    @property
    def request_key(self) -> tuple[str, int, int | None, str]:
        """The fields that are known before the task is loaded."""
        return self.harness, self.length, self.limit, self.source

    @property
    def short_text(self) -> str:
        """The settings that the tasks of a study usually share, such as "lm-eval 0.4.9, length 2048, 0 shots"."""
        return f"lm-eval {self.harness}, length {self.length}, {self.shots} shots"

    def __str__(self) -> str:
        documents = f"the first {self.limit} documents" if self.is_partial else f"all {self.documents} documents"
        digests = [f"data {self.data[:6]}", f"task version {self.version} {self.config[:6]}"]
        return ", ".join([self.short_text, documents, *digests])


Protocols = tuple[EvalProtocol, ...]  # of one metric; more than one: its value is an average over tasks


def format_protocols(protocols: Protocols) -> str:
    """Return the protocols of one metric as text."""
    return "; ".join(map(str, protocols))


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """The result of evaluating one task once."""

    task: str
    lesion: str | None  # the ablated memory
    protocol: EvalProtocol
    metrics: dict[str, float]  # eval/piqa/acc: accuracies in percent
    errors: dict[str, float] = field(default_factory=dict)  # standard errors over the documents, by metric
    truncated: int = 0  # number of texts that were longer than the context
    samples: str = ""  # the file with every document and the model's output
    time: int = field(default_factory=lambda: time.time_ns() // 1_000_000)  # Unix time in milliseconds

    def matches_request(self, task: str, lesion: str | None, protocol: EvalProtocol) -> bool:
        """Return whether this is the result of such a request; compare only what is known before the task is loaded."""
        return (self.task, self.lesion, self.protocol.request_key) == (task, lesion, protocol.request_key)


def read_task_results(folder: Path) -> list[TaskResult]:
    """Return all lm-eval results of the cell in this folder."""
    # most cells have no such file, and os.path is faster than Path
    path = f"{folder}/{LM_EVAL_FILE}"
    rows = read_json(path, list, allow_nan=True) if os.path.exists(path) else []
    with translate_damage(path):
        for row in rows:
            check_types(row, TASK_RESULT_TYPES)
            check_types(row["protocol"], PROTOCOL_TYPES)
            for name in ("metrics", "errors"):
                check_numbers(row.get(name, {}))
        return [TaskResult(**(row | {"protocol": EvalProtocol(**row["protocol"])})) for row in rows]


def add_task_result(folder: Path, result: TaskResult) -> None:
    """Add a result to harness.json; it replaces an earlier one of the same request."""
    with locked_update(folder / LM_EVAL_FILE):
        other_results = [
            other
            for other in read_task_results(folder)
            if not other.matches_request(result.task, result.lesion, result.protocol)
        ]
        records = [asdict(task_result) for task_result in [*other_results, result]]
        write_atomic(folder / LM_EVAL_FILE, json.dumps(records, indent=1) + "\n")


def latest_complete_results(results: Sequence[TaskResult]) -> list[TaskResult]:
    """Return one result per task and lesion: the latest on all documents, or the latest if none is on all."""
    best: dict[tuple[str, str | None], TaskResult] = {}
    for result in sorted(results, key=lambda result: (result.protocol.limit is None, result.time)):
        best[result.task, result.lesion] = result
    return list(best.values())


@dataclass(frozen=True)
class MetricValue:
    """The value of one metric, with the protocols it was measured by."""

    value: float
    protocols: Protocols
    error: float | None
    time: int


def collect_metric_values(results: Sequence[TaskResult]) -> dict[str, MetricValue]:
    """Return every metric of the results by name (with a lesion: without_fw/...) and the averages of task sets."""
    metric_values: dict[str, MetricValue] = {}
    for result in results:
        for name, value in result.metrics.items():
            metric_values[lesion_prefix(result.lesion) + name] = MetricValue(
                value, (result.protocol,), result.errors.get(name), result.time
            )
    for lesion in dict.fromkeys(result.lesion for result in results):
        metric_values |= task_set_averages(metric_values, lesion_prefix(lesion))
    return metric_values


def task_set_averages(metric_values: Mapping[str, MetricValue], name_prefix: str) -> dict[str, MetricValue]:
    """Return the average of each complete task set whose results share lm-eval version, length and limit."""
    averages = {}
    for name, columns in TASK_SETS.items():
        values = [
            metric_values[name_prefix + column.name]
            for column in columns
            if column.is_averaged and name_prefix + column.name in metric_values
        ]
        protocols = tuple(protocol for value in values for protocol in value.protocols)
        settings = {(protocol.harness, protocol.length, protocol.limit) for protocol in protocols}
        if len(values) == sum(column.is_averaged for column in columns) and len(settings) == 1:
            mean, latest = fmean(value.value for value in values), max(value.time for value in values)
            averages[name_prefix + average_metric(name)] = MetricValue(mean, protocols, None, latest)
    return averages


def lesion_prefix(lesion: str | None) -> str:
    """Return the prefix of the names of metrics that were measured with this memory disabled."""
    return f"without_{lesion}/" if lesion else ""
