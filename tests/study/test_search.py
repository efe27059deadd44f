"""Search over a range: the budget is spent once, and the best point is trained on seeds that did not select it."""

import pytest

from hqlt_lab.experiment.parse_axes import Range
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.study.executors.resources import detect_resources
from hqlt_lab.study.ledger.cell_record import CellRecord
from hqlt_lab.study.ledger.ledger import Ledger
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.study.plan.search_space import build_search_space, count_trials, params_from_point, point_from_params
from hqlt_lab.study.plan.select_point import select_point
from hqlt_lab.study.run_study import CellSelection, prepare_study
from tests.issues import raises_issue

SEARCH = """
arms: {sum: {}, vector: {model.mixer: vector}}
tune: {train.lr: {low: 1e-4, high: 1e-1, log: true, trials: 3}}
tune_seeds: 2
seeds: 2
"""


def test_every_arm_gets_its_budget_and_its_best_point_all_seeds(lab):
    experiment = lab.experiment(SEARCH)
    callback = lab.run(experiment)
    assert len(callback.starts) == callback.expected == 2 * (3 * 2 + 2)
    records = lab.records(experiment)
    for arm in ("sum", "vector"):
        searched = [r for r in records if r.arm == arm and not r.is_reported]
        final = [r for r in records if r.arm == arm and r.is_reported]
        assert {r.seed for r in searched} == {1000, 1001}
        assert len({r.point["train.lr"] for r in searched}) == 3
        assert [r.seed for r in final] == [0, 1]
        best = select_point(searched, experiment.measure)
        assert all(r.point == best for r in final)
    again = lab.run(experiment)
    assert again.starts == [] and again.expected == 0


def test_number_of_workers_includes_the_final_cells_of_a_search(lab):
    single_arm = (
        SEARCH.replace("trials: 3", "trials: 1")
        .replace("tune_seeds: 2", "tune_seeds: 1")
        .replace(", vector: {model.mixer: vector}", "")
    )
    experiment = lab.experiment(single_arm, overrides=("launcher.workers=null",))
    store = StudyStore(lab.runs, experiment.name)
    with store.session():
        study = prepare_study(experiment, store, CellSelection())
        limited = prepare_study(experiment, store, CellSelection(limit=1))
    assert len(study.waiting_cells) == 1
    assert (study.executor.workers, limited.executor.workers) == (min(detect_resources().cores, 3), 1)


def test_resumed_search_with_one_worker_finds_the_same_points(lab, tmp_path):
    experiment = lab.experiment(SEARCH, overrides=("launcher.workers=1",))
    for _ in range(3):
        assert lab.run(experiment, limit=3).expected == 3
    lab.run(experiment)
    other_lab = type(lab)(tmp_path / "uninterrupted")
    other_lab.folder.mkdir()
    uninterrupted = other_lab.experiment(SEARCH, overrides=("launcher.workers=1",))
    other_lab.run(uninterrupted)
    results, expected = (
        [(r.arm, r.seed, r.point, r.metrics) for r in records]
        for records in (lab.records(experiment), other_lab.records(uninterrupted))
    )
    assert results == expected


def test_search_whose_journal_is_lost_reads_points_and_results_from_the_cell_folders(lab):
    text = SEARCH.replace("sum: {}, ", "").replace("tune_seeds: 2\nseeds: 2", "tune_seeds: 1\nseeds: 1")
    experiment = lab.experiment(text)
    lab.run(experiment, limit=2)
    before = {record.key: (record.point, record.metrics) for record in lab.records(experiment) if record.attempts}
    store = StudyStore(lab.runs, "tiny")
    store.journal_file.rename(store.journal_file.with_suffix(".lost"))
    lab.run(experiment)
    after = lab.records(experiment)
    assert {record.state for record in after} == {"done"} and len(after) == 4
    assert before == {record.key: (record.point, record.metrics) for record in after if record.key in before}


def test_larger_budget_adds_trials_to_the_existing_ones(lab):
    lab.run(lab.experiment(SEARCH))
    more = lab.experiment(SEARCH.replace("trials: 3", "trials: 4"))
    callback = lab.run(more)
    searched = [start for start in callback.starts if start[1] >= 1000]
    assert len(searched) == 2 * 2


def test_a_renamed_arm_keeps_its_search(lab):
    lab.run(lab.experiment(SEARCH))
    renamed = lab.experiment(SEARCH.replace("{sum: {}", "{plain: {}"))
    assert lab.run(renamed).starts == []
    assert {record.arm for record in lab.records(renamed)} == {"plain", "vector"}


