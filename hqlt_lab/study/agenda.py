"""What is to be trained, and in which order.

A listed point is a cell for every seed.  A searched arm has `trials` points on the tuning seeds, whose values the
sampler says one after the other; when they are settled, the best of them is trained on all other seeds:

    counts = False      (arm, number, tuning seed)      finds the point
    counts = True       (arm, best point, seed)         is reported

Seeds come before points and points before arms, so that arms can be compared as early as possible.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hqlt_lab.experiment.cell import Cell, digest
from hqlt_lab.experiment.experiment import Arm, Experiment
from hqlt_lab.experiment.plan import key_of, points, with_seeds, words
from hqlt_lab.files import read_json
from hqlt_lab.study.choose import chosen_point
from hqlt_lab.study.ledger import Attempt, Ledger
from hqlt_lab.study.record import SETTLED, Record, State, with_answers
from hqlt_lab.study.search import length, point_of, space, values_of
from hqlt_lab.study.store import Store
from hqlt_lab.track.provenance import code_of
from hqlt_lab.track.sent import read_sent
from hqlt_lab.train import claim


@dataclass(frozen=True, kw_only=True)
class Place:
    """A cell's place in the plan."""

    key: str
    arm: Arm
    seed: int
    point: Mapping[str, Any] | None = None  # tuned path -> value; None: the sampler says it, see `Agenda.point`
    number: int | None = None  # of the searched point

    @property
    def counts(self) -> bool:
        """Whether it is reported; otherwise it only finds a point."""
        return self.number is None


class Agenda:
    """All cells of an experiment, as far as they are known, with what the ledger says of them."""

    def __init__(self, experiment: Experiment, ledger: Ledger, store: Store) -> None:
        self.experiment, self.ledger, self.store = experiment, ledger, store
        self.retries = experiment.launcher.get("retries", 0)
        self.search = space(experiment.tune)
        self.known: dict[str, Cell] = {}  # settings of every cell that was looked at
        self.codes: dict[tuple[int, int], dict[str, str]] = {}  # by the task and the model of cells that are known

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
        """How a cell stands."""
        tries = self.ledger.of(place.key)
        return self.told(place, tries, self.state(place, tries), self.ledger.generations.get(place.key, 0))

    def superseded(self) -> list[Record]:
        """Cells that were forgotten, as they stood."""
        found = []
        for place in self.places():
            for generation in range(self.ledger.generations.get(place.key, 0)):
                tries = self.ledger.of(place.key, generation)
                found.append(self.told(place, tries, "superseded", generation))
        return found

    def told(self, place: Place, tries: list[Attempt], state: State, generation: int) -> Record:
        """What is known of a cell from these attempts."""
        end = tries[-1].end if tries else {}
        outcome: Mapping[str, Any] = {name: end[name] for name in OUTCOME if name in end}
        folder = self.store.cell(place.key, generation)
        if state == "done":
            outcome = with_answers(outcome, folder)
        return Record(
            key=place.key,
            arm=place.arm.title,
            seed=place.seed,
            levels=place.arm.levels,
            point=self.point(place) or {},
            counts=place.counts,
            state=state,
            attempts=len(tries),
            why=end.get("why", ""),
            code=tries[-1].made_by if tries else {},
            changed=self.changed(place, tries[-1]) if state == "done" else (),
            folder=folder,
            run=sent.run if tries and (sent := read_sent(folder)) else None,
            **outcome,
        )

    def stands(self, place: Place) -> State:
        """How a cell stands, and nothing else of it."""
        return self.state(place, self.ledger.of(place.key))

    def state(self, place: Place, tries: list[Attempt]) -> State:
        """From the attempts at a cell to its state; failures of other code than today's are tried again."""
        status = tries[-1].status if tries else "interrupted"
        if status in ("done", "diverged", "pruned"):
            return status  # type: ignore[return-value]
        if status == "running":
            return "running" if self.ledger.alive(tries[-1].cell.get("who", "")) else "waiting"
        if status == "failed" and self.spent(place, tries):
            return "failed"
        return "waiting"

    def code(self, place: Place) -> dict[str, str]:
        """The sources that a cell would be trained by today; seeds of an arm share their settings, and so these."""
        cell = self.example(place)
        settings = id(cell.task), id(cell.model)
        if settings not in self.codes:
            self.codes[settings] = code_of(cell)
        return self.codes[settings]

    def changed(self, place: Place, attempt: Attempt) -> tuple[str, ...]:
        """Which sources are others today than when a cell was trained."""
        now = self.code(place)
        return tuple(name for name, source in attempt.made_by.items() if now.get(name, source) != source)

    def spent(self, place: Place, tries: list[Attempt]) -> bool:
        """Whether a failed cell has no attempt left."""
        now = self.code(place)
        failed = [one for one in tries if one.status == "failed" and one.cell["code"] == now]
        return bool(failed) and (failed[-1].end.get("permanent", False) or len(failed) > self.retries)

    def records(self) -> list[Record]:
        """Every cell that is known by now, as it stands."""
        return [self.record(place) for place in self.places()]


OUTCOME = (
    "step", "metrics", "seconds", "tokens_per_second", "parameters", "state_bytes", "flops_per_token", "errors",
    "repeatable",
)  # fmt: skip
