"""Ledger as a file: Optuna's journal, which one process at a time may write to.

runs/studies/NAME/coordinator.lock     locked by `hqlt run` while it runs; kill -9 releases it
runs/studies/NAME/cells.journal        every attempt at every cell

The journal has one operation per line; five kinds of them are relevant to attempts:

    {"op_code": 0, "study_name": ...}                               create a study; ids are assigned in order
    {"op_code": 2, "study_id": 0, "user_attr": {...}}               set user attributes of a study
    {"op_code": 4, "study_id": 0, "state": ...}                     create a trial; ids are assigned in order
    {"op_code": 6, "trial_id": 0, "state": 1, ...}                  set the state of a trial
    {"op_code": 8, "trial_id": 0, "user_attr": {"cell": ...}}       set user attributes of a trial

Operations on a finished trial are ignored, as Optuna does.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import IntEnum
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

from hqlt_lab.errors import StoreError
from hqlt_lab.file_lock import LockHeld, describe_process, file_lock, is_locked, read_holder
from hqlt_lab.files import decode_json, translate_write_errors
from hqlt_lab.hashing import digest_bytes, start_digest
from hqlt_lab.study.ledger.trial_reader import FINISHED_STATES, TrialReader, TrialRow

JOURNAL_FILE = "cells.journal"
TRIAL_STATES = ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING")  # indexed by the value of Optuna's TrialState
T = TypeVar("T")


class JournalOperation(IntEnum):
    """The operation codes of Optuna's journal that are read here."""

    CREATE_STUDY = 0
    SET_STUDY_USER_ATTR = 2
    CREATE_TRIAL = 4
    SET_TRIAL_STATE_VALUES = 6
    SET_TRIAL_USER_ATTR = 8


@dataclass(slots=True)
class JournalTrial:
    """One trial, with all operations that were read so far applied."""

    study_id: int
    number: int
    state: str
    user_attrs: dict[str, Any]


class JournalReader:
    """Reads the lines that are new at each call; an incomplete last line is left for the next call."""

    def __init__(self, file: Path) -> None:
        self.file, self.offset = file, 0
        self.study_names: list[str] = []  # by study id
        self.study_user_attrs: list[dict[str, Any]] = []  # by study id
        self.trials: list[JournalTrial] = []  # by trial id
        self.trials_per_study: list[int] = []  # by study id

    def read_rows(self) -> Iterator[TrialRow]:
        """Yield the current state of each trial that has new operations."""
        with raise_if_damaged(self.file):
            changed_ids = dict.fromkeys(
                trial_id
                for operation in self.read_operations()
                if (trial_id := self.apply_operation(operation)) is not None
            )
        for trial in (self.trials[trial_id] for trial_id in changed_ids):
            cell_attributes, result = (trial.user_attrs.get(name) for name in ("cell", "end"))
            yield TrialRow(self.study_names[trial.study_id], trial.number, trial.state, cell_attributes, result)

    def read_generations(self) -> Iterator[Mapping[str, int]]:
        return (user_attrs.get("generations", {}) for user_attrs in self.study_user_attrs)

    def read_operations(self) -> Iterator[Mapping[str, Any]]:
        """Yield the operations of the new lines.

        An unreadable last line may still be incomplete and is read again by the next call; any other one is an error.
        """
        damage: ValueError | None = None
        with self.file.open("rb") as journal:
            journal.seek(self.offset)
            new_bytes = journal.read()  # lines written from now on are read by the next call
        for line in BytesIO(new_bytes):
            if damage:
                raise damage
            try:
                operation = parse_operation(line)
            except ValueError as error:
                damage = error
                continue
            self.offset += len(line)
            yield operation

    def apply_operation(self, operation: Mapping[str, Any]) -> int | None:
        """Apply one operation, and return the id of the trial that it changes."""
        match operation["op_code"]:
            case JournalOperation.CREATE_STUDY if operation["study_name"] not in self.study_names:
                self.study_names.append(operation["study_name"])
                self.study_user_attrs.append({})
                self.trials_per_study.append(0)
            case JournalOperation.SET_STUDY_USER_ATTR:
                self.study_user_attrs[operation["study_id"]] |= operation["user_attr"]
            case JournalOperation.CREATE_TRIAL:
                return self.add_trial(operation)
            case JournalOperation.SET_TRIAL_STATE_VALUES | JournalOperation.SET_TRIAL_USER_ATTR if (
                self.trials[operation["trial_id"]].state not in FINISHED_STATES
            ):
                return self.update_trial(operation)
        return None

    def add_trial(self, operation: Mapping[str, Any]) -> int:
        """Add a new trial and return its id."""
        study_id, state = operation["study_id"], TRIAL_STATES[operation.get("state", 0)]
        user_attrs = dict(operation.get("user_attrs", {}))
        self.trials.append(JournalTrial(study_id, self.trials_per_study[study_id], state, user_attrs))
        self.trials_per_study[study_id] += 1
        return len(self.trials) - 1

    def update_trial(self, operation: Mapping[str, Any]) -> int:
        """Set the state or user attributes of a trial, and return its id."""
        trial_id: int = operation["trial_id"]
        trial = self.trials[trial_id]
        if "user_attr" in operation:
            trial.user_attrs |= operation["user_attr"]
            return trial_id
        trial.state = TRIAL_STATES[operation["state"]]
        return trial_id


