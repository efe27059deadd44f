"""How the cells of a study stand: from the attempts in the ledger to a state, and to all that is known of a cell.

Neither the file nor a model is needed for it, only a cell's place in the plan: looking loads no torch.
"""

from collections.abc import Mapping
from typing import Any

from hqlt_lab.study.attempts import Attempt, Attempts
from hqlt_lab.study.place import Place
from hqlt_lab.study.record import Record, State, with_answers
from hqlt_lab.study.store import Store
from hqlt_lab.track.provenance import sources_today
from hqlt_lab.track.sent import read_sent
from hqlt_lab.track.spool import last_step

OUTCOME = (
    "step", "metrics", "seconds", "tokens_per_second", "parameters", "state_bytes", "flops_per_token", "errors",
    "repeatable",
)  # fmt: skip


class Standing:
    """What the ledger and the folders say of cells; a failed one is tried again `retries` times."""

    def __init__(self, ledger: Attempts, store: Store, retries: int) -> None:
        self.ledger, self.store, self.retries = ledger, store, retries

    def state(self, key: str) -> State:
        """How a cell stands, and nothing else of it."""
        return self.state_after(self.ledger.of(key))

    def record(self, place: Place, point: Mapping[str, Any]) -> Record:
        """All that is known of a cell."""
        tries = self.ledger.of(place.key)
        return self.told(place, point, tries, self.state_after(tries), self.ledger.generations.get(place.key, 0))

    def superseded(self, place: Place, point: Mapping[str, Any]) -> list[Record]:
        """What was forgotten of a cell, as it stood."""
        older = range(self.ledger.generations.get(place.key, 0))
        return [self.told(place, point, self.ledger.of(place.key, one), "superseded", one) for one in older]

    def told(
        self, place: Place, point: Mapping[str, Any], tries: list[Attempt], state: State, generation: int
    ) -> Record:
        """What is known of a cell from these attempts."""
        end = tries[-1].end if tries else {}
        outcome: dict[str, Any] = {name: end[name] for name in OUTCOME if name in end}
        folder = self.store.cell(place.key, generation)
        if state == "done":
            outcome = with_answers(outcome, folder)
        if state == "running" or (state == "waiting" and tries and not outcome.get("step")):  # perhaps it was killed
            outcome["step"] = last_step(folder)
        return Record(
            key=place.key,
            arm=place.arm.title,
            seed=place.seed,
            levels=place.arm.levels,
            point=point,
            counts=place.counts,
            state=state,
            attempts=len(tries),
            why=end.get("why", ""),
            code=tries[-1].made_by if tries else {},
            changed=changed(tries[-1].made_by) if state == "done" else (),
            folder=folder,
            run=sent.run if tries and (sent := read_sent(folder)) else None,
            **outcome,
        )

    def state_after(self, tries: list[Attempt]) -> State:
        """From the attempts at a cell to its state; failures of other code than today's are tried again."""
        status = tries[-1].status if tries else "interrupted"
        if status in ("done", "diverged", "pruned"):
            return status  # type: ignore[return-value]
        if status == "running":
            return "running" if self.ledger.alive(tries[-1].cell.get("who", "")) else "waiting"
        if status == "failed" and self.spent(tries):
            return "failed"
        return "waiting"

    def spent(self, tries: list[Attempt]) -> bool:
        """Whether a failed cell has no attempt left."""
        failed = [one for one in tries if one.status == "failed" and not others(one.cell["code"])]
        return bool(failed) and (failed[-1].end.get("permanent", False) or len(failed) > self.retries)


def changed(code: Mapping[str, str]) -> tuple[str, ...]:
    """Which sources are there, and are others today than when a cell was trained."""
    now = sources_today(code)
    return tuple(name for name, source in code.items() if now.get(name, source) != source)


def others(code: Mapping[str, str]) -> bool:
    """Whether any source is another today, or is gone."""
    return sources_today(code) != code
