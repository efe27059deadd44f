"""The journal, read by the lab itself and by Optuna, which wrote it: both say the same."""

import random

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from hqlt_lab.errors import StoreError
from hqlt_lab.study.journal_reader import JournalReader

SPACE = {"x": optuna.distributions.FloatDistribution(0, 1)}


@pytest.fixture
def journal(tmp_path):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return tmp_path / "cells.journal"


def opened(journal):
    return JournalStorage(JournalFileBackend(str(journal)))


def by_optuna(journal):
    """Study and number -> state and notes of every trial; and the notes of studies."""
    found, forgotten = {}, []
    for name in optuna.get_all_study_names(opened(journal)):
        study = optuna.load_study(study_name=name, storage=opened(journal))
        forgotten.append(study.user_attrs.get("generations", {}))
        for trial in study.get_trials():
            notes = trial.user_attrs.get("cell"), trial.user_attrs.get("end")
            found[name, trial.number] = (trial.state.name, *notes)
    return found, forgotten


def do_something(study, luck):
    """One of the things that a coordinator, or its sampler and pruner, may write."""
    open_ones = [trial for trial in study.get_trials() if trial.state == TrialState.RUNNING]
    deed = luck.choice(["ask", "queue", "note", "tell", "report", "forget", "again"])
    if deed == "ask" or not open_ones:
        study.ask(SPACE)
    elif deed == "queue":
        study.enqueue_trial({"x": luck.random()}, user_attrs={"cell": {"key": "queued"}})
    elif deed == "forget":
        study.set_user_attr("generations", {str(luck.randrange(3)): luck.randrange(3)})
    else:
        trial = optuna.trial.Trial(study, luck.choice(open_ones)._trial_id)
        if deed == "note":
            trial.set_user_attr(luck.choice(["cell", "end"]), {"key": str(luck.random())})
        elif deed == "report":
            trial.report(luck.random(), luck.randrange(100))
        else:
            study.tell(trial, state=luck.choice([TrialState.FAIL, TrialState.PRUNED]))


@pytest.mark.parametrize("seed", range(4))
def test_looking_again_and_again_sees_what_optuna_sees(journal, seed):
    luck, reader, seen = random.Random(seed), None, {}
    names = ["a, window=2 #1", "b", "c"]
    for number in range(60):
        do_something(
            optuna.create_study(storage=opened(journal), study_name=luck.choice(names), load_if_exists=True), luck
        )
        if number % 7 == 0 or number == 59:
            reader = reader or JournalReader(journal)
            seen |= {(line.study, line.number): (line.state, *line[3:]) for line in reader.lines()}
            trials, forgotten = by_optuna(journal)
            assert seen == trials
            assert sorted(map(str, reader.forgotten())) == sorted(map(str, forgotten))


def test_what_is_written_of_a_trial_that_is_over_does_not_count(journal):
    storage = opened(journal)
    study = optuna.create_study(storage=storage, study_name="a")
    trial = study.ask()
    study.tell(trial, 1.0)
    with journal.open("a") as late:  # by a program that did not know it
        late.write('{"op_code":8,"worker_id":"w","trial_id":0,"user_attr":{"end":{"status":"failed"}}}\n')
        late.write('{"op_code":6,"worker_id":"w","trial_id":0,"state":3,"values":null,"datetime_complete":null}\n')
    (line,) = JournalReader(journal).lines()
    assert (line.state, line.end) == ("COMPLETE", None) == by_optuna(journal)[0]["a", 0][::2]


def test_half_a_line_waits_for_its_other_half(journal):
    study = optuna.create_study(storage=opened(journal), study_name="a")
    study.ask()
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-10])
    reader = JournalReader(journal)
    assert list(reader.lines()) == []
    journal.write_bytes(whole)
    assert [line.state for line in reader.lines()] == ["RUNNING"]
    assert list(reader.lines()) == []


DAMAGE = {
    "zeros": b"\0\0\0\n",
    "no operation": b"[1]\n",
    "no such trial": b'{"op_code":8,"trial_id":99,"user_attr":{}}\n',
    "the last trial": b'{"op_code":8,"trial_id":-1,"user_attr":{}}\n',
    "no number": b'{"op_code":8,"trial_id":"x","user_attr":{}}\n',
    "no note": b'{"op_code":2,"study_id":0,"user_attr":5}\n',
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_in_the_middle_is_told_with_what_to_do(journal, damage):
    study = optuna.create_study(storage=opened(journal), study_name="a")
    first = journal.read_bytes()
    study.ask()
    journal.write_bytes(first + damage + journal.read_bytes()[len(first) :])
    with pytest.raises(StoreError, match=r"a line of it is damaged .* Move the file away and run the study again"):
        list(JournalReader(journal).lines())
