"""The ledger as a file: torn, locked, damaged, unwritable."""

import json
import time

import pytest

from hqlt_lab.errors import StoreError
from hqlt_lab.study.journal import mend
from hqlt_lab.study.ledger import Ledger
from hqlt_lab.study.store import Store

from .test_ledger import begun


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path, "study")


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


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "studies").write_text("a file where a folder is needed")
    with pytest.raises(StoreError, match="nothing can be written here"), Store(tmp_path, "study").owned():
        pass
