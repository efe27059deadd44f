"""Arms against their baseline: by hand, and what a verdict asks for."""

import pytest
from scipy import stats

from hqlt_lab.experiment.experiment import Arm
from hqlt_lab.report.chance import fisher, sign_flips
from hqlt_lab.report.differences import baselines_of
from hqlt_lab.report.intervals import step_of
from hqlt_lab.report.rows import rows_of

TEST = "test/normalised_accuracy"


@pytest.fixture
def compared(asked, cell):
    """The difference of the second arm to the first, from values by seed."""

    def compare(*arms, more="", metric=TEST):
        names = ["delta", "linear", "retention"][: len(arms)]
        seeds = max(len(values) for values in arms)
        records = [
            cell(name, seed, value)
            for name, values in zip(names, arms, strict=True)
            for seed, value in enumerate(values)
        ]
        rows = rows_of(asked(f"seeds: {seeds}\n{more}"), records)
        return [row.differences.get(metric) for row in rows[1 : len(arms)]]

    return compare


def test_three_seeds_by_hand(compared):
    # d = 2, 3, 4: mean 3, s = 1, 3 -+ 4.302653 / sqrt(3)
    (found,) = compared([10.0, 20.0, 30.0], [12.0, 23.0, 34.0])
    assert (found.baseline, found.n, found.mean) == ("delta", 3, pytest.approx(3.0))
    assert (found.low, found.high) == pytest.approx((0.515862, 5.484138), abs=1e-5)
    assert found.p == pytest.approx(stats.ttest_rel([12, 23, 34], [10, 20, 30]).pvalue)
    assert (found.verdict, found.needed, found.permutation, found.fisher) == ("better", None, None, None)
    assert found.confidence == pytest.approx(0.95)


def test_pairing_sees_what_means_do_not(compared):
    # the seeds differ by 10, the arms by 2: unpaired nobody could tell
    (found,) = compared([10.0, 20.0, 30.0], [12.0, 22.1, 31.9])
    assert found.verdict == "better"
    assert stats.ttest_ind([12.0, 22.1, 31.9], [10.0, 20.0, 30.0]).pvalue > 0.8


def test_98_against_3_with_three_seeds_is_found(compared):
    (found,) = compared([3.0, 4.1, 2.2], [98.0, 97.1, 99.2], more="measure: {solved: 90}\n")
    assert found.verdict == "better"
    (found,) = compared([98.0, 97.1, 99.2], [3.0, 4.1, 2.2])
    assert found.verdict == "worse"


def test_only_seeds_that_both_have_are_paired(compared):
    (found,) = compared([10.0, 20.0], [12.0, 23.0, 900.0])
    assert (found.n, found.mean) == (2, pytest.approx(2.5))


def test_several_arms_are_corrected_together(compared):
    first, second = compared([10.0, 20.0, 30.0], [12.0, 23.0, 34.0], [10.1, 19.9, 30.3])
    assert first.p < 0.05 and first.p > 0.025, "alone it would be found"
    assert first.confidence == pytest.approx(0.975) and first.low < 0
    assert first.verdict == second.verdict == "undecided"
    assert first.needed in (4, 5)
    assert second.confidence == pytest.approx(0.975), "no better than the one that failed"


def test_a_difference_below_the_margin_is_undecided_for_good(compared):
    (found,) = compared([10.0, 20.0, 30.0], [12.0, 22.1, 31.9], more="measure: {margin: 5}\n")
    assert found.low > 0
    assert (found.verdict, found.needed) == ("undecided", None)


def test_a_perfect_separation_is_found_whatever_else_is_in_the_table(compared):
    for arms in ([[0.0] * 3, [100.0] * 3], [[0.0] * 3, [100.0] * 3, [3.1, 3.5, 2.7]]):
        assert compared(*arms)[0].verdict == "better"


def test_a_verdict_says_why_it_is_none(compared):
    (found,) = compared([10.0, 20.0, 30.0], [12.0, 22.1, 31.9], more="measure: {margin: 5}\n")
    assert found.why == "below the margin"


def test_smaller_may_be_better(asked, cell):
    losses = {"delta": [0.5, 0.6, 0.7], "linear": [0.4, 0.5, 0.61], "retention": [0.5, 0.7, 0.6]}
    records = [
        cell(arm, seed, 0.0, metrics={"test/loss": loss})
        for arm, values in losses.items()
        for seed, loss in enumerate(values)
    ]
    rows = rows_of(asked("seeds: 3\nmeasure: {report: [test/loss]}\n"), records)
    found = rows[1].differences["test/loss"]
    assert found.mean < 0 and found.verdict == "better"


def test_one_seed_gives_no_verdict(compared):
    (found,) = compared([10.0], [90.0])
    assert (found.n, found.mean, found.low, found.verdict, found.needed) == (1, 80.0, None, None, None)


def test_where_a_task_is_solved_or_not_two_seeds_are_luck(compared):
    for more, verdict, needed in (("", "better", None), ("measure: {solved: 90}\n", "undecided", 3)):
        (found,) = compared([3.0, 3.1], [98.0, 98.2], more=more)
        assert (found.verdict, found.needed) == (verdict, needed)


