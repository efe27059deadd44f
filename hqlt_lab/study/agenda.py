"""What is to be trained, and in which order.

A listed point is a cell for every seed.  A searched arm has `trials` points on the tuning seeds, whose values the
sampler says one after the other; when they are settled, the best of them is trained on all other seeds:

    counts = False      (arm, number, tuning seed)      finds the point
    counts = True       (arm, best point, seed)         is reported

Seeds come before points and points before arms, so that arms can be compared as early as possible.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.cell import Cell, digest
from hqlt_lab.experiment.experiment import Arm, Experiment
from hqlt_lab.experiment.plan import key_of, points, with_seeds, words
from hqlt_lab.files import read_json
from hqlt_lab.study.choose import chosen_point
from hqlt_lab.study.place import Place
from hqlt_lab.study.record import SETTLED, Record, State
from hqlt_lab.study.search import length, point_of, space, values_of
from hqlt_lab.study.standing import Standing
from hqlt_lab.study.store import Store
from hqlt_lab.train import claim

if TYPE_CHECKING:
    from hqlt_lab.study.ledger import Ledger


class Agenda:
    """All cells of an experiment, as far as they are known, with what the ledger says of them."""

    def __init__(self, experiment: Experiment, ledger: "Ledger", store: Store) -> None:
        self.experiment, self.ledger, self.store = experiment, ledger, store
        self.standing = Standing(ledger, store, experiment.launcher.get("retries", 0))
        self.search = space(experiment.tune)
        self.known: dict[str, Cell] = {}  # settings of every cell that was looked at

    @cached_property
    def first(self) -> dict[str, Cell]:
        """Of each arm the first point."""
        point = next(points(self.experiment.tune))
        return {arm.title: self.experiment.cell(arm, point, 0) for arm in self.experiment.arms}

    @cached_property
    def studies(self) -> dict[str, str]:
        """The Optuna study of each arm: other settings or another search begin a new one."""
        names = {}
        measure = self.experiment.measure
        for arm in self.experiment.arms:
            told = [key_of(self.first[arm.title]), measure.select, measure.direction]
            sign = f"#{digest([told, sorted(map(repr, self.search.items()))])[:8]}"
            renamed = (name for name in self.ledger.names if name.endswith(sign))
            names[arm.title] = next(renamed, f"{arm.title} {sign}")
        return names

    def places(self) -> list[Place]:
        """Every cell that is known by now."""
        return [*self.searching, *self.final()] if self.search else self.listed

    @property
    def total(self) -> int:
        """How many cells there will be in the end."""
        seeds = len(self.experiment.final_seeds)
        return len(self.searching) + seeds * len(self.experiment.arms) if self.search else len(self.listed)

    @cached_property
    def listed(self) -> list[Place]:
        """The cells of a grid."""
        found = [
            self.with_seeds(arm, point, self.experiment.seeds)
            for point in points(self.experiment.tune)
            for arm in self.experiment.arms
        ]
        return [place for same_seed in zip(*found, strict=True) for place in same_seed]

    @cached_property
    def searching(self) -> list[Place]:
        """The cells that find an arm's point."""
        return [
            Place(key=self.search_key(arm, n, seed), arm=arm, seed=seed, number=n)
            for n in range(length(self.experiment.tune))
            for seed in self.experiment.tune_seeds
            for arm in self.experiment.arms
        ]

    def final(self) -> list[Place]:
        """The cells of each arm whose search is over, at the best point."""
        best = [(arm, point) for arm in self.experiment.arms if (point := self.best(arm)) is not None]
        found = [self.with_seeds(arm, point, self.experiment.final_seeds) for arm, point in best]
        return [place for same_seed in zip(*found, strict=True) for place in same_seed]

    def later(self) -> list[Place]:
        """The cells that searches will lead to, which have no key yet."""
        arms = [arm for arm in self.experiment.arms if self.search and self.best(arm) is None]
        return [Place(key="", arm=arm, seed=seed, point={}) for arm in arms for seed in self.experiment.final_seeds]

    def best(self, arm: Arm) -> Mapping[str, Any] | None:
        """The point that won an arm's search, once all of it is settled."""
        records = [self.record(place) for place in self.searching if place.arm == arm]
        over = all(record.state in SETTLED for record in records)
        return chosen_point(records, self.experiment.measure) if over else None

    def with_seeds(self, arm: Arm, point: Mapping[str, Any], seeds: Sequence[int]) -> list[Place]:
        """The cells of a point whose values are known."""
        planned = with_seeds(self.experiment.cell(arm, point, 0), seeds)
        self.known |= dict(planned)
        return [Place(key=one.key, arm=arm, seed=one.cell.seed, point=point) for one in planned]

    def search_key(self, arm: Arm, number: int, seed: int) -> str:
        """A searched cell is named by its number, so that the budget is spent exactly once."""
        return digest([self.studies[arm.title].rpartition("#")[2], number, seed])

    def point(self, place: Place) -> Mapping[str, Any] | None:
        """The tuned values of a cell; of a searched one, as soon as any of its point's seeds was begun."""
        if place.number is None:
            return place.point
        keys = [self.search_key(place.arm, place.number, seed) for seed in self.experiment.tune_seeds]
        for key in keys:
            for attempt in self.ledger.attempts.get(key, {}).values():
                return point_of(attempt.cell["values"], self.experiment.tune)
        return next((point for key in keys if (point := self.lost_point(key))), None)

    def lost_point(self, key: str) -> Mapping[str, Any] | None:
        """What the folder of a searched cell says of its values, where the journal was lost."""
        file = self.store.cell(key, self.ledger.generations.get(key, 0)) / claim.FILE
        axes = read_json(file)["axes"] if file.exists() else {}
        return {path: axes[path] for path in self.experiment.tune} if axes else None

    def words(self, place: Place) -> dict[str, str]:
        """What a cell is called on the command line."""
        return words(place.arm.name, place.seed, {**place.arm.levels, **(self.point(place) or {})})

    def cell(self, place: Place, point: Mapping[str, Any]) -> Cell:
        """What the place trains, with these values."""
        if place.key not in self.known:
            self.known[place.key] = self.experiment.cell(place.arm, point, place.seed)
        return self.known[place.key]

    def example(self, place: Place) -> Cell:
        """A cell of the same arm, as far as its point is known: to see what it takes."""
        point = self.point(place)
        return self.first[place.arm.title] if point is None else self.cell(place, point)

    def values(self, place: Place) -> Mapping[str, Any] | None:
        """The sampler's own words for a searched point, if any of its seeds was begun."""
        point = self.point(place)
        return None if point is None else values_of(point, self.experiment.tune)

    def record(self, place: Place) -> Record:
        """How a cell stands, and what is known of it."""
        return self.standing.record(place, self.point(place) or {})

    def superseded(self) -> list[Record]:
        """Cells that were forgotten, as they stood."""
        found = (self.standing.superseded(place, self.point(place) or {}) for place in self.places())
        return [record for records in found for record in records]

    def stands(self, place: Place) -> State:
        """How a cell stands, and nothing else of it."""
        return self.standing.state(place.key)

    def records(self) -> list[Record]:
        """Every cell that is known by now, as it stands."""
        return [self.record(place) for place in self.places()]
