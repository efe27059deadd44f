"""Seeds until decided: which arms get more seeds, and that an interrupted study comes to the same decisions.

Most tests write results to the ledger without training, so that every outcome of a look can be chosen.
"""

import signal

import pytest
from rich.console import Console

from hqlt_lab.cli.terminal.study_progress import StudyProgress
from hqlt_lab.errors import StoreError
from hqlt_lab.report.study_report import Report
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.study.plan.sequential_testing_record import LOOKS_FILE, describe_looks, read_looks, write_looks
from hqlt_lab.study.run_study import open_plan
from tests.issues import raises_issue

from .study_folder import StudyFolder, all_exited, process_tree

ARMS = "arms: {a: {}, b: {model.mixer: vector}, c: {model.mixer: scalar}}\n"
SEEDS = """
seeds: {min: 3, max: 8, until: decided, looks: [3, 5, 8]}
measure: {select: valid/loss, direction: minimize, report: [test/loss]}
"""
LOSS = "test/loss"


class LedgerWriter:
    """Writes results of waiting cells to the ledger of a study."""

    def __init__(self, lab, experiment) -> None:
        self.store, self.experiment = StudyStore(lab.runs, experiment.name), experiment

    def finish_cells(self, value, limit=1000):
        """Finish waiting cells, look after look; `value(arm, seed)` is the loss, or the state of a cell without one."""
        with self.store.session():
            plan = open_plan(self.experiment, self.store)
            while limit > 0 and (waiting := [ref for ref in plan.list_cells() if plan.cell_state(ref) == "waiting"]):
                for ref in waiting[:limit]:
                    self.finish_cell(plan, ref, value(ref.arm.title, ref.seed))
                limit -= len(waiting)
        return self

    def finish_cell(self, plan, ref, result):
        attributes = {"key": ref.key, "arm": ref.arm.title.to_dict(), "seed": ref.seed, "point": dict(ref.point)}
        attributes |= {"is_reported": ref.is_reported, "code": {}}
        name = plan.study_name_by_arm[ref.arm.title]
        attempt = plan.ledger.begin_attempt(name, plan.ledger.ask_trial(name, {}), attributes)
        if isinstance(result, str):
            plan.ledger.finish_attempt(attempt, result, permanent=True)
        else:
            plan.ledger.finish_attempt(attempt, "done", result, metrics={"valid/loss": result, LOSS: result})

    def plan(self):
        return open_plan(self.experiment, StudyStore(self.store.root, self.store.name))

    def count_seeds(self):
        return {str(title): count for title, count in self.plan().count_seeds().items()}

    def verdicts(self):
        """Return verdict, look and number of seeds of each comparison in the report."""
        plan = self.plan()
        rows = Report.from_records(plan.experiment, plan.list_records()).rows
        differences = {str(row.title): row.differences[LOSS] for row in rows if LOSS in row.differences}
        return {name: (each.verdict, each.look, each.n) for name, each in differences.items()}


def seed_noise(seed):
    """Return noise of the size 1 that differs between seeds."""
    return (0.3, -1.1, 0.9, -0.2, 1.2, -0.8, 0.5, -0.6)[seed % 8]


def b_is_worse_and_c_equal(arm, seed):
    """Return losses: every seed of b is worse by far, c differs from a by noise."""
    return {"a": 1.0, "b": 60.0 + 0.1 * seed_noise(seed), "c": 1.0 + seed_noise(seed)}[arm.split(",")[0]]


@pytest.fixture
def write(lab):
    return lambda text: LedgerWriter(lab, lab.experiment(text))


def test_decided_arms_get_no_more_seeds_and_the_baseline_those_of_the_undecided(write):
    study = write(ARMS + SEEDS)
    assert study.count_seeds() == {"a": 3, "b": 3, "c": 3}
    study.finish_cells(b_is_worse_and_c_equal, limit=9)
    assert study.count_seeds() == {"a": 5, "b": 3, "c": 5}
    study.finish_cells(b_is_worse_and_c_equal)
    assert study.count_seeds() == {"a": 8, "b": 3, "c": 8}
    assert study.verdicts() == {"b": ("worse", 1, 3), "c": ("not_significant", 3, 8)}


