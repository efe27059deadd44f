"""One sentence, whatever came of the cells."""

import pytest

from hqlt_lab.report.answer import answer
from hqlt_lab.report.rows import rows_of

TEST = "test/normalised_accuracy"


@pytest.fixture
def said(asked):
    def say(records, more="seeds: 2\n", **told):
        experiment = asked(more, **told)
        return answer(experiment, rows_of(experiment, records), records)

    return say


def seeds(cell, **arms):
    return [cell(arm, seed, value) for arm, values in arms.items() for seed, value in enumerate(values)]


def many(count):
    windows = {f"w{window}": f"{{model.timing.window: {window}}}" for window in range(1, count + 1)}
    return f"arms: {{{', '.join(f'{name}: {change}' for name, change in windows.items())}}}\n"


def test_the_best_arm_is_named_and_the_others_follow_in_order(said, cell):
    records = seeds(cell, delta=[3.0, 3.2], linear=[100.0, 99.96], retention=[1.2, 1.2])
    assert said(records) == (
        f"Within 300 steps, linear does best: {TEST} 100.0 (median of 2 seeds); delta 3.1, retention 1.2."
    )


@pytest.mark.parametrize("statistic, value", [("median", "2.0"), ("mean", "3.0"), ("best", "6.0")])
def test_the_value_is_the_statistic_of_the_file(said, cell, statistic, value):
    records = seeds(cell, base=[1.0, 2.0, 6.0])
    sentence = said(records, f"seeds: 3\nmeasure: {{statistic: {statistic}}}\n", arms="")
    assert sentence == f"Within 300 steps, base reaches {TEST} {value} ({statistic} of 3 seeds)."


def test_a_single_seed_has_no_statistic(said, cell):
    sentence = said(seeds(cell, base=[4.0]), "seeds: 1\n", arms="")
    assert sentence == f"Within 300 steps, base reaches {TEST} 4.0 (1 seed)."


def test_smaller_may_be_better(said, cell):
    records = [
        cell(arm, 0, 0.0, metrics={"test/loss": loss})
        for arm, loss in {"delta": 0.5, "linear": 0.25, "retention": 0.75}.items()
    ]
    assert said(records, "seeds: 1\nmeasure: {select: valid/loss, report: [test/loss], direction: minimize}\n") == (
        "Within 300 steps, linear does best: test/loss 0.25 (1 seed); delta 0.5, retention 0.75."
    )


def test_arms_with_the_same_number_share_the_place(said, cell):
    records = seeds(cell, delta=[50.0, 50.0], linear=[10.0, 10.0], retention=[50.0, 50.04])
    assert said(records) == (
        f"Within 300 steps, retention and delta do best: {TEST} 50.0 (median of 2 seeds); linear 10.0."
    )


def test_all_arms_may_be_equal(said, cell):
    sentence = said(seeds(cell, delta=[5.0], linear=[5.0], retention=[5.0]), "seeds: 1\n")
    assert sentence == f"Within 300 steps, delta, linear and retention end alike: {TEST} 5.0 (1 seed)."


def test_nothing_is_finished_yet(said, cell):
    assert said([]) == "There is no answer yet: 0 of 0 cells ended, none with a result."
    records = [cell("delta", 0, state="diverged"), cell("delta", 1)]
    assert said(records) == "There is no answer yet: 1 of 2 cells ended, none with a result."
    assert said(records[:1]) == "There is no answer: 1 of 1 cell ended, none with a result."


def test_what_is_missing_is_said(said, cell):
    records = [*seeds(cell, delta=[5.0, 5.0], linear=[4.0]), cell("linear", 1), cell("retention", 0, state="diverged")]
    assert said([*records, cell("retention", 1, state="running")]) == (
        f"So far (4 of 6 cells), within 300 steps, delta does best: {TEST} 5.0 (median of 1 to 2 seeds); linear 4.0; "
        "retention has no result."
    )


def test_steps_may_differ(said, cell):
    records = [cell("delta", 0, 5.0, step=120), cell("linear", 0, 4.0), cell("retention", 0, state="diverged", step=9)]
    assert said(records, "seeds: 1\n").startswith("Within 120 to 300 steps, delta does best")


SOLVED = "seeds: 2\nmeasure: {solved: 99.0}\n"


def test_who_solves_it_and_who_does_not(said, cell):
    records = seeds(cell, delta=[100.0, 99.0], linear=[100.0, 98.0], retention=[99.9, 99.5])
    assert said(records, SOLVED) == (
        f"Within 300 steps, retention and delta solve it ({TEST} at least 99 in 2 of 2 seeds); "
        "linear (1 of 2) does not."
    )


def test_a_lost_seed_did_not_solve_it(said, cell):
    records = [*seeds(cell, delta=[100.0, 99.0], linear=[100.0]), cell("linear", 1, state="diverged")]
    assert "delta solves it" in said(records, SOLVED) and "linear (1 of 2) does not" in said(records, SOLVED)


def test_where_nobody_solves_it_the_best_is_named(said, cell):
    assert said(seeds(cell, delta=[100.0, 98.0], linear=[10.0, 10.0]), SOLVED) == (
        f"Within 300 steps, no arm solves it with every seed; delta does best: {TEST} 99.0 (median of 2 seeds); "
        "linear 10.0; retention has no result."
    )


def test_of_many_arms_the_ends_are_named(said, cell):
    records = [cell(f"w{window}", 0, 10.0 * window) for window in range(1, 9)]
    assert said(records, "seeds: 1\n", arms=many(8)) == (
        f"Within 300 steps, w8 does best: {TEST} 80.0 (1 seed); then w7 70.0, w6 60.0; 4 lie between; "
        "w1 10.0 is the worst."
    )


def test_many_arms_may_solve_it(said, cell):
    records = [cell(f"w{window}", 0, 100.0) for window in range(1, 9)]
    sentence = said(records, SOLVED, arms=many(8))
    assert sentence == f"Within 300 steps, w1, w2, w3 and 5 more solve it ({TEST} at least 99 in 1 of 1 seeds)."


def test_what_is_quoted_is_not_part_of_the_answer(said, cell):
    sentence = said(seeds(cell, base=[4.0]), f"seeds: 1\nquoted: {{Mamba: {{{TEST}: {{best: 100.0}}}}}}\n", arms="")
    assert "Mamba" not in sentence and "base reaches" in sentence
