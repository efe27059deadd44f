"""Reference to a planned cell, its state derived from its attempts, and the record that reports and `hqlt status` show.

Only the ledger, the run folders and a reference to the cell are read, neither the experiment file nor a model, so torch
is not imported.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.load_experiment import Arm
from hqlt_lab.hashing import hash_json
from hqlt_lab.rundir.cell_file import lock_wait_message
from hqlt_lab.rundir.cell_state import UNSUCCESSFUL_STATES, CellState
from hqlt_lab.rundir.lm_eval_results import Protocols, collect_metric_values, latest_complete_results, read_task_results
from hqlt_lab.rundir.metrics import read_last_step
from hqlt_lab.rundir.sync_state import read_sync_state
from hqlt_lab.study.ledger.attempt_history import Attempt, AttemptHistory
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.track.provenance import current_code_hashes


def count_unsuccessful(states: Iterable[str]) -> Counter[str]:
    """Count the cells that failed and those that diverged, by state."""
    return Counter(state for state in states if state in UNSUCCESSFUL_STATES)


def format_unsuccessful(counts: Mapping[str, int]) -> str:
    """Return ", 2 failed, 1 diverged" to follow a number of settled cells, or "" if all of them have a result."""
    return "".join(f", {counts[state]} {state}" for state in UNSUCCESSFUL_STATES if counts.get(state))


def add_lm_eval_results(outcome: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the outcome of a cell with the lm-eval results in its folder added."""
    metric_values = collect_metric_values(latest_complete_results(read_task_results(folder)))
    if not metric_values:
        return dict(outcome)
    values = {name: metric.value for name, metric in metric_values.items()}
    errors = {name: metric.error for name, metric in metric_values.items() if metric.error is not None}
    return dict(outcome) | {
        "metrics": {**outcome.get("metrics", {}), **values},
        "errors": {**outcome.get("errors", {}), **errors},
        "protocols": {name: metric.protocols for name, metric in metric_values.items()},
    }


@dataclass(frozen=True, kw_only=True)
class CellRef:
    """One planned cell."""

    key: str
    arm: Arm
    seed: int
    point: Mapping[str, Any] | None = None  # tuned path -> value; None: sampled later, see `StudyPlan.resolve_point`
    point_index: int | None = None  # index of the searched point; None: not part of a search

    @property
    def is_reported(self) -> bool:
        """False for a cell that only serves to find the best point of a search."""
        return self.point_index is None


@dataclass(frozen=True, kw_only=True)
class CellRecord:
    """One cell: its settings, its state and its results."""

    key: str
    arm: ArmTitle
    seed: int
    levels: Mapping[str, Any] = field(default_factory=dict)  # crossed path -> value
    point: Mapping[str, Any] = field(default_factory=dict)  # tuned path -> value
    is_reported: bool = True  # False: only used to find the best point of a search
    state: CellState = "waiting"
    attempts: int = 0
    why: str = ""  # reason of a failure or of an early end; of a running cell: what it waits for
    step: int = 0  # optimizer steps done
    metrics: Mapping[str, float] = field(default_factory=dict)  # valid/..., test/..., train/loss
    seconds: float = 0.0
    tokens_per_second: float = 0.0
    parameters: int = 0
    state_bytes: int = 0  # recurrent state of one row after the longest training sequence
    flops_per_token: float = 0.0  # of training
    errors: Mapping[str, float] = field(default_factory=dict)  # standard error over test examples, by test metric
    protocols: Mapping[str, Protocols] = field(default_factory=dict)  # by lm-eval metric
    repeatable: bool | None = None  # first step gave the same result twice; None: not checked
    warnings: Sequence[str] = ()  # analyses of the model that failed, one sentence each
    code: Mapping[str, str] = field(default_factory=dict)  # source hashes: "lab", and each component as "kind name"
    changed: tuple[str, ...] = ()  # names of sources in `code` that differ from the current ones
    folder: Path = Path()  # checkpoint, metrics and log
    run: str | None = None  # id of its MLflow run


OUTCOME_FIELDS = (
    "step", "metrics", "seconds", "tokens_per_second", "parameters", "state_bytes", "flops_per_token", "errors",
    "repeatable", "warnings",
)  # fmt: skip


