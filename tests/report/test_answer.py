"""The first sentences of the answer, for all outcomes of cells."""

import pytest

from hqlt_lab.report.arm_rows import build_rows
from hqlt_lab.report.wording.answer import compose_answer

METRIC = "test/normalized_accuracy"


@pytest.fixture
def compose(make_experiment):
    def build(records, extra="seeds: 2\n", **options):
        experiment = make_experiment(extra, **options)
        return compose_answer(experiment, build_rows(experiment, records), records).summary

    return build


def make_records(make_record, **arms):
    return [make_record(arm, seed, value) for arm, values in arms.items() for seed, value in enumerate(values)]


def many_arms(count):
    windows = {f"w{window}": f"{{model.timing.window: {window}}}" for window in range(1, count + 1)}
    return f"arms: {{{', '.join(f'{name}: {change}' for name, change in windows.items())}}}\n"


def test_the_best_arm_is_named(compose, make_record):
    records = make_records(make_record, delta=[3.0, 3.2], linear=[100.0, 99.96], retention=[1.2, 1.2])
    assert compose(records) == f"linear does best: {METRIC} 100.0 (median of 2 seeds)."


@pytest.mark.parametrize("statistic, value", [("median", "2.0"), ("mean", "3.0"), ("best", "6.0")])
def test_the_value_is_the_configured_statistic(compose, make_record, statistic, value):
    records = make_records(make_record, base=[1.0, 2.0, 6.0])
    sentence = compose(records, f"seeds: 3\nmeasure: {{statistic: {statistic}}}\n", arms="")
    assert sentence == f"base reaches {METRIC} {value} ({statistic} of 3 seeds)."


def test_with_a_single_seed_no_statistic_is_named(compose, make_record):
    sentence = compose(make_records(make_record, base=[4.0]), "seeds: 1\n", arms="")
    assert sentence == f"base reaches {METRIC} 4.0 (1 seed)."


def test_with_minimize_the_smallest_value_is_best(compose, make_record):
    records = [
        make_record(arm, 0, 0.0, metrics={"test/loss": loss})
        for arm, loss in {"delta": 0.5, "linear": 0.25, "retention": 0.75}.items()
    ]
    assert compose(records, "seeds: 1\nmeasure: {select: valid/loss, report: [test/loss], direction: minimize}\n") == (
        "linear does best: test/loss 0.25 (1 seed)."
    )


def test_arms_with_equal_rounded_values_share_the_first_rank(compose, make_record):
    records = make_records(make_record, delta=[50.0, 50.0], linear=[10.0, 10.0], retention=[50.0, 50.04])
    assert compose(records) == f"retention and delta do best: {METRIC} 50.0 (median of 2 seeds)."


def test_equal_arms_are_reported_as_equal(compose, make_record):
    sentence = compose(make_records(make_record, delta=[5.0], linear=[5.0], retention=[5.0]), "seeds: 1\n")
    assert sentence == f"delta, linear and retention perform equally: {METRIC} 5.0 (1 seed)."


def test_without_results_there_is_no_answer(compose, make_record):
    assert compose([]) == "No results yet: 0 of 0 cells ended, none with a result."
    records = [make_record("delta", 0, state="diverged"), make_record("delta", 1)]
    assert compose(records) == "No results yet: 1 of 2 cells ended, none with a result."
    assert compose(records[:1]) == "No results: 1 of 1 cell ended, none with a result."


def test_missing_results_are_named(compose, make_record):
    records = [
        *make_records(make_record, delta=[5.0, 5.0], linear=[4.0]),
        make_record("linear", 1),
        make_record("retention", 0, state="diverged"),
    ]
    assert compose([*records, make_record("retention", 1, state="running")]) == (
        f"So far (4 of 6 cells), delta does best: {METRIC} 5.0 (median of 2 seeds). retention has no result."
    )


SOLVED = "seeds: 2\nmeasure: {solved: 99.0}\n"


def test_the_solved_seeds_of_the_best_arm_are_named(compose, make_record):
    records = make_records(make_record, delta=[100.0, 99.0], linear=[10.0, 98.0], retention=[0.0, 0.0])
    assert compose(records, SOLVED) == f"delta does best: {METRIC} 99.5 (median of 2 seeds), solved by 2 of 2 seeds."


def test_other_arms_that_solve_the_task_are_named(compose, make_record):
    records = make_records(make_record, delta=[100.0, 99.0], linear=[100.0, 98.0], retention=[99.9, 99.5])
    assert compose(records, SOLVED).endswith(" retention and delta solve the task with all seeds.")


def test_a_seed_without_a_result_counts_as_not_solved(compose, make_record):
    records = [
        *make_records(make_record, delta=[100.0, 99.0], linear=[100.0]),
        make_record("linear", 1, state="diverged"),
    ]
    summary = compose(records, SOLVED)
    assert "linear does best" in summary and "solved by 1 of 2 seeds" in summary
    assert "delta solves the task with all seeds." in summary


def test_if_no_arm_solves_the_task_the_best_is_named(compose, make_record):
    assert compose(make_records(make_record, delta=[100.0, 98.0], linear=[10.0, 10.0]), SOLVED) == (
        f"delta does best: {METRIC} 99.0 (median of 2 seeds), solved by 1 of 2 seeds. "
        "No arm solves the task with all seeds. retention has no result."
    )


def test_of_many_equal_arms_three_are_named(compose, make_record):
    records = [make_record(f"w{window}", 0, 100.0) for window in range(1, 9)]
    summary = compose(records, SOLVED, arms=many_arms(8))
    assert summary == (f"w1, w2, w3 and 5 more perform equally: {METRIC} 100.0 (1 seed), solved by 1 of 1 seed.")


def test_quoted_results_are_not_part_of_the_answer(compose, make_record):
    sentence = compose(
        make_records(make_record, base=[4.0]), f"seeds: 1\nquoted: {{Mamba: {{{METRIC}: {{best: 100.0}}}}}}\n", arms=""
    )
    assert "Mamba" not in sentence and "base reaches" in sentence