def test_plan_and_report_come_to_the_same_decisions_in_a_crossed_study(write):
    study = write("arms: {a: {}, b: {model.mixer: vector}}\ncross: {train.lr: [1e-2, 1e-3]}\n" + SEEDS)
    study.finish_cells(lambda arm, seed: 1.0 + (50 * ("b, lr=0.01" in arm)) + 0.1 * seed_noise(seed + len(arm)))
    assert study.count_seeds() == {"a, lr=0.01": 3, "a, lr=0.001": 8, "b, lr=0.01": 3, "b, lr=0.001": 8}
    assert study.verdicts() == {"b, lr=0.01": ("worse", 1, 3), "b, lr=0.001": ("not_significant", 3, 8)}
    result = study.plan().evaluate_looks()
    assert [difference.verdict for difference in result.differences] == ["worse", "not_significant"]


def test_an_arm_that_is_also_a_baseline_has_the_seeds_of_both_comparisons(write):
    text = "arms: {a: {}, b: {model.mixer: vector}}\none_at_a_time: {train.lr: [1e-3]}\n" + SEEDS
    study = write(text).finish_cells(lambda arm, seed: 50.0 * ("lr=0.001" in arm) + seed_noise(seed + len(arm)))
    assert study.count_seeds() == {"a": 8, "a, lr=0.001": 8, "b": 8, "b, lr=0.001": 8}
    assert study.verdicts()["a, lr=0.001"] == ("worse", 1, 3)  # later seeds are for b alone


@pytest.mark.parametrize("limits", [(1, 4, 9, 100), (9, 1, 100), (5, 6, 7, 8, 100)])
def test_interrupted_study_comes_to_the_same_decisions(write, limits):
    study = write(ARMS + SEEDS)
    for limit in limits:
        study.finish_cells(b_is_worse_and_c_equal, limit)
    assert study.verdicts() == {"b": ("worse", 1, 3), "c": ("not_significant", 3, 8)}
    assert len(study.plan().list_cells()) == 8 + 3 + 8


def test_raising_the_maximum_continues_after_the_looks_that_were_taken(lab, write):
    small = SEEDS.replace("max: 8, until: decided, looks: [3, 5, 8]", "max: 4")
    study = write(ARMS + small).finish_cells(b_is_worse_and_c_equal)
    lab.run(study.experiment)  # trains nothing, and records the looks
    assert read_looks(study.store.folder) == (3, 4)
    study = write(ARMS + small.replace("max: 4", "max: 8")).finish_cells(b_is_worse_and_c_equal)
    assert study.plan().experiment.looks == (3, 4, 5, 8)
    assert study.verdicts() == {"b": ("worse", 1, 3), "c": ("not_significant", 4, 8)}


def test_looks_that_were_taken_stay_if_the_file_has_others(lab, write):
    study = write(ARMS + SEEDS).finish_cells(b_is_worse_and_c_equal, limit=9)
    write_looks(study.store.folder, study.plan().evaluate_looks().counts)
    for looks in ("min: 4, max: 8, looks: [4, 8]", "min: 8, max: 8"):
        changed = write(ARMS + SEEDS.replace("min: 3, max: 8, until: decided, looks: [3, 5, 8]", looks))
        assert changed.plan().experiment.looks[0] == 3
    fixed = write(ARMS + "seeds: 8\n").plan().experiment
    assert fixed.looks == () and "added until" in fixed.warnings[-1]


def test_a_longer_record_of_looks_is_kept(tmp_path):
    for counts in ((3, 5), (3,), ()):
        write_looks(tmp_path, counts)
        assert read_looks(tmp_path) == (3, 5)


@pytest.mark.parametrize("content", ['{"looks": [5, 3]}', '{"looks": [1e9]}', '{"looks": [99999999]}', "{}", "[]", "{"])
def test_damaged_record_of_looks_is_an_error(lab, write, content):
    study = write(ARMS + SEEDS)
    study.store.folder.mkdir(parents=True)
    (study.store.folder / LOOKS_FILE).write_text(content)
    with pytest.raises(StoreError, match=LOOKS_FILE):
        study.plan()


@pytest.mark.parametrize("state", ["diverged", "failed", "pruned"])
def test_lost_seeds_do_not_stall_a_look(write, state):
    """An arm without any value gets no more seeds, nor does one that is better but lost seeds."""

    def lose_some(arm, seed):
        if arm == "b":
            return state
        return {"a": 50.0 + seed_noise(seed), "c": state if seed == 1 else 1.0 + 0.01 * seed_noise(seed)}[arm]

    study = write(ARMS + SEEDS.replace("min: 3, max: 8, until: decided, looks: [3, 5, 8]", "min: 5, max: 8"))
    study.finish_cells(lose_some)
    assert study.count_seeds() == {"a": 5, "b": 5, "c": 5}
    assert study.verdicts() == {"c": ("not_significant", 1, 4)}
    result = study.plan().evaluate_looks()
    assert (result.num_decided, result.num_open, result.counts) == (0, 0, (5,))
    assert "2 cannot be decided" in describe_looks(result, (5, 8))


