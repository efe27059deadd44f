"""What a crash between any two writes leaves behind, and what the next coordinator makes of it."""

import time

import optuna
import pytest

from hqlt_lab.study.ledger import Ledger
from hqlt_lab.study.store import Store

CELL = {"key": "k", "arm": "a", "seed": 0, "point": {}, "counts": True, "code": {}}


@pytest.fixture(params=["a file", "a database"])
def store(request, tmp_path, monkeypatch):
    if request.param == "a database":
        monkeypatch.setenv("HQLT_STORE", request.getfixturevalue("postgres").database())
    return Store(tmp_path, "study")


def begun(store):
    ledger = Ledger(store)
    ledger.recover()
    return ledger, ledger.begin("a", ledger.ask("a", {}), CELL)


def test_an_attempt_is_told_once_and_read_back(store):
    with store.owned():
        ledger, attempt = begun(store)
        ledger.finish(attempt, "done", 3.0, metrics={"x": 1.0}, why="")
        (read,) = Ledger(store).of("k")
    assert (read.status, read.end["metrics"], read.cell["seed"]) == ("done", {"x": 1.0}, 0)


@pytest.mark.parametrize("moment", ["asked", "begun", "words", "told"])
def test_a_crash_between_two_writes_is_an_interruption_or_an_end(store, moment):
    with store.owned():
        ledger = Ledger(store)
        trial = ledger.ask("a", {})
        if moment != "asked":
            attempt = ledger.begin("a", trial, CELL)
        if moment == "words":
            trial.set_user_attr("end", {"status": "done"})
        if moment == "told":
            ledger.finish(attempt, "done", 1.0)
    with store.owned():
        after = Ledger(store)
        after.recover()
        seen = [one.status for one in after.of("k")]
        assert seen == {"asked": [], "begun": ["interrupted"], "words": ["interrupted"], "told": ["done"]}[moment]
        assert [one.status for one in Ledger(store).of("k")] == seen
        states = {trial.state.name for trial in after.study("a").get_trials()}
        assert states == ({"COMPLETE"} if moment == "told" else {"FAIL"})


def test_what_was_forgotten_is_superseded_and_the_rest_stays(store):
    with store.owned():
        ledger, attempt = begun(store)
        ledger.finish(attempt, "done", 1.0)
        other = ledger.begin("a", ledger.ask("a", {}), CELL | {"key": "other"})
        ledger.finish(other, "done", 1.0)
        ledger.forget(["k", "never tried"])
        for seen in (ledger, Ledger(store)):
            assert seen.of("k") == [] and len(seen.of("other")) == 1
            assert seen.generations == {"k": 1}
        assert ledger.begin("a", ledger.ask("a", {}), CELL).generation == 1


def test_diverged_and_pruned_are_pruned_for_optuna_and_failed_is_fail(store):
    with store.owned():
        ledger, attempt = begun(store)
        ledger.finish(attempt, "diverged", why="nan")
        for status in ("pruned", "failed"):
            ledger.finish(ledger.begin("a", ledger.ask("a", {}), CELL), status, why="")
        assert [trial.state.name for trial in ledger.study("a").get_trials()] == ["PRUNED", "PRUNED", "FAIL"]


def test_other_tools_can_read_it(store):
    with store.owned():
        ledger, attempt = begun(store)
        ledger.finish(attempt, "done", 2.5)
    (name,) = optuna.get_all_study_names(store.book.storage())
    assert optuna.load_study(study_name=name, storage=store.book.storage()).best_value == 2.5


def test_looking_at_a_study_that_was_never_run_makes_nothing(store):
    assert Ledger(store).of("k") == []
    assert not store.book.workers()
    assert not store.folder.exists()


def test_attempts_are_in_the_order_of_the_book_whatever_study_holds_them(store):
    with store.owned():
        ledger = Ledger(store)
        for study, status in (("old", "interrupted"), ("new", "interrupted"), ("old", "done")):
            ledger.finish(ledger.begin(study, ledger.ask(study, {}), CELL), status, 1.0)
        for seen in (ledger, Ledger(store)):
            assert [one.status for one in seen.of("k")] == ["interrupted", "interrupted", "done"]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_wherever_the_machine_is_the_newest_attempt_is_the_last(store, zone, monkeypatch):
    """Optuna writes the time of the world into a database and reads the time of the place."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        with store.owned():
            ledger, attempt = begun(store)
            ledger.finish(attempt, "interrupted")
        with store.owned():
            again, second = begun(store)
            assert again.of("k")[-1] is second
            again.finish(second, "failed", why="")
            again.refresh()
            again.begin("a", again.ask("a", {}), CELL)
            for seen in (again, Ledger(store)):
                assert [one.status for one in seen.of("k")] == ["interrupted", "failed", "running"]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_search_that_was_interrupted_goes_on_to_the_same_points(store, tmp_path):
    space = {"x": optuna.distributions.FloatDistribution(0, 1)}

    def searched(store, interrupted_at):
        found = []
        with store.owned():
            ledger = Ledger(store)
            for number in range(8):
                trial = ledger.ask("a", space)
                if number == interrupted_at:
                    ledger.finish(ledger.begin("a", trial, CELL | {"key": str(number)}), "interrupted")
                    trial = ledger.ask("a", space, dict(trial.params))
                found.append(trial.params["x"])
                ledger.finish(ledger.begin("a", trial, CELL | {"key": str(number)}), "done", trial.params["x"] ** 2)
        return found

    assert searched(Store(tmp_path, "calm"), None) == searched(store, 2)
