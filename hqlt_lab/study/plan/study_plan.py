"""The plan of a study: which cells are trained, and in which order.

In a grid each listed point is a cell for every seed.  In a search each arm has `trials` points, whose values the
sampler proposes one after the other, and each point is trained on the tuning seeds.  Once all of them are settled, the
best point is trained on the other seeds:

    is_reported = False     (arm, point index, tuning seed)     finds the best point
    is_reported = True      (arm, best point, seed)             is reported

With `seeds: {until: decided}` an arm has as many seeds as its comparisons need (`stats.sequential_testing`): those of
the next look while a comparison is open, and of a baseline those of all arms that are compared with it.  This is
computed from the results in the ledger, so every process finds the same cells, also after a crash.  Lists of tuned
values are then tried on the tuning seeds, like a search, because the choice would otherwise depend on the reported
seeds.

Cells are ordered by seed, then point, then arm, so that arms can be compared as early as possible.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.cell_filters import cell_labels
from hqlt_lab.experiment.cell_key import cell_key
from hqlt_lab.experiment.expand_cells import expand_seeds, iter_points
from hqlt_lab.experiment.load_experiment import Arm, Experiment
from hqlt_lab.files import read_json
from hqlt_lab.hashing import hash_json
from hqlt_lab.rundir import cell_file
from hqlt_lab.rundir.cell_state import SETTLED_STATES, CellState
from hqlt_lab.stats.baseline_differences import ArmPair, ArmValues, find_baselines
from hqlt_lab.stats.metric_scale import accuracy_resolution
from hqlt_lab.stats.sequential_testing import LookResult, LookSchedule, compare_at_looks
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
        self.seed_cells_by_point: dict[str, list[CellRef]] = {}  # cells of all seeds of an arm at a point
        self.looks_by_values: tuple[list[ArmPair], LookResult] | None = None  # the last result of `evaluate_looks`

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
        """Return all cells that are known so far; tuning and looks add cells once the ones before them are settled."""
        return [*self.tuning_cells, *self.final_cells()] if self.adds_cells else self.grid_cells

    @property
    def adds_cells(self) -> bool:
        """Whether some cells are known only when others are settled."""
        return bool(self.search_space or self.experiment.looks)

    @property
    def total_cells(self) -> int:
        """The number of cells once all searches are settled, and before the next look adds seeds."""
        final = len(self.final_cells()) + len(self.pending_final_cells())
        return len(self.tuning_cells) + final if self.adds_cells else len(self.grid_cells)

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
    def tuning_cells(self) -> list[CellRef]:
        """The cells on the tuning seeds that find the best point of each arm."""
        if not self.experiment.has_tuning_cells:
            return []
        if not self.search_space:
            return [
                replace(cell_ref, point_index=index)
                for index, point in enumerate(iter_points(self.experiment.tune))
                for arm in self.experiment.arms
                for cell_ref in self.expand_seeds(arm, point, self.experiment.tune_seeds)
            ]
        return [
            CellRef(key=self.search_cell_key(arm, n, seed), arm=arm, seed=seed, point_index=n)
            for n in range(count_trials(self.experiment.tune))
            for seed in self.experiment.tune_seeds
            for arm in self.experiment.arms
        ]

    def final_cells(self) -> list[CellRef]:
        """Return the reported cells of each arm whose tuned values are known."""
        counts = self.count_seeds()
        cells = [
            (number, cell_ref)
            for arm in self.experiment.arms
            for number, cell_ref in enumerate(self.seed_cells(arm)[: counts[arm.title]])
        ]
        return [cell_ref for _, cell_ref in sorted(cells, key=lambda numbered: numbered[0])]

    def seed_cells(self, arm: Arm) -> list[CellRef]:
        """Return the cells of an arm at its best point for all seeds that it may get; empty while it is not known."""
        point = self.best_point(arm)
        if point is None:
            return []
        name = hash_json([arm.title, dict(point)])
        if name not in self.seed_cells_by_point:
            self.seed_cells_by_point[name] = self.expand_seeds(arm, point, self.experiment.final_seeds)
        return self.seed_cells_by_point[name]

    def pending_final_cells(self) -> list[CellRef]:
        """Return placeholders, without a key, for the final cells of arms whose tuned values are not known yet."""
        arms = [arm for arm in self.experiment.arms if self.adds_cells and self.best_point(arm) is None]
        counts = self.count_seeds()
        return [
            CellRef(key="", arm=arm, seed=seed, point={})
            for arm in arms
            for seed in self.experiment.final_seeds[: counts[arm.title]]
        ]

    def best_point(self, arm: Arm) -> Mapping[str, Any] | None:
        """Return the best point of an arm by its tuning cells, or None while they are not settled."""
        if not self.experiment.tune:
            return {}
        cells = [cell_ref for cell_ref in self.tuning_cells if cell_ref.arm == arm]
        if not all(self.cell_state(cell_ref) in SETTLED_STATES for cell_ref in cells):
            return None
        return select_point([self.cell_record(cell_ref) for cell_ref in cells], self.experiment.measure)

    def count_seeds(self) -> dict[ArmTitle, int]:
        """Return how many of its seeds each arm has, by title.

        An arm has the seeds of every comparison in which it is the arm or the baseline.
        """
        looks, arms = self.experiment.looks, self.experiment.arms
        if not looks:
            return {arm.title: len(self.experiment.final_seeds) for arm in arms}
        result, counts = self.evaluate_looks(), {arm.title: looks[0] for arm in arms}
        next_look = looks[min(len(result.counts), len(looks) - 1)]
        for (title, baseline), end_look in zip(find_baselines(arms).items(), result.end_looks, strict=True):
            count = next_look if end_look is None else looks[end_look - 1]
            counts[title], counts[baseline] = max(counts[title], count), max(counts[baseline], count)
        return counts

    def next_look_cells(self) -> list[CellRef]:
        """Return the cells that the next look may add."""
        counts = self.count_seeds()
        next_count = min((count for count in self.experiment.looks if count > max(counts.values())), default=0)
        return [
            cell_ref
            for arm in self.experiment.arms
            for cell_ref in self.seed_cells(arm)[counts[arm.title] : next_count]
        ]

    def evaluate_looks(self) -> LookResult:
        """Return the verdicts at all looks that can be taken; with a fixed number of seeds there are none."""
        experiment, measure = self.experiment, self.experiment.measure
        if not experiment.looks:
            return LookResult([], (), [])
        values = {arm.title: self.arm_values(arm) for arm in experiment.arms}
        pairs = [(values[title], values[baseline]) for title, baseline in find_baselines(experiment.arms).items()]
        if self.looks_by_values is None or self.looks_by_values[0] != pairs:
            schedule = LookSchedule(tuple(experiment.final_seeds), experiment.looks)
            resolution = accuracy_resolution(experiment)
            result = compare_at_looks(pairs, measure.primary_metric, measure, resolution, schedule)
            self.looks_by_values = pairs, result
        return self.looks_by_values[1]

    def arm_values(self, arm: Arm) -> ArmValues:
        """Return the values of the primary metric of an arm by settled seed."""
        metric, values, lost_seeds = self.experiment.measure.primary_metric, {}, set[int]()
        for cell_ref in self.seed_cells(arm):
            state = self.cell_state(cell_ref)
            attempts = self.ledger.get_attempts(cell_ref.key) if state == "done" else []
            value = attempts[-1].result.get("metrics", {}).get(metric, math.nan) if attempts else math.nan
            if math.isfinite(value):
                values[cell_ref.seed] = value
            elif state in SETTLED_STATES:
                lost_seeds.add(cell_ref.seed)
        return ArmValues(title=arm.title, values=values, lost_seeds=frozenset(lost_seeds))

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
        if cell_ref.point_index is None or cell_ref.point is not None:
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
