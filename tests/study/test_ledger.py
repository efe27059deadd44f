"""What a crash between any two writes leaves in the ledger, and how the next coordinator handles it."""

import time

import optuna
import pytest

from hqlt_lab.study.ledger.ledger import Ledger
from hqlt_lab.study.ledger.study_store import StudyStore

CELL = {"key": "k", "arm": {"name": "a", "levels": {}}, "seed": 0, "point": {}, "is_reported": True, "code": {}}


@pytest.fixture(params=["journal", "postgres"])
def store(request, tmp_path, monkeypatch):
    if request.param == "postgres":
        monkeypatch.setenv("HQLT_STORE", request.getfixturevalue("postgres").create_database())
    return StudyStore(tmp_path, "study")


def begin_attempt(store):
    ledger = Ledger(store)
    ledger.close_orphans()
    return ledger, ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL)


def test_finished_attempt_is_read_back(store):
    with store.session():
        ledger, attempt = begin_attempt(store)
        ledger.finish_attempt(attempt, "done", 3.0, metrics={"x": 1.0}, why="")
        (attempt,) = Ledger(store).get_attempts("k")
    assert (attempt.status, attempt.result["metrics"], attempt.cell_attributes["seed"]) == ("done", {"x": 1.0}, 0)


@pytest.mark.parametrize("crash_after", ["ask", "begin", "end attribute", "tell"])
def test_attempt_whose_process_crashed_is_interrupted_unless_its_trial_was_finished(store, crash_after):
    with store.session():
        ledger = Ledger(store)
        trial = ledger.ask_trial("a", {})
        if crash_after != "ask":
            attempt = ledger.begin_attempt("a", trial, CELL)
        if crash_after == "end attribute":
            trial.set_user_attr("end", {"status": "done"})
        if crash_after == "tell":
            ledger.finish_attempt(attempt, "done", 1.0)
    with store.session():
        reopened = Ledger(store)
        reopened.close_orphans()
        statuses = [attempt.status for attempt in reopened.get_attempts("k")]
        expected = {"ask": [], "begin": ["interrupted"], "end attribute": ["interrupted"], "tell": ["done"]}
        assert statuses == expected[crash_after]
        assert [attempt.status for attempt in Ledger(store).get_attempts("k")] == statuses
        states = {trial.state.name for trial in reopened.open_study("a").get_trials()}
        assert states == ({"COMPLETE"} if crash_after == "tell" else {"FAIL"})


def test_superseded_cell_starts_a_new_generation_and_other_cells_stay(store):
    with store.session():
        ledger, attempt = begin_attempt(store)
        ledger.finish_attempt(attempt, "done", 1.0)
        other = ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL | {"key": "other"})
        ledger.finish_attempt(other, "done", 1.0)
        ledger.supersede_cells(["k", "never tried"])
        for view in (ledger, Ledger(store)):
            assert view.get_attempts("k") == [] and len(view.get_attempts("other")) == 1
            assert view.generations == {"k": 1}
        assert ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL).generation == 1


def test_diverged_and_pruned_are_pruned_for_optuna_and_failed_is_fail(store):
    with store.session():
        ledger, attempt = begin_attempt(store)
        ledger.finish_attempt(attempt, "diverged", why="nan")
        for status in ("pruned", "failed"):
            ledger.finish_attempt(ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL), status, why="")
        assert [trial.state.name for trial in ledger.open_study("a").get_trials()] == ["PRUNED", "PRUNED", "FAIL"]


def test_optuna_itself_can_read_the_ledger(store):
    with store.session():
        ledger, attempt = begin_attempt(store)
        ledger.finish_attempt(attempt, "done", 2.5)
    (name,) = optuna.get_all_study_names(store.backend.open_storage())
    assert optuna.load_study(study_name=name, storage=store.backend.open_storage()).best_value == 2.5


def test_reading_a_study_that_was_never_run_creates_nothing(store):
    assert Ledger(store).get_attempts("k") == []
    assert not store.backend.list_workers()
    assert not store.folder.exists()


def test_attempts_are_in_the_order_in_which_they_were_begun_across_optuna_studies(store):
    with store.session():
        ledger = Ledger(store)
        for study, status in (("old", "interrupted"), ("new", "interrupted"), ("old", "done")):
            ledger.finish_attempt(ledger.begin_attempt(study, ledger.ask_trial(study, {}), CELL), status, 1.0)
        for view in (ledger, Ledger(store)):
            assert [attempt.status for attempt in view.get_attempts("k")] == ["interrupted", "interrupted", "done"]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_newest_attempt_is_the_last_in_every_time_zone(store, zone, monkeypatch):
    """Optuna writes UTC into a database and reads local time, so timestamps cannot give the order."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        with store.session():
            ledger, attempt = begin_attempt(store)
            ledger.finish_attempt(attempt, "interrupted")
        with store.session():
            ledger, second = begin_attempt(store)
            assert ledger.get_attempts("k")[-1] is second
            ledger.finish_attempt(second, "failed", why="")
            ledger.refresh()
            ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL)
            for view in (ledger, Ledger(store)):
                assert [attempt.status for attempt in view.get_attempts("k")] == ["interrupted", "failed", "running"]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_interrupted_search_samples_the_same_points_as_an_uninterrupted_one(store, tmp_path):
    space = {"x": optuna.distributions.FloatDistribution(0, 1)}

    def sample_points(store, interrupted_at):
        points = []
        with store.session():
            ledger = Ledger(store)
            for number in range(8):
                cell_attributes = CELL | {"key": str(number)}
                trial = ledger.ask_trial("a", space)
                if number == interrupted_at:
                    ledger.finish_attempt(ledger.begin_attempt("a", trial, cell_attributes), "interrupted")
                    trial = ledger.ask_trial("a", space, dict(trial.params))
                points.append(trial.params["x"])
                ledger.finish_attempt(ledger.begin_attempt("a", trial, cell_attributes), "done", trial.params["x"] ** 2)
        return points

    assert sample_points(StudyStore(tmp_path, "uninterrupted"), None) == sample_points(store, 2)
