"""What a trained cell answered to lm-eval's tasks, each with the protocol it was asked by.

    [{"task": "piqa", "lesion": null, "protocol": {"harness": "0.4.13", "length": 2048, ...},
      "metrics": {"eval/piqa/acc": 66.2, ...}, ...}, ...]

In a file of the cell's folder, a task at a time, readable without torch.  The same task by another protocol stands
beside the first one: a look at ten documents never replaces an answer to all.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean

from hqlt_lab.experiment.evaluation import SETS, average
from hqlt_lab.files import changing, read_json, write

FILE = "harness.json"
SAMPLES = "samples"


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a task was asked: numbers by different protocols are not put beside each other."""

    harness: str  # lm-eval's version
    length: int  # tokens of context
    limit: int | None  # documents that were asked for; None: all
    source: str  # digest of the files that stand for the hub's data and for lm-eval's own definition; "": none do
    version: str = ""  # the task's own
    config: str = ""  # digest of its prompt, metrics and splits
    data: str = ""  # digest of the documents
    documents: int = 0  # that there were
    shots: int = 0

    @property
    def asked(self) -> tuple[str, int, int | None, str]:
        """What is known of it before the task is loaded."""
        return self.harness, self.length, self.limit, self.source

    def __str__(self) -> str:
        some = f"the first {self.limit} documents" if self.limit else f"all {self.documents} documents"
        told = [f"lm-eval {self.harness}", f"length {self.length}", f"{self.shots} shots", some]
        return ", ".join([*told, f"data {self.data[:6]}", f"task version {self.version} {self.config[:6]}"])


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One task, asked once."""

    task: str
    lesion: str | None  # the memory that was silent
    protocol: Protocol
    metrics: dict[str, float]  # eval/piqa/acc: accuracies in percent
    errors: dict[str, float] = field(default_factory=dict)  # their standard errors over the documents
    truncated: int = 0  # texts that were longer than the context
    samples: str = ""  # the file with every document and what was answered
    time: int = field(default_factory=lambda: time.time_ns() // 1_000_000)  # milliseconds since 1970

    def answers(self, task: str, lesion: str | None, protocol: Protocol) -> bool:
        """Whether that was asked here, as far as one can tell before the task is loaded."""
        return (self.task, self.lesion, self.protocol.asked) == (task, lesion, protocol.asked)


def answers_in(folder: Path) -> list[Answer]:
    """All that were given by the cell in this folder."""
    told = read_json(folder / FILE) if os.path.exists(f"{folder}/{FILE}") else []  # most cells have none
    return [Answer(**(one | {"protocol": Protocol(**one["protocol"])})) for one in told]


def add_answer(folder: Path, answer: Answer) -> None:
    """Write one down, in place of what was known by the same protocol."""
    with changing(folder / FILE):
        others = [one for one in answers_in(folder) if not one.answers(answer.task, answer.lesion, answer.protocol)]
        write(folder / FILE, json.dumps([asdict(one) for one in [*others, answer]], indent=1) + "\n")


def shown(answers: Sequence[Answer]) -> list[Answer]:
    """Of each task the answer to show: one to all documents if there is one, and then the latest."""
    best: dict[tuple[str, str | None], Answer] = {}
    for one in sorted(answers, key=lambda one: (one.protocol.limit is None, one.time)):
        best[one.task, one.lesion] = one
    return list(best.values())


@dataclass(frozen=True)
class Number:
    """One metric, and how it was made."""

    value: float
    protocols: tuple[Protocol, ...]  # several: it is an average
    error: float | None
    time: int

    @property
    def made_by(self) -> str:
        return "; ".join(map(str, self.protocols))


def numbers_of(answers: Sequence[Answer]) -> dict[str, Number]:
    """Every metric of these answers by its name, those of a lesion as without_fw/..., and the sets' averages."""
    found: dict[str, Number] = {}
    for one in answers:
        for name, value in one.metrics.items():
            found[prefix(one.lesion) + name] = Number(value, (one.protocol,), one.errors.get(name), one.time)
    for lesion in dict.fromkeys(one.lesion for one in answers):
        found |= averages(found, prefix(lesion))
    return found


def averages(found: Mapping[str, Number], before: str) -> dict[str, Number]:
    """Of each set of which every accuracy is there, at one length, by one lm-eval, all in full or all in part."""
    made = {}
    for name, columns in SETS.items():
        parts = [found[before + column.name] for column in columns if column.counts and before + column.name in found]
        protocols = tuple(protocol for part in parts for protocol in part.protocols)
        alike = {(protocol.harness, protocol.length, protocol.limit) for protocol in protocols}
        if len(parts) == sum(column.counts for column in columns) and len(alike) == 1:
            value, when = fmean(part.value for part in parts), max(part.time for part in parts)
            made[before + average(name)] = Number(value, protocols, None, when)
    return made


def prefix(lesion: str | None) -> str:
    return f"without_{lesion}/" if lesion else ""
