"""File locks: exclusive and shared, with and without a time limit, and the name of their holder."""

import ast
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hqlt_lab.errors import StoreError
from hqlt_lab.file_lock import (
    UNKNOWN_HOLDER,
    LockHeld,
    describe_process,
    file_lock,
    is_locked,
    locked_update,
    read_holder,
)

ROOT = Path(__file__).parents[2]
HOLD_LOCK = """
import sys, time
from pathlib import Path
from hqlt_lab.file_lock import file_lock
with file_lock(Path(sys.argv[1]), holder="the other process"):
    print("locked", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def lock(tmp_path):
    return tmp_path / "some.lock"


def test_lock_of_another_process_is_refused_with_the_name_of_its_holder(lock):
    with subprocess.Popen([sys.executable, "-c", HOLD_LOCK, str(lock)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(LockHeld) as error, file_lock(lock, timeout=0):
            pass
        process.send_signal(signal.SIGKILL)
    assert error.value.path == lock and error.value.holder.startswith("the other process, since ")
    with file_lock(lock, timeout=0, holder="this process"):  # the kernel released the lock of the killed process
        assert read_holder(lock).startswith("this process, since ")


def test_update_of_a_file_names_the_process_that_keeps_its_lock(tmp_path):
    file = tmp_path / "evaluations.json"
    command = [sys.executable, "-c", HOLD_LOCK, f"{file}.lock"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        process.send_signal(signal.SIGSTOP)  # frozen
        with pytest.raises(StoreError) as error, locked_update(file, timeout=0.1):
            pass
        process.send_signal(signal.SIGKILL)
    assert f"{file}.lock" in str(error.value) and "the other process, since " in str(error.value)
    with locked_update(file, timeout=0.1):
        assert read_holder(Path(f"{file}.lock")).startswith(describe_process())


def test_no_module_waits_for_a_lock_without_a_time_limit():
    calls = [
        (file.name, node)
        for file in (ROOT / "hqlt_lab").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "file_lock"
    ]
    assert calls
    assert not [name for name, call in calls if "timeout" not in [keyword.arg for keyword in call.keywords]]


def test_lock_excludes_other_threads_of_the_process_too(lock):
    with file_lock(lock), pytest.raises(LockHeld), file_lock(lock, timeout=0):
        pass


def test_refused_lock_does_not_replace_the_name_of_the_holder(lock):
    with file_lock(lock, holder="first"), pytest.raises(LockHeld), file_lock(lock, timeout=0, holder="second"):
        pass
    assert read_holder(lock).startswith("first, ")


def test_timeout_ends_the_wait(lock):
    with file_lock(lock):
        start = time.monotonic()
        with pytest.raises(LockHeld), file_lock(lock, timeout=0.1):
            pass
    assert 0.1 <= time.monotonic() - start < 10


@pytest.mark.parametrize("timeout", [None, 60])
def test_wait_ends_when_the_lock_is_released(lock, timeout):
    locked, order = threading.Event(), []

    def wait_for_lock():
        locked.wait()
        with file_lock(lock, timeout=timeout):
            order.append("waiter")

    thread = threading.Thread(target=wait_for_lock)
    thread.start()
    with file_lock(lock):
        locked.set()
        order.append("holder")
    thread.join(60)
    assert order == ["holder", "waiter"] and not is_locked(lock)


def test_shared_locks_exclude_only_exclusive_ones(lock):
    with file_lock(lock, shared=True), file_lock(lock, shared=True, timeout=0):
        assert not is_locked(lock)
        with pytest.raises(LockHeld), file_lock(lock, timeout=0):
            pass


def test_lock_state_can_be_read_without_a_lock_file(lock):
    assert not is_locked(lock) and read_holder(lock) == UNKNOWN_HOLDER and not lock.exists()
    with file_lock(lock, holder=describe_process()):
        assert is_locked(lock) and str(os.getpid()) in read_holder(lock)


def test_only_the_lock_helper_calls_flock():
    files = [file for folder in ("hqlt_lab", "registry", "components") for file in (ROOT / folder).rglob("*.py")]
    users = [file.relative_to(ROOT).as_posix() for file in files if re.search(r"\bfcntl\b", file.read_text())]
    assert users == ["hqlt_lab/file_lock.py"]
