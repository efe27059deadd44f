"""What a crash between any two writes leaves behind, and what the next coordinator makes of it."""

import json
import time

import optuna
import pytest

from hqlt_lab.errors import StoreError
from hqlt_lab.study.ledger import Ledger
from hqlt_lab.study.store import Store, mend

CELL = {"key": "k", "arm": "a", "seed": 0, "point": {}, "counts": True, "code": {}}


@pytest.fixture
def store(tmp_path):
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


def test_a_torn_line_is_cut_off_and_every_whole_one_stays(store):
    with store.owned():
        ledger, attempt = begun(store)
        ledger.finish(attempt, "done", 1.0)
    whole = store.journal.read_bytes()
    for cut in range(1, 60, 7):
        store.journal.write_bytes(whole + whole.splitlines()[-1][:cut])
        mend(store.journal)
        assert store.journal.read_bytes() == whole
    assert all(json.loads(line) for line in whole.splitlines())


def test_a_stale_lock_of_the_journal_costs_no_time(store):
    with store.owned():
        begun(store)
    store.journal.with_name("cells.journal.lock").symlink_to(store.journal)
    began = time.monotonic()
    with store.owned():
        begun(store)
    assert time.monotonic() - began < 10


def test_other_tools_can_read_the_journal(store):
    with store.owned():
        ledger, attempt = begun(store)
        ledger.finish(attempt, "done", 2.5)
    (name,) = optuna.get_all_study_names(store.storage())
    assert optuna.load_study(study_name=name, storage=store.storage()).best_value == 2.5


def test_looking_at_a_study_that_was_never_run_makes_nothing(store):
    assert Ledger(store).of("k") == []
    assert not store.busy()
    assert not store.folder.exists()


def test_reading_writes_nothing_and_a_torn_line_does_not_disturb_it(store):
    with store.owned():
        ledger, attempt = begun(store)
        ledger.finish(attempt, "done", 1.0)
    whole = store.journal.read_bytes()
    assert [one.status for one in Ledger(store).of("k")] == ["done"]
    assert store.journal.read_bytes() == whole
    store.journal.write_bytes(whole[:-20])
    assert [one.status for one in Ledger(store).of("k")] == ["running"]  # the last line told that it was over
    assert store.journal.read_bytes() == whole[:-20]
    with store.owned():
        after = Ledger(store)
        after.recover()
        assert [one.status for one in after.of("k")] == ["interrupted"]


def test_a_line_damaged_in_the_middle_is_told_with_what_to_do(store):
    with store.owned():
        begun(store)
    lines = store.journal.read_bytes().splitlines(keepends=True)
    store.journal.write_bytes(lines[0] + b'{"op_code": 5, "work\n' + b"".join(lines[1:]))
    with pytest.raises(StoreError, match=r"cells.journal: a line of it is damaged .* Move the file away and run"):
        Ledger(store)


def test_attempts_are_in_the_order_of_time_whatever_study_holds_them(store):
    with store.owned():
        ledger = Ledger(store)
        for study, status in (("old", "interrupted"), ("new", "interrupted"), ("old", "done")):
            ledger.finish(ledger.begin(study, ledger.ask(study, {}), CELL), status, 1.0)
            time.sleep(0.002)
        for seen in (ledger, Ledger(store)):
            assert [one.status for one in seen.of("k")] == ["interrupted", "interrupted", "done"]


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "studies").write_text("a file where a folder is needed")
    with pytest.raises(StoreError, match="nothing can be written here"), Store(tmp_path, "study").owned():
        pass