def test_a_look_is_not_taken_while_a_cell_is_trained_again(lab, write):
    study = write(ARMS + SEEDS).finish_cells(b_is_worse_and_c_equal, limit=9)
    with study.store.session():
        plan = study.plan()
        plan.ledger.supersede_cells([plan.list_cells()[0].key])
    assert study.plan().evaluate_looks().counts == () and study.count_seeds() == {"a": 3, "b": 3, "c": 3}
    study.finish_cells(b_is_worse_and_c_equal, limit=1)
    assert study.count_seeds() == {"a": 5, "b": 3, "c": 5}


def test_lists_are_tuned_on_other_seeds_than_those_that_are_reported(write):
    study = write(ARMS + SEEDS + "tune: {train.lr: [1e-2, 1e-3]}\ntune_seeds: 2\n")
    plan = study.plan()
    assert {(ref.seed, ref.is_reported) for ref in plan.list_cells()} == {(1000, False), (1001, False)}
    assert len(plan.list_cells()) == 3 * 2 * 2 and len(plan.pending_final_cells()) == 3 * 3
    assert plan.total_cells == 3 * 2 * 2 + 3 * 3
    study.finish_cells(b_is_worse_and_c_equal)
    reported = [record for record in study.plan().list_records() if record.is_reported]
    assert {(record.arm, record.point["train.lr"]) for record in reported} == {("a", 0.01), ("b", 0.01), ("c", 0.01)}
    assert study.verdicts() == {"b": ("worse", 1, 3), "c": ("not_significant", 3, 8)}


def test_coordinator_continues_from_look_to_look_in_one_run(lab, capsys):
    text = "arms: {a: {}, b: {train.weight_decay: 0.011}}\n" + SEEDS  # a difference that 5 seeds do not show
    experiment = lab.experiment(text.replace("max: 8", "max: 5").replace("[3, 5, 8]", "[3, 5]"))
    callback = StudyProgress(Console(width=120), experiment.measure)
    lab.run(experiment, callback)
    assert callback.num_settled == callback.num_cells == len(lab.records(experiment))
    assert callback.eta.waiting == {}
    assert read_looks(lab.runs / "studies/tiny") == (3, 5)
    output = capsys.readouterr().out
    assert "Look 1 of 2, after 3 seeds:" in output and "Look 2 of 2, after 5 seeds:" in output
    assert lab.run(experiment).starts == []


def test_seeds_until_decided_need_a_comparison_and_seeds_for_tuning(lab):
    with raises_issue("seeds", "nothing_to_decide"):
        lab.experiment(SEEDS)
    with raises_issue("tune_seeds", "tune_seed_reported"):
        lab.experiment(ARMS + SEEDS + "tune: {train.lr: [1e-2, 1e-3]}\ntune_seeds: [2]\n")


MIXER = "model.mixer: {name: faulty, seconds: 0.02}"
STUDY = f"""
arms: {{a: {{{MIXER}}}, b: {{{MIXER}, train.lr: 1}}, c: {{{MIXER}, train.weight_decay: 0.011}}}}
""" + SEEDS.replace("max: 8", "max: 5").replace("[3, 5, 8]", "[3, 5]")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> StudyFolder:
    return make_study(tmp_path_factory.mktemp("undisturbed"))


def make_study(folder):
    study = StudyFolder(folder)
    study.write_study(STUDY)
    return study


@pytest.mark.slow
def test_study_killed_at_every_look_comes_to_the_same_table(undisturbed, tmp_path):
    expected = undisturbed.finish()
    study = make_study(tmp_path)
    for points in (20, 120, 240):  # in the first look, at its end, in the second look
        process = study.start()
        study.wait_for_points(points, process)
        processes = process_tree(process)
        process.send_signal(signal.SIGKILL)
        assert all_exited(processes)
        process.communicate()
    output = study.finish()
    assert study.results() == undisturbed.results()
    tables = [text[text.index("Does it run?") :].partition("tokens/s")[0] for text in (expected, output)]
    csv_files = [(folder.study / "report.json").read_text() for folder in (undisturbed, study)]
    verdicts = [[line for line in text.splitlines() if '"verdict"' in line or '"look"' in line] for text in csv_files]
    assert tables and verdicts[0] == verdicts[1] and len(verdicts[0]) > 2
    assert read_looks(study.study) == read_looks(undisturbed.study)