def test_lists_are_searched_along_with_a_range():
    tune = {"model.mixer": ["sum", {"name": "vector"}], "train.lr": Range(low=0.1, high=1.0, trials=7)}
    assert count_trials(tune) == 7
    assert set(build_search_space(tune)) == set(tune)
    point = {"model.mixer": {"name": "vector"}, "train.lr": 0.5}
    assert point_from_params(params_from_point(point, tune), tune) == point
    assert build_search_space({"model.mixer": ["sum", "vector"]}) == {}


def test_values_of_an_integer_range_are_integers(lab):
    text = "tune: {model.timing.window: {low: 2, high: 6, trials: 2}}\nseeds: 1"
    experiment = lab.experiment(text)
    lab.run(experiment)
    assert all(type(r.point["model.timing.window"]) is int for r in lab.records(experiment))


def test_seeds_that_are_all_used_for_tuning_are_an_error(lab):
    with raises_issue("seeds", "no_final_seed"):
        lab.experiment("tune: {train.lr: {low: 0.1, high: 1.0}}\nseeds: 2\ntune_seeds: [0, 1]")


def make_record(lr: float, seed: int, value: float | None, test: float = 0.0) -> CellRecord:
    names = ("valid/normalized_accuracy", "valid/loss")
    metrics = {"test/normalized_accuracy": test} | dict.fromkeys(names, value) if value is not None else {}
    state = "diverged" if value is None else "done"
    return CellRecord(key=f"{lr}{seed}", arm="a", seed=seed, point={"train.lr": lr}, state=state, metrics=metrics)


@pytest.mark.parametrize(
    ("settings", "best"),
    [
        ({}, 2.0),
        ({"statistic": "best"}, 3.0),
        ({"statistic": "mean"}, 1.0),
        ({"select": "valid/loss", "direction": "minimize"}, 3.0),
    ],
)
def test_point_is_selected_by_the_validation_set_alone(settings, best):
    values = {1.0: [50, 51, 100], 2.0: [60, 60, 60], 3.0: [0, 0, 120]}
    records = [
        make_record(lr, seed, value, test=-lr) for lr, seeds in values.items() for seed, value in enumerate(seeds)
    ]
    assert select_point(records, MeasureConfig(**settings)) == {"train.lr": best}


def test_point_loses_when_half_of_its_seeds_are_lost():
    values = [(1.0, 0, 100.0), (1.0, 1, None), (2.0, 0, 1.0), (2.0, 1, 1.0)]
    records = [make_record(lr, seed, value) for lr, seed, value in values]
    assert select_point(records, MeasureConfig()) == {"train.lr": 2.0}
    assert select_point([], MeasureConfig()) is None


PRUNE = """
tune: {train.lr: [1e-2, 2e-2, 3e-2, 1e-9]}
prune: {after: 2, finished: 2}
seeds: 1
measure: {select: valid/loss, direction: minimize, report: [test/loss]}
"""


def test_bad_point_is_pruned_against_the_other_points_of_its_arm(lab):
    experiment = lab.experiment(PRUNE, overrides=("launcher.workers=1", "train.steps=60", "train.valid_every=5"))
    lab.run(experiment)
    states = {r.point["train.lr"]: (r.state, r.step) for r in lab.records(experiment)}
    assert states[1e-2][0] == "done"
    state, step = states[1e-9]
    assert state == "pruned" and 5 <= step < 60
    again = lab.run(experiment)
    assert again.starts == [] and again.expected == 0


def test_pruner_gets_the_values_of_all_attempts_at_a_resumed_cell(lab, faulty, tmp_path):
    mixer = f"{{name: faulty, how: die, step: 40, mark: {tmp_path / 'died'}}}"
    experiment = lab.experiment(
        PRUNE + f"arms: {{a: {{model.mixer: {mixer}}}}}\n",
        overrides=("launcher.workers=1", "train.steps=60", "train.valid_every=5", "train.checkpoint_every=20"),
    )
    lab.run(experiment, limit=2)  # the limit counts attempts
    with (store := StudyStore(lab.runs, experiment.name)).session():
        ledger = Ledger(store)
        (name,) = ledger.study_names
        failed, finished = ledger.open_study(name).get_trials()
    assert (failed.state.name, finished.state.name) == ("FAIL", "COMPLETE")
    assert list(finished.intermediate_values) == list(range(5, 61, 5))


def test_pruning_without_tuning_is_an_error(lab):
    with raises_issue("prune", "prune_without_tune"):
        lab.experiment("prune: {after: 10}\nseeds: 2")