def test_that_caution_and_not_the_margin_is_for_every_metric(asked, cell):
    told = {"delta": (3.0, 0.7), "linear": (99.0, 0.3)}
    records = [
        cell(arm, seed, 0.0, metrics={TEST: value + seed, "test/loss": loss + seed / 1000})
        for arm, (value, loss) in told.items()
        for seed in range(3)
    ]
    rows = rows_of(asked(f"seeds: 3\nmeasure: {{report: [{TEST}, test/loss], margin: 5, solved: 90}}\n"), records)
    assert rows[1].differences["test/loss"].verdict == "better", "the margin is in points of accuracy"
    two = [record for record in records if record.seed < 2]
    rows = rows_of(asked(f"seeds: 2\nmeasure: {{report: [{TEST}, test/loss], solved: 90}}\n"), two)
    assert {rows[1].differences[metric].verdict for metric in (TEST, "test/loss")} == {"undecided"}


def test_a_seed_without_a_number_is_lost(asked, cell):
    records = [cell("delta", seed, 50.0 + seed) for seed in range(3)]
    records += [cell("linear", seed, value) for seed, value in enumerate([float("nan"), 80.0, 81.1])]
    found = rows_of(asked("seeds: 3\n"), records)[1].differences[TEST]
    assert (found.n, found.verdict, found.why) == (2, "undecided", "linear lost seeds")


def test_solved_fractions_have_an_exact_test(compared):
    (found,) = compared([1.0, 2.0, 3.0, 99.0, 2.5], [99.0, 98.0, 97.0, 99.5, 98.5], more="measure: {solved: 90}\n")
    # 5 of 5 against 1 of 5: 6 of 10 solved fall 5 to 1 or 1 to 5 in 2 * 5 of C(10, 6) = 210 ways
    assert found.fisher == pytest.approx(10 / 210)


def test_an_arm_that_lost_seeds_is_not_called_better(asked, cell):
    good = [cell("linear", seed, 98.0 + seed / 10) for seed in range(3)]
    bad = [cell("delta", seed, 3.0 - seed / 10) for seed in range(4)]
    lost = cell("linear", 3, state="diverged")
    for records, verdict in (([*good, *bad], "better"), ([*good, lost, *bad], "undecided")):
        assert rows_of(asked("seeds: 4\n"), records)[1].differences[TEST].verdict == verdict
    # the baseline has lost another one, which is no excuse
    others = [cell("linear", seed, 98.0 + seed / 10) for seed in range(1, 4)] + [cell("linear", 0, state="diverged")]
    records = [*others, *bad[:3], cell("delta", 3, state="failed")]
    assert rows_of(asked("seeds: 4\n"), records)[1].differences[TEST].verdict == "undecided"
    # whoever loses seeds and is worse, is worse
    records = [cell("delta", seed, 98.0 + seed / 10) for seed in range(4)]
    records += [cell("linear", seed, 3.0 - seed / 10) for seed in range(3)] + [lost]
    assert rows_of(asked("seeds: 4\n"), records)[1].differences[TEST].verdict == "worse"


def test_the_signs_are_counted_out_where_that_can_decide():
    assert sign_flips([1.0] * 5) is None, "2 of 32 choices are more than 0.05"
    assert sign_flips([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(2 / 64)
    # only the smallest can turn without the mean falling below 21 - 2: 2 of 2 + 2 choices
    assert sign_flips([-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(4 / 64)
    assert sign_flips([0.5, -0.5, 0.5, -0.5, 0.5, -0.5]) == pytest.approx(1.0)
    assert 0 < sign_flips([1.0] * 20) < 1e-4


def test_fisher_by_hand():
    assert fisher((3, 3), (0, 3)) == pytest.approx(2 / 20)
    assert fisher((2, 2), (2, 2)) == pytest.approx(1.0)


def arms(*told):
    return [Arm(name=name, levels=levels) for name, levels in told]


def test_the_baseline_is_the_first_arm_at_the_same_levels():
    low, high = {"task.pairs": 4}, {"task.pairs": 8}
    found = baselines_of(arms(("a", low), ("a", high), ("b", low), ("b", high)))
    assert found == {"b, pairs=4": "a, pairs=4", "b, pairs=8": "a, pairs=8"}


def test_without_other_arms_the_baseline_is_the_first_level():
    found = baselines_of(arms(("base", {"x": 1}), ("base", {"x": 2})))
    assert found == {"base, x=2": "base, x=1"}


def test_a_single_change_is_compared_with_no_change():
    found = baselines_of(arms(("a", {}), ("a", {"x": 1}), ("b", {}), ("b", {"x": 1})))
    assert found == {"a, x=1": "a", "b": "a", "b, x=1": "a, x=1"}


def test_answers_of_lm_eval_have_steps_too():
    """Two seeds that differ by one and the same document are no proof."""
    assert step_of("eval/piqa/acc", 0.4, [50.0, 52.0, 52.0, 54.0]) == 2.0
    assert step_of("test/accuracy", 0.4, [50.0, 52.0]) == 0.4
    assert step_of("eval/wikitext/word_perplexity", 0.4, [50.0, 52.0]) == 0.0
