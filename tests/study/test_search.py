"""Searching a range: a budget that is spent once, a winner that is trained on seeds it was not chosen by."""

import pytest

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.settings import MeasureConfig
from hqlt_lab.experiment.tune import Range
from hqlt_lab.study.choose import chosen_point
from hqlt_lab.study.ledger import Ledger
from hqlt_lab.study.machine import this_machine
from hqlt_lab.study.record import Record
from hqlt_lab.study.run import Choice, prepare
from hqlt_lab.study.search import length, point_of, space, values_of
from hqlt_lab.study.store import Store

SEARCH = """
arms: {sum: {}, vector: {model.mixer: vector}}
tune: {train.lr: {low: 1e-4, high: 1e-1, log: true, trials: 3}}
tune_seeds: 2
seeds: 2
"""


def test_every_arm_gets_its_budget_and_the_winner_all_seeds(lab):
    experiment = lab.experiment(SEARCH)
    watcher = lab.run(experiment)
    assert len(watcher.starts) == watcher.expected == 2 * (3 * 2 + 2)
    records = lab.records(experiment)
    for arm in ("sum", "vector"):
        searched = [r for r in records if r.arm == arm and not r.counts]
        final = [r for r in records if r.arm == arm and r.counts]
        assert {r.seed for r in searched} == {1000, 1001}
        assert len({r.point["train.lr"] for r in searched}) == 3
        assert [r.seed for r in final] == [0, 1]
        best = chosen_point(searched, experiment.measure)
        assert all(r.point == best for r in final)
    again = lab.run(experiment)
    assert again.starts == [] and again.expected == 0


def test_there_are_workers_for_the_cells_that_a_search_leads_to(lab):
    one = (
        SEARCH.replace("trials: 3", "trials: 1")
        .replace("tune_seeds: 2", "tune_seeds: 1")
        .replace(", vector: {model.mixer: vector}", "")
    )
    experiment = lab.experiment(one, overrides=("launcher.workers=null",))
    store = Store(lab.runs, experiment.name)
    with store.owned():
        study = prepare(experiment, store, Choice())
        limited = prepare(experiment, store, Choice(limit=1))
    assert len(study.waiting) == 1
    assert (study.crew.workers, limited.crew.workers) == (min(this_machine().cores, 3), 1)


def test_a_search_goes_on_where_it_stopped_and_with_one_worker_finds_the_same(lab, tmp_path):
    experiment = lab.experiment(SEARCH, overrides=("launcher.workers=1",))
    for _ in range(3):
        assert lab.run(experiment, limit=3).expected == 3
    lab.run(experiment)
    whole = type(lab)(tmp_path / "whole")
    whole.folder.mkdir()
    undisturbed = whole.experiment(SEARCH, overrides=("launcher.workers=1",))
    whole.run(undisturbed)
    told = [
        [(r.arm, r.seed, r.point, r.metrics) for r in one]
        for one in (lab.records(experiment), whole.records(undisturbed))
    ]
    assert told[0] == told[1]


def test_a_search_whose_journal_is_lost_takes_points_and_results_from_its_folders(lab):
    text = SEARCH.replace("sum: {}, ", "").replace("tune_seeds: 2\nseeds: 2", "tune_seeds: 1\nseeds: 1")
    experiment = lab.experiment(text)
    lab.run(experiment, limit=2)
    before = {record.key: (record.point, record.metrics) for record in lab.records(experiment) if record.attempts}
    study = Store(lab.runs, "tiny")
    study.journal.rename(study.journal.with_suffix(".lost"))
    lab.run(experiment)
    after = lab.records(experiment)
    assert {record.state for record in after} == {"done"} and len(after) == 4
    assert before == {record.key: (record.point, record.metrics) for record in after if record.key in before}


def test_more_trials_are_added_to_those_that_were_made(lab):
    lab.run(lab.experiment(SEARCH))
    more = lab.experiment(SEARCH.replace("trials: 3", "trials: 4"))
    watcher = lab.run(more)
    searched = [start for start in watcher.starts if start[1] >= 1000]
    assert len(searched) == 2 * 2


def test_a_renamed_arm_keeps_its_search(lab):
    lab.run(lab.experiment(SEARCH))
    renamed = lab.experiment(SEARCH.replace("{sum: {}", "{plain: {}"))
    assert lab.run(renamed).starts == []
    assert {record.arm for record in lab.records(renamed)} == {"plain", "vector"}


