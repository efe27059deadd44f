"""Prepare and train a study: open the ledger, select the cells, create the executor and run the coordinator.

Running a study again resumes it: settled cells are skipped, interrupted ones continue from their checkpoint in the same
MLflow run, failed ones are retried up to a limit, and cells that are new in the file are added.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hqlt_lab.errors import StoreError, issues_under
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.cell_filters import cell_labels, matches_filters, parse_filters, select_items
from hqlt_lab.experiment.expand_cells import PlannedCell
from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.hashing import hash_json
from hqlt_lab.registry import build
from hqlt_lab.rundir.cell_state import SETTLED_STATES, CellState
from hqlt_lab.study.coordinator import Coordinator, RunSink, cell_info_from_record
from hqlt_lab.study.eta import EtaEstimator, Workload, sum_tallies_by_arm
from hqlt_lab.study.executors._base import Executor
from hqlt_lab.study.executors.launch_context import LaunchContext
from hqlt_lab.study.experiment_file_record import open_study
from hqlt_lab.study.ledger.attempt_history import AttemptHistory
from hqlt_lab.study.ledger.cell_record import CellRecord, CellRef, CellStates, count_unsuccessful
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.study.plan.sequential_testing_record import apply_recorded_looks, write_looks
from hqlt_lab.study.plan.study_plan import StudyPlan
from hqlt_lab.study.study_callback import StudyCallback
from hqlt_lab.track.study_description import CellInfo


@dataclass(frozen=True, kw_only=True)
class CellSelection:
    """Options that select the cells to train now."""

    only: Sequence[str] = ()
    limit: int | None = None
    again: bool = False  # also train settled cells again


def open_plan(experiment: Experiment, store: StudyStore) -> StudyPlan:
    """Return the plan of an experiment, with the state of its cells in the ledger."""
    from hqlt_lab.study.ledger.ledger import Ledger

    experiment = apply_recorded_looks(experiment, store.folder)
    return StudyPlan(experiment, Ledger(store, experiment.measure.direction, make_pruner(experiment)), store)


def make_pruner(experiment: Experiment) -> Any:
    """Return the pruner for an experiment with `prune`: it stops cells below the median of their arm at that step."""
    import optuna

    if experiment.prune is None:
        return None
    return optuna.pruners.MedianPruner(
        n_startup_trials=experiment.prune.finished, n_warmup_steps=experiment.prune.after
    )


def make_cell_filter(experiment: Experiment, plan: StudyPlan, only: Sequence[str]) -> Callable[[CellRef], bool]:
    """Return a predicate for the conditions of `only`; raise for conditions that no cell can satisfy."""
    if not only:
        return lambda cell_ref: True
    experiment = plan.experiment  # with the looks that were taken
    seeds = {*experiment.final_seeds, *(experiment.tune_seeds if experiment.has_tuning_cells else ())}
    labels = [cell_labels(arm.name, seed, arm.levels) for arm in experiment.arms for seed in sorted(seeds)]
    labels += [plan.cell_labels(cell_ref) for cell_ref in plan.list_cells()]
    select_items(labels, labels, only)
    filters = parse_filters(only)
    return lambda cell_ref: matches_filters(plan.cell_labels(cell_ref), filters)


def list_cell_states(
    experiment: Experiment, planned: Sequence[PlannedCell], root: str | Path, only: Sequence[str]
) -> list[tuple[str, CellState]]:
    """Return arm and state of every cell, without loading full records; `planned` are the cells of a grid."""
    store = open_study(root, experiment.file)
    if experiment.has_tuning_cells or experiment.looks:
        plan = open_plan(experiment, store)
        is_selected = make_cell_filter(experiment, plan, only)
        return [(ref.arm.title, plan.cell_state(ref)) for ref in plan.list_cells() if is_selected(ref)]
    cell_states = CellStates(AttemptHistory(store), store, experiment.launcher.get("retries", 0))
    return [(cell.arm, cell_states.cell_state(key)) for key, cell in planned]


def forget_cells(experiment: Experiment, root: str | Path, only: Sequence[str]) -> list[CellRecord]:
    """Mark all attempts at these cells as superseded; return their records before that."""
    store = open_study(root, experiment.file)
    with store.session():
        plan = open_plan(experiment, store)
        is_selected = make_cell_filter(experiment, plan, only)
        with plan.ledger.claim_lock():
            plan.ledger.close_orphans()
            return supersede_cells(plan, is_selected)


def supersede_cells(plan: StudyPlan, cell_filter: Callable[[CellRef], bool]) -> list[CellRecord]:
    """Increase the generation of every selected cell that has attempts, and return their records before that.

    Raise StoreError if other workers are running.
    """
    if other_workers := plan.store.other_workers():
        raise StoreError(
            f"{plan.store.folder}: other processes are running this study ({'; '.join(other_workers)}). Stop them "
            "before you mark cells as superseded."
        )
    records = [plan.cell_record(cell_ref) for cell_ref in plan.list_cells() if cell_filter(cell_ref)]
    attempted = [record for record in records if record.attempts]
    plan.ledger.supersede_cells(record.key for record in attempted)
    return attempted


def collect_cell_infos(plan: StudyPlan) -> list[CellInfo]:
    """Return the descriptions for MLflow of every cell with attempts, superseded generations included."""
    cells = {cell_ref.key: plan.representative_cell(cell_ref) for cell_ref in plan.list_cells()}
    attempted = [record for record in plan.list_records() if record.attempts]
    return [cell_info_from_record(cells[record.key], record) for record in [*plan.list_superseded(), *attempted]]


@dataclass(frozen=True, kw_only=True)
class PreparedStudy:
    """A study that is ready to be trained: all options have been validated."""

    plan: StudyPlan
    cell_filter: Callable[[CellRef], bool]
    waiting_cells: list[CellRef]  # waiting cells that are known now; searches add final cells later
    executor: Executor


def prepare_study(
    experiment: Experiment,
    store: StudyStore,
    selection: CellSelection,
    as_worker: bool = False,
    env: Mapping[str, str] | None = None,
) -> PreparedStudy:
    """Open the ledger, close the attempts of dead workers, select the cells and create the executor.

    The caller holds the store's session.  With `as_worker` the cells are trained on this machine, whatever the
    launcher; otherwise a launcher of remote workers passes `env` on to them.
    """
    plan = open_plan(experiment, store)
    is_selected = make_cell_filter(experiment, plan, selection.only)
    launcher = build(
        "launcher", experiment.launcher, context=make_launch_context(experiment, store, selection, env or {})
    )
    check_tasks(plan.representative_cell(cell_ref) for cell_ref in plan.list_cells() if is_selected(cell_ref))
    with plan.ledger.claim_lock():
        # another process may have superseded cells before this one was in its list of workers
        plan.ledger.read_generations()
        plan.ledger.close_orphans()
        if selection.again:
            supersede_cells(plan, is_selected)
    by_state: dict[str, list[CellRef]] = {"waiting": [], "running": []}
    for cell_ref in filter(is_selected, plan.list_cells()):
        by_state.setdefault(plan.cell_state(cell_ref), []).append(cell_ref)
    # Running cells of other workers may return to the queue, and searches and looks add final cells.
    cells = [plan.representative_cell(cell_ref) for cell_ref in (*by_state["waiting"], *by_state["running"])]
    added_cells = [*plan.pending_final_cells(), *(plan.next_look_cells() if cells else ())]
    cells += [plan.first_cell_by_arm[ref.arm.title] for ref in added_cells if is_selected(ref)]
    make_executor = launcher.make_worker_executor if as_worker else launcher.make_executor
    return PreparedStudy(
        plan=plan,
        cell_filter=is_selected,
        waiting_cells=by_state["waiting"][: selection.limit],
        executor=make_executor(cells[: selection.limit]),
    )


def make_launch_context(
    experiment: Experiment, store: StudyStore, selection: CellSelection, env: Mapping[str, str]
) -> LaunchContext:
    """Return the arguments with which workers on other machines join this study."""
    return LaunchContext(
        file=experiment.file,
        overrides=experiment.overrides,
        only=tuple(selection.only),
        runs=store.root,
        study_folder=store.folder,
        is_shared=store.backend.is_shared,
        limit=selection.limit,
        env=env,
    )


def check_tasks(cells: Iterable[Cell]) -> None:
    """Raise if the data of a task are missing, before any cell starts; each distinct task is checked once."""
    for task_config in {hash_json(cell.task): cell.task for cell in cells}.values():
        task = build("task", task_config)
        with issues_under("task"):
            task.check_ready()


def make_eta_estimator(study: PreparedStudy, limit: int | None, records: Sequence[CellRecord]) -> EtaEstimator:
    """Return the estimator of the remaining time, from the cells to train and the time per step of finished ones."""
    plan = study.plan
    waiting = {
        cell_ref.key: Workload(cell_ref.arm.title, plan.representative_cell(cell_ref).train.steps)
        for cell_ref in study.waiting_cells
    }
    arms = [cell_ref.arm.title for cell_ref in plan.pending_final_cells() if study.cell_filter(cell_ref)]
    pending = [Workload(arm, plan.first_cell_by_arm[arm].train.steps) for arm in arms]
    pending = pending if limit is None else pending[: limit - len(waiting)]
    return EtaEstimator(waiting, study.executor.workers, pending, sum_tallies_by_arm(records))


def train_study(study: PreparedStudy, limit: int | None, callback: StudyCallback, run_sink: RunSink) -> bool:
    """Train the waiting cells; return False if interrupted."""
    plan, executor = study.plan, study.executor
    for cell_info in collect_cell_infos(plan):
        if cell_info.state != "running":  # the worker that trains it reports it
            run_sink.enqueue(cell_info)
    write_looks(plan.store.folder, plan.evaluate_looks().counts)  # a crash may have come before
    records = plan.list_records()
    callback.on_study_start(
        make_eta_estimator(study, limit, records),
        sum(record.state in SETTLED_STATES for record in records),
        plan.total_cells,
        count_unsuccessful(record.state for record in records),
    )
    try:
        if not study.waiting_cells and not plan.store.backend.is_shared:
            return True
        return Coordinator(plan, executor, run_sink, callback, study.cell_filter, limit).run_until_done()
    finally:
        executor.close()
