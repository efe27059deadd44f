"""The plan of a study: which cells are trained, and in which order.

In a grid each listed point is a cell for every seed.  In a search each arm has `trials` points, whose values the
sampler proposes one after the other, and each point is trained on the tuning seeds.  Once all of them are settled, the
best point is trained on the other seeds:

    is_reported = False     (arm, point index, tuning seed)     finds the best point
    is_reported = True      (arm, best point, seed)             is reported

Cells are ordered by seed, then point, then arm, so that arms can be compared as early as possible.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.cell_filters import cell_labels
from hqlt_lab.experiment.cell_key import cell_key
from hqlt_lab.experiment.expand_cells import expand_seeds, iter_points
from hqlt_lab.experiment.load_experiment import Arm, Experiment
from hqlt_lab.files import read_json
from hqlt_lab.hashing import hash_json
from hqlt_lab.rundir import cell_file
from hqlt_lab.rundir.cell_state import SETTLED_STATES, CellState
from hqlt_lab.study.ledger.cell_record import CellRecord, CellRef, CellStates
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.study.plan.search_space import build_search_space, count_trials, params_from_point, point_from_params
from hqlt_lab.study.plan.select_point import select_point

if TYPE_CHECKING:
    from hqlt_lab.study.ledger.ledger import Ledger


class StudyPlan:
    """All cells of an experiment that are known so far, with their state in the ledger."""

    def __init__(self, experiment: Experiment, ledger: "Ledger", store: StudyStore) -> None:
        self.experiment, self.ledger, self.store = experiment, ledger, store
        self.cell_states = CellStates(ledger, store, experiment.launcher.get("retries", 0))
        self.search_space = build_search_space(experiment.tune)
        self.cells_by_key: dict[str, Cell] = {}  # settings of every cell that was built so far

    @cached_property
    def first_cell_by_arm(self) -> dict[str, Cell]:
        """The cell of each arm at its first point, with seed 0, by the arm's title."""
        point = next(iter_points(self.experiment.tune))
        return {arm.title: self.experiment.make_cell(arm, point, 0) for arm in self.experiment.arms}

    @cached_property
    def study_name_by_arm(self) -> dict[str, str]:
        """The name of each arm's Optuna study, which ends with a hash of its settings and search space.

        Changed settings thus begin a new Optuna study, and a renamed arm keeps its own.
        """
        names: dict[str, str] = {}
        measure = self.experiment.measure
        for arm in self.experiment.arms:
            settings = [cell_key(self.first_cell_by_arm[arm.title]), measure.select, measure.direction]
            suffix = f"#{hash_json([settings, sorted(map(repr, self.search_space.items()))])[:8]}"
            existing_names = (name for name in self.ledger.study_names if name.endswith(suffix))
            names[arm.title] = next(existing_names, f"{arm.title} {suffix}")
        return names

    def list_cells(self) -> list[CellRef]:
        """Return all cells that are known so far; a search adds its final cells once it is settled."""
        return [*self.search_cells, *self.final_cells()] if self.search_space else self.grid_cells

    @property
    def total_cells(self) -> int:
        """The number of cells once all searches are settled."""
        seeds = len(self.experiment.final_seeds)
        return len(self.search_cells) + seeds * len(self.experiment.arms) if self.search_space else len(self.grid_cells)

    @cached_property
    def grid_cells(self) -> list[CellRef]:
        """The cells of a grid: every point of every arm, for every seed."""
        cells_per_point = [
            self.expand_seeds(arm, point, self.experiment.seeds)
            for point in iter_points(self.experiment.tune)
            for arm in self.experiment.arms
        ]
        return [cell_ref for same_seed in zip(*cells_per_point, strict=True) for cell_ref in same_seed]

    @cached_property
    def search_cells(self) -> list[CellRef]:
        """The cells of a search, on the tuning seeds, that find the best point of each arm."""
        return [
            CellRef(key=self.search_cell_key(arm, n, seed), arm=arm, seed=seed, point_index=n)
            for n in range(count_trials(self.experiment.tune))
            for seed in self.experiment.tune_seeds
            for arm in self.experiment.arms
        ]

    def final_cells(self) -> list[CellRef]:
        """Return the cells at the best point of each arm whose search is settled."""
        best_points = [(arm, point) for arm in self.experiment.arms if (point := self.best_point(arm)) is not None]
        cells_per_arm = [self.expand_seeds(arm, point, self.experiment.final_seeds) for arm, point in best_points]
        return [cell_ref for same_seed in zip(*cells_per_arm, strict=True) for cell_ref in same_seed]

    def pending_final_cells(self) -> list[CellRef]:
        """Return placeholders, without a key, for the final cells of searches that are not settled yet."""
        arms = [arm for arm in self.experiment.arms if self.search_space and self.best_point(arm) is None]
        return [CellRef(key="", arm=arm, seed=seed, point={}) for arm in arms for seed in self.experiment.final_seeds]

    def best_point(self, arm: Arm) -> Mapping[str, Any] | None:
        """Return the best point of an arm's search, or None while the search is not settled."""
        records = [self.cell_record(cell_ref) for cell_ref in self.search_cells if cell_ref.arm == arm]
        is_settled = all(record.state in SETTLED_STATES for record in records)
        return select_point(records, self.experiment.measure) if is_settled else None

    def expand_seeds(self, arm: Arm, point: Mapping[str, Any], seeds: Sequence[int]) -> list[CellRef]:
        """Return the cells of one point with known values, one per seed."""
        planned_cells = expand_seeds(self.experiment.make_cell(arm, point, 0), seeds)
        self.cells_by_key |= dict(planned_cells)
        return [CellRef(key=planned.key, arm=arm, seed=planned.cell.seed, point=point) for planned in planned_cells]

    def search_cell_key(self, arm: Arm, point_index: int, seed: int) -> str:
        """Return the key of a searched cell.

        It depends on the index of the point and not on its values, so that the budget of trials is spent exactly once.
        """
        return hash_json([self.study_name_by_arm[arm.title].rpartition("#")[2], point_index, seed])

    def resolve_point(self, cell_ref: CellRef) -> Mapping[str, Any] | None:
        """Return the tuned values of a cell; None for a searched point of which no seed has been started."""
        if cell_ref.point_index is None:
            return cell_ref.point
        keys = [self.search_cell_key(cell_ref.arm, cell_ref.point_index, seed) for seed in self.experiment.tune_seeds]
        for key in keys:
            for attempt in self.ledger.attempts_by_key.get(key, {}).values():
                return point_from_params(attempt.cell_attributes["values"], self.experiment.tune)
        return next((point for key in keys if (point := self.point_from_folder(key))), None)

    def point_from_folder(self, key: str) -> Mapping[str, Any] | None:
        """Read the tuned values of a searched cell from its folder, in case the journal was lost."""
        file = self.store.cell_folder(key, self.ledger.generations.get(key, 0)) / cell_file.CELL_FILE
        axes = read_json(file, dict, allow_nan=True)["axes"] if file.exists() else {}
        return {path: axes[path] for path in self.experiment.tune} if axes else None

    def cell_labels(self, cell_ref: CellRef) -> dict[str, str]:
        """Return the labels by which `--only` selects a cell."""
        return cell_labels(
            cell_ref.arm.name, cell_ref.seed, {**cell_ref.arm.levels, **(self.resolve_point(cell_ref) or {})}
        )

    def build_cell(self, cell_ref: CellRef, point: Mapping[str, Any]) -> Cell:
        """Return the settings of a cell at a given point."""
        if cell_ref.key not in self.cells_by_key:
            self.cells_by_key[cell_ref.key] = self.experiment.make_cell(cell_ref.arm, point, cell_ref.seed)
        return self.cells_by_key[cell_ref.key]

    def representative_cell(self, cell_ref: CellRef) -> Cell:
        """Return the cell, or the first cell of its arm while its point is unknown, to estimate its resources."""
        point = self.resolve_point(cell_ref)
        return self.first_cell_by_arm[cell_ref.arm.title] if point is None else self.build_cell(cell_ref, point)

    def trial_params(self, cell_ref: CellRef) -> Mapping[str, Any] | None:
        """Return the Optuna parameters of a searched point, or None if no seed of it has been started."""
        point = self.resolve_point(cell_ref)
        return None if point is None else params_from_point(point, self.experiment.tune)

    def cell_record(self, cell_ref: CellRef) -> CellRecord:
        """Return the state of a cell and its results so far."""
        return self.cell_states.cell_record(cell_ref, self.resolve_point(cell_ref) or {})

    def list_superseded(self) -> list[CellRecord]:
        """Return a record of every superseded generation of every cell."""
        records_per_cell = (
            self.cell_states.list_superseded(cell_ref, self.resolve_point(cell_ref) or {})
            for cell_ref in self.list_cells()
        )
        return [record for records in records_per_cell for record in records]

    def cell_state(self, cell_ref: CellRef) -> CellState:
        """Return the state of a cell without reading its results."""
        return self.cell_states.cell_state(cell_ref.key)

    def list_records(self) -> list[CellRecord]:
        """Return a record of every cell that is known so far."""
        return [self.cell_record(cell_ref) for cell_ref in self.list_cells()]