def test_lists_are_searched_along_with_a_range():
    tune = {"model.mixer": ["sum", {"name": "vector"}], "train.lr": Range(low=0.1, high=1.0, trials=7)}
    assert length(tune) == 7
    assert set(space(tune)) == set(tune)
    point = {"model.mixer": {"name": "vector"}, "train.lr": 0.5}
    assert point_of(values_of(point, tune), tune) == point
    assert space({"model.mixer": ["sum", "vector"]}) == {}


def test_whole_numbers_stay_whole(lab):
    text = "tune: {model.timing.window: {low: 2, high: 6, trials: 2}}\nseeds: 1"
    experiment = lab.experiment(text)
    lab.run(experiment)
    assert all(type(r.point["model.timing.window"]) is int for r in lab.records(experiment))


def test_seeds_that_were_all_tuned_on_are_refused(lab):
    with pytest.raises(ConfigError, match=r"seeds: \[0, 1\] were all tuned on"):
        lab.experiment("tune: {train.lr: {low: 0.1, high: 1.0}}\nseeds: 2\ntune_seeds: [0, 1]")


def record(lr: float, seed: int, value: float | None, test: float = 0.0) -> Record:
    names = ("valid/normalised_accuracy", "valid/loss")
    metrics = {"test/normalised_accuracy": test} | dict.fromkeys(names, value) if value is not None else {}
    state = "diverged" if value is None else "done"
    return Record(key=f"{lr}{seed}", arm="a", seed=seed, point={"train.lr": lr}, state=state, metrics=metrics)


@pytest.mark.parametrize(
    ("settings", "best"),
    [
        ({}, 2.0),
        ({"statistic": "best"}, 3.0),
        ({"statistic": "mean"}, 1.0),
        ({"select": "valid/loss", "direction": "minimize"}, 3.0),
    ],
)
def test_a_point_is_chosen_by_the_validation_set_alone(settings, best):
    values = {1.0: [50, 51, 100], 2.0: [60, 60, 60], 3.0: [0, 0, 120]}
    records = [record(lr, seed, value, test=-lr) for lr, seeds in values.items() for seed, value in enumerate(seeds)]
    assert chosen_point(records, MeasureConfig(**settings)) == {"train.lr": best}


def test_a_point_loses_when_half_of_its_seeds_are_lost():
    records = [record(1.0, 0, 100.0), record(1.0, 1, None), record(2.0, 0, 1.0), record(2.0, 1, 1.0)]
    assert chosen_point(records, MeasureConfig()) == {"train.lr": 2.0}
    assert chosen_point([], MeasureConfig()) is None


PRUNE = """
tune: {train.lr: [1e-2, 2e-2, 3e-2, 1e-9]}
prune: {after: 2, finished: 2}
seeds: 1
measure: {select: valid/loss, direction: minimize, report: [test/loss]}
"""


def test_a_hopeless_point_is_given_up_within_its_arm(lab):
    experiment = lab.experiment(PRUNE, overrides=("launcher.workers=1", "train.steps=60", "train.valid_every=5"))
    lab.run(experiment)
    states = {r.point["train.lr"]: (r.state, r.step) for r in lab.records(experiment)}
    assert states[1e-2][0] == "done"
    state, step = states[1e-9]
    assert state == "pruned" and 5 <= step < 60
    again = lab.run(experiment)
    assert again.starts == [] and again.expected == 0


def test_a_cell_that_goes_on_is_judged_by_all_it_has_reached(lab, faulty, tmp_path):
    mixer = f"{{name: faulty, how: die, step: 40, mark: {tmp_path / 'died'}}}"
    experiment = lab.experiment(
        PRUNE + f"arms: {{a: {{model.mixer: {mixer}}}}}\n",
        overrides=("launcher.workers=1", "train.steps=60", "train.valid_every=5", "train.checkpoint_every=20"),
    )
    lab.run(experiment, limit=2)  # attempts
    with (store := Store(lab.runs, experiment.name)).owned():
        ledger = Ledger(store)
        (name,) = ledger.names
        died, ended = ledger.study(name).get_trials()
    assert (died.state.name, ended.state.name) == ("FAIL", "COMPLETE")
    assert list(ended.intermediate_values) == list(range(5, 61, 5))


def test_pruning_without_tuning_is_refused(lab):
    with pytest.raises(ConfigError, match="prune: nothing is tuned"):
        lab.experiment("prune: {after: 10}\nseeds: 2")