@contextmanager
def raise_if_damaged(file: Path) -> Iterator[None]:
    """Raise a StoreError with a remedy for a journal that cannot be read."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"{file}: a line of the file is damaged ({error}). Move the file away and run the study again: finished "
            "cells are restored from their folders, the others resume from their checkpoints."
        ) from error


def parse_operation(line: bytes) -> Mapping[str, Any]:
    """Parse one line of the journal; raise ValueError if it is incomplete or damaged."""
    operation = decode_json(line, dict, allow_nan=True) if line.endswith(b"\n") else {}
    if not operation or min(operation.get("trial_id", 0), operation.get("study_id", 0)) < 0:
        raise ValueError("it is not an operation")
    return operation


class JournalIntegrityCheck:
    """Detects damage to a journal while its only writer uses it: everything but complete lines at its end.

    The file is read again only if its size or modification time has changed since the last check.
    """

    def __init__(self, file: Path) -> None:
        self.file, self.digest, self.size = file, start_digest(), 0
        self.signature: tuple[int, int, int] | None = None  # inode, size and modification time at the last check
        if file.exists():
            self.check_intact()

    def check_intact(self) -> None:
        """Raise StoreError if the part known so far has changed, or what was added is not made of operations."""
        if self.signature is None and not self.file.exists():
            return  # it is created by the first attempt
        with raise_if_damaged(self.file):
            try:
                signature = read_signature(self.file)
                if signature == self.signature:
                    return
                with self.file.open("rb") as journal:
                    known_bytes, added_bytes = journal.read(self.size), journal.read()
            except FileNotFoundError as error:
                if not self.file.parent.is_dir():
                    raise
                raise ValueError("it was deleted while in use") from error
            if digest_bytes(known_bytes) != self.digest.digest():
                raise ValueError("another program changed it while in use")
            for line in BytesIO(added_bytes):
                parse_operation(line)
        self.digest.update(added_bytes)
        self.size, self.signature = self.size + len(added_bytes), signature


def read_signature(file: Path) -> tuple[int, int, int]:
    stat = file.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class JournalBackend:
    """Ledger backend that keeps attempts in a journal file."""

    is_shared = False
    study_prefix = ""  # the file has a single experiment, so names need no prefix
    worker_id = ""  # not needed: the only writer is the process that holds the lock

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.lock_file = folder, folder / JOURNAL_FILE, folder / "coordinator.lock"
        self.integrity_check: JournalIntegrityCheck | None = None  # during a session
        self.should_abort: Callable[[], bool] = lambda: False

    @property
    def exists(self) -> bool:
        return self.file.exists()

    @contextmanager
    def session(self) -> Iterator[None]:
        """Take the exclusive lock of the study; raise with the name of its owner if it is taken."""
        with ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                # `is_locked` of another process may hold the lock for an instant, so one attempt is not enough
                stack.enter_context(file_lock(self.lock_file, timeout=1, holder=describe_process()))
            except LockHeld as error:
                raise StoreError(
                    f"{self.folder}: another process is running this study ({error.holder}). Wait for it, or stop it "
                    "with Ctrl-C; `hqlt status` shows its progress."
                ) from error
            except OSError as error:
                raise StoreError(
                    f"{self.folder}: the folder is not writable ({error.strerror}). Use another folder: --runs FOLDER"
                ) from error
            repair_torn_write(self.file)
            self.integrity_check = JournalIntegrityCheck(self.file)
            try:
                yield
            finally:
                self.integrity_check = None

    def list_workers(self, exclude_self: bool = False) -> list[str]:
        """Return the process that holds the lock; there can be no other one."""
        return [read_holder(self.lock_file)] if self.is_locked and not exclude_self else []

    @property
    def is_locked(self) -> bool:
        """Whether a process holds the lock of the study."""
        return is_locked(self.lock_file)

    def liveness_check(self) -> Callable[[str], bool]:
        """Return a function that tells whether a worker is alive: true for any while the lock is held."""
        is_locked = self.is_locked
        return lambda worker_id: is_locked

    @contextmanager
    def claim_lock(self) -> Iterator[bool]:
        """Yield False, as no other process can have claimed cells: the session already holds the exclusive lock."""
        yield False

    def call_with_retry(self, operation: Callable[[], T]) -> T:
        """Call the operation once: a local file is either usable or not.  Raise StoreError if it cannot be written."""
        self.check_intact()
        try:
            with translate_write_errors(self.folder):
                return operation()
        except RuntimeError as error:
            # Optuna's lock of the journal hides the error of the system, for which it could not be released
            if not isinstance(error.__context__, OSError):
                raise
            with translate_write_errors(self.folder):
                raise error.__context__ from error

    def check_intact(self) -> None:
        """Raise StoreError if another program has damaged the journal since this process opened it for writing."""
        if self.integrity_check is not None:
            with translate_write_errors(self.folder):
                self.integrity_check.check_intact()

    def open_reader(self) -> TrialReader:
        """Return a reader of the journal."""
        return JournalReader(self.file)

    def open_storage(self) -> Any:
        """Open the journal as an Optuna storage."""
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with raise_if_damaged(self.file):
            return JournalStorage(JournalFileBackend(str(self.file)))


def repair_torn_write(journal: Path) -> None:
    """Repair a journal whose writer was killed during a write.

    Cut off an incomplete last line, which the next write would extend to an unreadable one, and remove Optuna's lock
    file, for which every process would wait half a minute.
    """
    journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)
    if journal.exists():
        content = journal.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(journal, content.rfind(b"\n") + 1)