class CellStates:
    """Derives states and records of cells from the ledger and run folders; failed cells are retried `retries` times."""

    def __init__(self, ledger: AttemptHistory, store: StudyStore, retries: int) -> None:
        self.ledger, self.store, self.retries = ledger, store, retries

    def cell_state(self, key: str) -> CellState:
        """Return the state of a cell without reading its results."""
        return self.derive_state(self.ledger.get_attempts(key))

    def cell_record(self, cell_ref: CellRef, point: Mapping[str, Any]) -> CellRecord:
        """Return the record of a cell in its current generation."""
        attempts = self.ledger.get_attempts(cell_ref.key)
        generation = self.ledger.generations.get(cell_ref.key, 0)
        return self.build_record(cell_ref, point, attempts, self.derive_state(attempts), generation)

    def list_superseded(self, cell_ref: CellRef, point: Mapping[str, Any]) -> list[CellRecord]:
        """Return a record of each superseded generation of a cell."""
        older_generations = range(self.ledger.generations.get(cell_ref.key, 0))
        return [
            self.build_record(
                cell_ref, point, self.ledger.get_attempts(cell_ref.key, generation), "superseded", generation
            )
            for generation in older_generations
        ]

    def build_record(
        self, cell_ref: CellRef, point: Mapping[str, Any], attempts: list[Attempt], state: CellState, generation: int
    ) -> CellRecord:
        """Return the record of one generation of a cell from its attempts."""
        result = attempts[-1].result if attempts else {}
        outcome: dict[str, Any] = {name: result[name] for name in OUTCOME_FIELDS if name in result}
        folder = self.store.cell_folder(cell_ref.key, generation)
        if state == "done":
            outcome = add_lm_eval_results(outcome, folder)
        # a killed attempt has no step in the ledger
        if state == "running" or (state == "waiting" and attempts and not outcome.get("step")):
            outcome["step"] = read_last_step(folder)
        return CellRecord(
            key=cell_ref.key,
            arm=cell_ref.arm.title,
            seed=cell_ref.seed,
            levels=cell_ref.arm.levels,
            point=point,
            is_reported=cell_ref.is_reported,
            state=state,
            attempts=len(attempts),
            why=lock_wait_message(folder) if state == "running" else result.get("why", ""),
            code=attempts[-1].code_hashes if attempts else {},
            changed=find_changed_sources(attempts[-1].code_hashes) if state == "done" else (),
            folder=folder,
            run=sync_state.run if attempts and (sync_state := read_sync_state(folder)) else None,
            **outcome,
        )

    def derive_state(self, attempts: list[Attempt]) -> CellState:
        """Return the state of a cell from its attempts; failures with another version of the code are retried."""
        status = attempts[-1].status if attempts else "interrupted"
        if status in ("done", "diverged", "pruned"):
            return status  # type: ignore[return-value]
        if status == "running":
            return (
                "running"
                if self.ledger.is_worker_alive(attempts[-1].cell_attributes.get("worker_id", ""))
                else "waiting"
            )
        if status == "failed" and self.retries_exhausted(attempts):
            return "failed"
        return "waiting"

    def retries_exhausted(self, attempts: list[Attempt]) -> bool:
        """Return whether a failed cell gets no further attempt."""
        failed = [
            attempt
            for attempt in attempts
            if attempt.status == "failed" and not has_code_changed(attempt.cell_attributes["code"])
        ]
        return bool(failed) and (
            failed[-1].result.get("permanent", False) or len(failed) > self.retries or is_same_error(failed[-2:])
        )


def is_same_error(attempts: Sequence[Attempt]) -> bool:
    """Return whether two attempts raised the same exception in the same line after the same step."""
    errors = [(attempt.result.get("signature", ""), attempt.result.get("step")) for attempt in attempts]
    return len(errors) == 2 and errors[0] == errors[1] and bool(errors[0][0])


def find_changed_sources(code: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of sources that are available here and differ from those that a cell was trained with."""
    current = current_code_hashes(code)
    return tuple(name for name, source_hash in code.items() if current.get(name, source_hash) != source_hash)


def has_code_changed(code: Mapping[str, str]) -> bool:
    """Return whether any source has changed or is no longer available."""
    return current_code_hashes(code) != code


def group_by_point(records: Sequence[CellRecord]) -> list[tuple[Mapping[str, Any], list[CellRecord]]]:
    """Group the records of an arm by tuned point, in the order in which the points first appear."""
    groups: dict[str, tuple[Mapping[str, Any], list[CellRecord]]] = {}
    for record in records:
        groups.setdefault(hash_json(record.point), (record.point, []))[1].append(record)
    return list(groups.values())
