"""Our journal reader returns the same trials as Optuna, which wrote the journal."""

import random

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from hqlt_lab.errors import StoreError
from hqlt_lab.study.ledger.journal import JournalReader

SPACE = {"x": optuna.distributions.FloatDistribution(0, 1)}


@pytest.fixture
def journal(tmp_path):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return tmp_path / "cells.journal"


def open_storage(journal):
    return JournalStorage(JournalFileBackend(str(journal)))


def read_by_optuna(journal):
    """Return (study name, trial number) -> state and attributes of every trial, and the generations of each study."""
    trials, generations = {}, []
    for name in optuna.get_all_study_names(open_storage(journal)):
        study = optuna.load_study(study_name=name, storage=open_storage(journal))
        generations.append(study.user_attrs.get("generations", {}))
        for trial in study.get_trials():
            user_attrs = trial.user_attrs.get("cell"), trial.user_attrs.get("end")
            trials[name, trial.number] = (trial.state.name, *user_attrs)
    return trials, generations


def write_random_operation(study, rng):
    """Write one operation that a coordinator, its sampler or its pruner may write."""
    running_trials = [trial for trial in study.get_trials() if trial.state == TrialState.RUNNING]
    operation = rng.choice(["ask", "enqueue", "set_attr", "tell", "report", "supersede", "tell again"])
    if operation == "ask" or not running_trials:
        study.ask(SPACE)
    elif operation == "enqueue":
        study.enqueue_trial({"x": rng.random()}, user_attrs={"cell": {"key": "queued"}})
    elif operation == "supersede":
        study.set_user_attr("generations", {str(rng.randrange(3)): rng.randrange(3)})
    else:
        trial = optuna.trial.Trial(study, rng.choice(running_trials)._trial_id)
        if operation == "set_attr":
            trial.set_user_attr(rng.choice(["cell", "end"]), {"key": str(rng.random())})
        elif operation == "report":
            trial.report(rng.random(), rng.randrange(100))
        else:
            study.tell(trial, state=rng.choice([TrialState.FAIL, TrialState.PRUNED]))


@pytest.mark.parametrize("seed", range(4))
def test_repeated_reading_gives_what_optuna_reads(journal, seed):
    rng, reader, rows = random.Random(seed), None, {}
    names = ["a, window=2 #1", "b", "c"]
    for number in range(60):
        study = optuna.create_study(storage=open_storage(journal), study_name=rng.choice(names), load_if_exists=True)
        write_random_operation(study, rng)
        if number % 7 == 0 or number == 59:
            reader = reader or JournalReader(journal)
            rows |= {(row.study_name, row.trial_number): (row.state, *row[3:]) for row in reader.read_rows()}
            trials, generations = read_by_optuna(journal)
            assert rows == trials
            assert sorted(map(str, reader.read_generations())) == sorted(map(str, generations))


def test_operations_on_a_finished_trial_are_ignored(journal):
    storage = open_storage(journal)
    study = optuna.create_study(storage=storage, study_name="a")
    trial = study.ask()
    study.tell(trial, 1.0)
    with journal.open("a") as file:  # as a process would that has not read the end of the trial
        file.write('{"op_code":8,"worker_id":"w","trial_id":0,"user_attr":{"end":{"status":"failed"}}}\n')
        file.write('{"op_code":6,"worker_id":"w","trial_id":0,"state":3,"values":null,"datetime_complete":null}\n')
    (row,) = JournalReader(journal).read_rows()
    assert (row.state, row.result) == ("COMPLETE", None) == read_by_optuna(journal)[0]["a", 0][::2]


def test_incomplete_last_line_is_read_once_it_is_complete(journal):
    study = optuna.create_study(storage=open_storage(journal), study_name="a")
    study.ask()
    content = journal.read_bytes()
    journal.write_bytes(content[:-10])
    reader = JournalReader(journal)
    assert list(reader.read_rows()) == []
    journal.write_bytes(content)
    assert [row.state for row in reader.read_rows()] == ["RUNNING"]
    assert list(reader.read_rows()) == []


DAMAGE = {
    "zeros": b"\0\0\0\n",
    "no operation": b"[1]\n",
    "no such trial": b'{"op_code":8,"trial_id":99,"user_attr":{}}\n',
    "negative trial id": b'{"op_code":8,"trial_id":-1,"user_attr":{}}\n',
    "trial id is a string": b'{"op_code":8,"trial_id":"x","user_attr":{}}\n',
    "attribute is a number": b'{"op_code":2,"study_id":0,"user_attr":5}\n',
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_in_the_middle_is_an_error_with_a_remedy(journal, damage):
    study = optuna.create_study(storage=open_storage(journal), study_name="a")
    content = journal.read_bytes()
    study.ask()
    journal.write_bytes(content + damage + journal.read_bytes()[len(content) :])
    with pytest.raises(StoreError, match=r"a line of the file is damaged .* Move the file away and run the study"):
        list(JournalReader(journal).read_rows())
