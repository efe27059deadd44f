"""Journal file of a ledger: torn writes, stale locks, damaged lines and read-only folders."""

import errno
import json
import os
import re
import time

import pytest

from hqlt_lab.errors import StoreError
from hqlt_lab.study.ledger.journal import repair_torn_write
from hqlt_lab.study.ledger.ledger import Ledger
from hqlt_lab.study.ledger.study_store import StudyStore

from .test_ledger import begin_attempt


@pytest.fixture
def store(tmp_path):
    return StudyStore(tmp_path, "study")


def test_incomplete_last_line_is_cut_off_and_complete_lines_stay(store):
    with store.session():
        ledger, attempt = begin_attempt(store)
        ledger.finish_attempt(attempt, "done", 1.0)
    content = store.journal_file.read_bytes()
    for length in range(1, 60, 7):
        store.journal_file.write_bytes(content + content.splitlines()[-1][:length])
        repair_torn_write(store.journal_file)
        assert store.journal_file.read_bytes() == content
    assert all(json.loads(line) for line in content.splitlines())


def test_stale_lock_of_the_journal_is_not_waited_for(store):
    with store.session():
        begin_attempt(store)
    store.journal_file.with_name("cells.journal.lock").symlink_to(store.journal_file)
    start = time.monotonic()
    with store.session():
        begin_attempt(store)
    assert time.monotonic() - start < 10


def test_reading_writes_nothing_and_accepts_an_incomplete_last_line(store):
    with store.session():
        ledger, attempt = begin_attempt(store)
        ledger.finish_attempt(attempt, "done", 1.0)
    content = store.journal_file.read_bytes()
    assert [attempt.status for attempt in Ledger(store).get_attempts("k")] == ["done"]
    assert store.journal_file.read_bytes() == content
    store.journal_file.write_bytes(content[:-20])
    # the last line is the one that finishes the trial
    assert [attempt.status for attempt in Ledger(store).get_attempts("k")] == ["running"]
    assert store.journal_file.read_bytes() == content[:-20]
    with store.session():
        reopened = Ledger(store)
        reopened.close_orphans()
        assert [attempt.status for attempt in reopened.get_attempts("k")] == ["interrupted"]


def test_damaged_line_in_the_middle_is_an_error_with_a_remedy(store):
    with store.session():
        begin_attempt(store)
    lines = store.journal_file.read_bytes().splitlines(keepends=True)
    store.journal_file.write_bytes(lines[0] + b'{"op_code": 5, "work\n' + b"".join(lines[1:]))
    with pytest.raises(StoreError, match=r"cells.journal: a line of the file is damaged .* Move the file away and run"):
        Ledger(store)


def test_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "studies").write_text("a file where a folder is needed")
    with pytest.raises(StoreError, match="the folder is not writable"), StudyStore(tmp_path, "study").session():
        pass


def test_a_ledger_whose_folder_cannot_be_written_any_more_is_an_error_and_nothing_is_lost(store, tmp_path):
    with store.session():
        ledger, attempt = begin_attempt(store)
        content = store.journal_file.read_bytes()
        store.folder.rename(tmp_path / "moved")
        store.folder.touch()  # root may write in any folder, but not below a file
        with pytest.raises(StoreError):
            ledger.finish_attempt(attempt, "done", 1.0)
        store.folder.unlink()
        (tmp_path / "moved").rename(store.folder)
        assert store.journal_file.read_bytes() == content
        ledger.finish_attempt(attempt, "done", 1.0)
    assert [attempt.status for attempt in Ledger(store).get_attempts("k")] == ["done"]


def test_the_error_of_the_system_is_not_hidden_by_optunas_lock(store):
    def fail_to_unlock():
        try:
            raise PermissionError(errno.EACCES, "Permission denied", str(store.journal_file))
        finally:
            raise RuntimeError("Error: did not possess lock")  # as Optuna does

    with store.session(), pytest.raises(StoreError, match=re.escape(f"{store.journal_file}: ")):
        store.backend.call_with_retry(fail_to_unlock)


@pytest.mark.parametrize("damage", ["changed", "cut off", "garbage at the end", "deleted"])
def test_damage_to_a_journal_in_use_is_noticed(store, damage):
    with store.session():
        ledger, attempt = begin_attempt(store)
        store.backend.check_intact()
        content = store.journal_file.read_bytes()
        if damage == "deleted":
            store.journal_file.unlink()
        else:
            middle = len(content) // 2
            texts = {"changed": content[:middle] + b"#" + content[middle + 1 :], "cut off": content[:middle]}
            store.journal_file.write_bytes(texts.get(damage, content + b"garbage\n"))
        for use_journal in (store.backend.check_intact, lambda: ledger.finish_attempt(attempt, "done", 1.0)):
            with pytest.raises(StoreError, match=re.escape(str(store.journal_file))):
                use_journal()


def test_a_journal_with_a_new_time_and_the_same_content_is_intact(store):
    with store.session():
        ledger, attempt = begin_attempt(store)
        os.utime(store.journal_file, (0, 0))
        ledger.finish_attempt(attempt, "done", 1.0)
        store.backend.check_intact()
