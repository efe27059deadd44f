"""Differences from the baseline against values computed by hand, and the conditions of a verdict."""

import numpy as np
import pytest
from scipy import stats

from hqlt_lab.experiment.load_experiment import Arm
from hqlt_lab.report.arm_rows import build_rows
from hqlt_lab.stats.baseline_differences import find_baselines, paired_differences
from hqlt_lab.stats.exact_tests import fisher_p_value, sign_flip_p_value
from hqlt_lab.stats.metric_scale import metric_resolution

METRIC = "test/normalized_accuracy"


@pytest.fixture
def differences_of(make_experiment, make_record):
    """Return a function that computes the differences of the other arms from the first, given values by seed."""

    def compare(*values_by_arm, extra="", metric=METRIC):
        names = ["delta", "linear", "retention"][: len(values_by_arm)]
        seeds = max(len(values) for values in values_by_arm)
        records = [
            make_record(name, seed, value)
            for name, values in zip(names, values_by_arm, strict=True)
            for seed, value in enumerate(values)
        ]
        rows = build_rows(make_experiment(f"seeds: {seeds}\n{extra}"), records)
        return [row.differences.get(metric) for row in rows[1 : len(values_by_arm)]]

    return compare


def test_the_difference_of_three_seeds_equals_the_values_computed_by_hand(differences_of):
    # d = 2, 3, 4: mean 3, s = 1, 3 -+ 4.302653 / sqrt(3)
    (difference,) = differences_of([10.0, 20.0, 30.0], [12.0, 23.0, 34.0])
    assert (difference.baseline, difference.n, difference.mean) == ("delta", 3, pytest.approx(3.0))
    assert (difference.low, difference.high) == pytest.approx((0.515862, 5.484138), abs=1e-5)
    assert difference.p == pytest.approx(stats.ttest_rel([12, 23, 34], [10, 20, 30]).pvalue)
    assert (difference.verdict, difference.seeds_needed, difference.permutation, difference.fisher) == (
        "better",
        None,
        None,
        None,
    )
    assert difference.confidence == pytest.approx(0.95)


def test_pairing_detects_differences_smaller_than_the_spread_of_seeds(differences_of):
    # the seeds differ by 10, the arms by 2: an unpaired test detects nothing
    (difference,) = differences_of([10.0, 20.0, 30.0], [12.0, 22.1, 31.9])
    assert difference.verdict == "better"
    assert stats.ttest_ind([12.0, 22.1, 31.9], [10.0, 20.0, 30.0]).pvalue > 0.8


def test_98_against_3_has_a_verdict_with_three_seeds(differences_of):
    (difference,) = differences_of([3.0, 4.1, 2.2], [98.0, 97.1, 99.2], extra="measure: {solved: 90}\n")
    assert difference.verdict == "better"
    (difference,) = differences_of([98.0, 97.1, 99.2], [3.0, 4.1, 2.2])
    assert difference.verdict == "worse"


def test_values_are_paired_by_seed_and_not_by_order(make_experiment, make_record):
    baseline = [make_record("delta", seed, value) for seed, value in enumerate([10.0, 50.0, 90.0])]
    arm = [make_record("linear", seed, value) for seed, value in reversed([*enumerate([12.0, 53.0, 94.0])])]
    rows = build_rows(make_experiment("seeds: 3\n"), [*baseline, *arm])
    assert rows[1].differences[METRIC].p == pytest.approx(stats.ttest_rel([12, 53, 94], [10, 50, 90]).pvalue)
    # build_rows may sort its records, so the pairing itself is tested too
    assert sorted(paired_differences({2: 94.0, 0: 12.0, 1: 53.0}, {0: 10.0, 1: 50.0, 2: 90.0})) == [2.0, 3.0, 4.0]


def test_only_seeds_that_both_have_are_paired(differences_of):
    (difference,) = differences_of([10.0, 20.0], [12.0, 23.0, 900.0])
    assert (difference.n, difference.mean) == (2, pytest.approx(2.5))


def test_several_arms_are_corrected_together(differences_of):
    first, second = differences_of([10.0, 20.0, 30.0], [12.0, 23.0, 34.0], [10.1, 19.9, 30.3])
    assert first.p < 0.05 and first.p > 0.025, "a single comparison would have a verdict"
    assert first.confidence == pytest.approx(0.975) and first.low < 0
    assert first.verdict == second.verdict == "not_significant"
    assert second.confidence == pytest.approx(0.975), "the level of the first that fails"


def test_an_interval_within_the_margin_is_equivalent_even_if_it_excludes_0(differences_of):
    (difference,) = differences_of([10.0, 20.0, 30.0], [12.0, 22.1, 31.9], extra="measure: {margin: 5}\n")
    assert 0 < difference.low < difference.high < 5
    assert (difference.verdict, difference.seeds_needed, difference.reason) == ("equivalent", None, "")
    one_sided = stats.ttest_1samp([2.0, 2.1, 1.9], 5.0, alternative="less").pvalue
    assert difference.equivalence == pytest.approx(2 * one_sided)


def test_without_a_margin_no_arms_are_equivalent(differences_of):
    (difference,) = differences_of([10.0, 20.0, 30.0], [10.1, 19.9, 30.05])
    assert (difference.verdict, difference.equivalence) == ("not_significant", None)


def test_equivalence_is_decided_by_the_corrected_interval(differences_of):
    # half the width of the interval is 1.94 at 5 % and 2.81 at 2.5 %, its Holm level with two comparisons
    close, far = [10.3, 18.9, 30.6], [0.0, 9.0, 33.0]
    for values, verdict in (([close], "equivalent"), ([close, far], "not_significant")):
        differences = differences_of([10.0, 20.0, 30.0], *values, extra="measure: {margin: 2.5}\n")
        assert differences[0].verdict == verdict
        assert (max(-differences[0].low, differences[0].high) < 2.5) == (verdict == "equivalent")


def test_a_comparison_that_is_equivalent_leaves_its_level_to_the_others(differences_of):
    same, better = [10.1, 19.9, 30.05], [12.0, 23.0, 34.0]  # the second one has p 0.035
    first, second = differences_of([10.0, 20.0, 30.0], same, better, extra="measure: {margin: 2.5}\n")
    assert (first.verdict, second.verdict) == ("equivalent", "better")
    assert (first.confidence, second.confidence) == (0.975, 0.95)


def test_arms_that_may_fail_with_some_seeds_are_equivalent_only_after_enough_seeds(differences_of):
    """17 seeds without a discordant one show that at most 20 % are discordant, at 2.5 % for each direction."""
    for solved, n, verdict in (
        ("", 16, "equivalent"),
        ("solved: 90, ", 16, "not_significant"),
        ("solved: 90, ", 17, "equivalent"),
    ):
        values = [99.0 + seed % 5 / 10 for seed in range(n)]
        (difference,) = differences_of(values, values[::-1], extra=f"measure: {{{solved}margin: 20}}\n")
        assert difference.verdict == verdict, (solved, n)
    (difference,) = differences_of([99.0] * 5, [99.0] * 5, extra="measure: {solved: 90, margin: 20}\n")
    assert (difference.verdict, difference.seeds_needed) == ("not_significant", 17)


def test_one_discordant_seed_of_twenty_is_too_many_for_a_margin_of_20(differences_of):
    baseline, arm = [99.0] * 19 + [3.0], [99.0] * 20
    (difference,) = differences_of(baseline, arm, extra="measure: {solved: 90, margin: 20}\n")
    assert difference.high < 20 and difference.equivalence == pytest.approx(2 * stats.binom.cdf(1, 20, 0.2))
    assert difference.verdict == "not_significant"


def test_arms_of_which_one_lost_a_seed_are_not_equivalent(make_experiment, make_record):
    records = [make_record("delta", seed, 50.0 + seed) for seed in range(4)]
    records += [make_record("linear", seed, 50.1 + seed) for seed in range(3)]
    experiment = make_experiment("seeds: 4\nmeasure: {margin: 5}\n")
    assert build_rows(experiment, records[:3] + records[4:])[1].differences[METRIC].verdict == "equivalent"
    lost = make_record("linear", 3, state="diverged")
    difference = build_rows(experiment, [*records, lost])[1].differences[METRIC]
    assert (difference.verdict, difference.reason) == ("not_significant", "linear lost seeds")


def test_the_detectable_difference_has_a_power_of_80_percent(differences_of):
    arm, baseline = [12.0, 18.0, 33.0, 38.0, 55.0], [10.0, 20.0, 30.0, 40.0, 50.0]  # d = 2, -2, 3, -2, 5
    (difference,) = differences_of(baseline, arm)
    noncentrality = difference.detectable / stats.tstd([2, -2, 3, -2, 5]) * 5**0.5
    assert stats.nct.sf(stats.t.ppf(0.975, 4), 4, noncentrality) == pytest.approx(0.8, abs=1e-3)


def test_seeds_needed_for_equivalence_have_a_power_of_80_percent(differences_of):
    arm, baseline = [12.0, 18.0, 33.0, 38.0, 50.0], [10.0, 20.0, 30.0, 40.0, 50.0]  # mean 0.2, s 2.28
    (difference,) = differences_of(baseline, arm, extra="measure: {margin: 2}\n")
    n, generator = difference.seeds_needed, np.random.default_rng(0)
    draws = generator.normal(0.2, stats.tstd([2, -2, 3, -2, 0]), (4000, n))
    half_widths = stats.t.ppf(0.975, n - 1) * draws.std(1, ddof=1) / n**0.5
    assert np.mean(abs(draws.mean(1)) + half_widths < 2) == pytest.approx(0.8, abs=0.03)


def test_a_perfect_separation_has_a_verdict_also_among_other_arms(differences_of):
    for values_by_arm in ([[0.0] * 3, [100.0] * 3], [[0.0] * 3, [100.0] * 3, [3.1, 3.5, 2.7]]):
        assert differences_of(*values_by_arm)[0].verdict == "better"


def test_a_verdict_that_is_not_significant_has_a_reason(differences_of):
    (difference,) = differences_of([10.0, 20.0, 30.0], [14.0, 25.0, 36.0], extra="measure: {margin: 6}\n")
    assert difference.low > 0 and difference.reason == "below the margin"


def test_with_a_loss_smaller_is_better(make_experiment, make_record):
    losses = {"delta": [0.5, 0.6, 0.7], "linear": [0.4, 0.5, 0.61], "retention": [0.5, 0.61, 0.69]}
    records = [
        make_record(arm, seed, 0.0, metrics={"test/loss": loss})
        for arm, values in losses.items()
        for seed, loss in enumerate(values)
    ]
    rows = build_rows(make_experiment("seeds: 3\nmeasure: {report: [test/loss]}\n"), records)
    difference = rows[1].differences["test/loss"]
    assert difference.mean < 0 and difference.verdict == "better"


def test_one_seed_gives_no_verdict(differences_of):
    (difference,) = differences_of([10.0], [90.0])
    assert (difference.n, difference.mean, difference.low, difference.verdict, difference.seeds_needed) == (
        1,
        80.0,
        None,
        None,
        None,
    )


def test_two_seeds_give_no_verdict(differences_of):
    for extra in ("", "measure: {solved: 90}\n"):
        (difference,) = differences_of([3.0, 3.1], [98.0, 98.2], extra=extra)
        assert (difference.verdict, difference.seeds_needed) == ("not_significant", None)
        assert difference.low > 0 and difference.reason == "fewer than 3 seeds"


def test_the_number_of_seeds_needed_is_extrapolated_from_five_seeds_on(differences_of):
    arm, baseline = [12.0, 18.0, 33.0, 38.0, 55.0], [10.0, 20.0, 30.0, 40.0, 50.0]  # d = 2, -2, 3, -2, 5
    for n in (2, 3, 4, 5):
        (difference,) = differences_of(baseline[:n], arm[:n])
        assert difference.verdict == "not_significant" and (difference.seeds_needed is None) == (n < 5)
    power = stats.nct.sf(
        stats.t.ppf(0.975, difference.seeds_needed - 1),
        difference.seeds_needed - 1,
        1.2 / 3.1145 * difference.seeds_needed**0.5,
    )
    assert power == pytest.approx(0.8, abs=0.01), "of the observed difference"


def test_values_in_two_groups_are_compared_by_an_exact_test(differences_of):
    # 3 of 3 against 0 of 3 by t is better; but one arm solves the task with some seeds, so that others may do so too
    better, mixed = differences_of([1.0, 2.0, 1.5], [98.0, 99.0, 98.4], [1.2, 99.0, 2.2])
    assert better.p < 1e-3 and better.low > 0
    assert better.two_groups == pytest.approx(stats.fisher_exact([[3, 0], [0, 3]]).pvalue)
    assert (better.verdict, better.reason) == ("not_significant", "values form two groups")
    assert mixed.verdict == "not_significant" and mixed.two_groups == pytest.approx(1.0)
    # five seeds are enough: p 0.008
    better, mixed = differences_of([1.0, 2.0, 1.5, 1.1, 1.3], [98.0, 99.0, 98.4, 98.8, 99.1], [1.2, 99.0, 2.2, 1.7, 98])
    assert (better.verdict, mixed.verdict) == ("better", "not_significant")


def test_the_test_of_the_groups_counts_in_the_correction_for_several_comparisons(differences_of):
    # by t alone the first comparison would be rejected, so that the second one had the level 0.05 instead of 0.025
    differences = differences_of([1.0, 2.0, 1.5], [98.0, 99.0, 98.4], [1.2, 99.0, 2.2])
    assert differences[0].p < 0.001 < 0.05 < differences[0].two_groups
    assert [difference.confidence for difference in differences] == [0.975, 0.975]


def test_no_number_of_seeds_is_extrapolated_from_values_in_two_groups(differences_of):
    (difference,) = differences_of([1.0, 98.0, 2.0, 1.5, 3.0], [98.0, 1.0, 99.0, 97.0, 2.0])
    assert difference.two_groups is not None and difference.low < 0 < difference.high
    assert difference.seeds_needed is None


def test_values_that_differ_by_arm_or_by_seed_alone_form_no_two_groups(differences_of):
    by_arm = differences_of([1.0, 2.0, 1.5], [98.0, 99.0, 98.4])
    by_seed = differences_of([1.0, 2.0, 90.0], [3.0, 4.1, 92.0])
    assert [each.two_groups for each in by_arm + by_seed] == [None, None]
    assert [each.verdict for each in by_arm + by_seed] == ["better", "better"]


def test_the_minimum_of_seeds_applies_to_every_metric_and_the_margin_does_not(make_experiment, make_record):
    values_by_arm = {"delta": (3.0, 0.7), "linear": (99.0, 0.3)}
    records = [
        make_record(arm, seed, 0.0, metrics={METRIC: value + seed, "test/loss": loss + seed / 1000})
        for arm, (value, loss) in values_by_arm.items()
        for seed in range(3)
    ]
    rows = build_rows(
        make_experiment(f"seeds: 3\nmeasure: {{report: [{METRIC}, test/loss], margin: 5, solved: 90}}\n"), records
    )
    assert rows[1].differences["test/loss"].verdict == "better", "the margin is in points of accuracy"
    records_of_two_seeds = [record for record in records if record.seed < 2]
    rows = build_rows(
        make_experiment(f"seeds: 2\nmeasure: {{report: [{METRIC}, test/loss], solved: 90}}\n"), records_of_two_seeds
    )
    assert {rows[1].differences[metric].verdict for metric in (METRIC, "test/loss")} == {"not_significant"}


def test_a_seed_with_a_nan_value_counts_as_lost(make_experiment, make_record):
    records = [make_record("delta", seed, 50.0 + seed) for seed in range(4)]
    records += [make_record("linear", seed, value) for seed, value in enumerate([float("nan"), 80.0, 81.1, 82.0])]
    difference = build_rows(make_experiment("seeds: 4\n"), records)[1].differences[METRIC]
    assert (difference.n, difference.verdict, difference.reason) == (3, "not_significant", "linear lost seeds")


def test_solved_fractions_have_an_exact_test(differences_of):
    (difference,) = differences_of(
        [1.0, 2.0, 3.0, 99.0, 2.5], [99.0, 98.0, 97.0, 99.5, 98.5], extra="measure: {solved: 90}\n"
    )
    # 5 of 5 against 1 of 5: 6 of 10 solved fall 5 to 1 or 1 to 5 in 2 * 5 of C(10, 6) = 210 ways
    assert difference.fisher == pytest.approx(10 / 210)


def test_an_arm_that_lost_seeds_is_not_called_better(make_experiment, make_record):
    good = [make_record("linear", seed, 98.0 + seed / 10) for seed in range(3)]
    bad = [make_record("delta", seed, 3.0 - seed / 10) for seed in range(4)]
    lost = make_record("linear", 3, state="diverged")
    for records, verdict in (([*good, *bad], "better"), ([*good, lost, *bad], "not_significant")):
        assert build_rows(make_experiment("seeds: 4\n"), records)[1].differences[METRIC].verdict == verdict
    # the baseline has lost another seed, which changes nothing
    others = [make_record("linear", seed, 98.0 + seed / 10) for seed in range(1, 4)] + [
        make_record("linear", 0, state="diverged")
    ]
    records = [*others, *bad[:3], make_record("delta", 3, state="failed")]
    assert build_rows(make_experiment("seeds: 4\n"), records)[1].differences[METRIC].verdict == "not_significant"
    # an arm that lost seeds can still be worse
    records = [make_record("delta", seed, 98.0 + seed / 10) for seed in range(4)]
    records += [make_record("linear", seed, 3.0 - seed / 10) for seed in range(3)] + [lost]
    assert build_rows(make_experiment("seeds: 4\n"), records)[1].differences[METRIC].verdict == "worse"


def test_sign_flips_are_enumerated_from_six_seeds_on():
    assert sign_flip_p_value([1.0] * 5) is None, "2 of 32 choices are more than 0.05"
    assert sign_flip_p_value([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(2 / 64)
    # only the smallest can flip its sign without the sum falling below 21 - 2: 4 choices
    assert sign_flip_p_value([-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(4 / 64)
    assert sign_flip_p_value([0.5, -0.5, 0.5, -0.5, 0.5, -0.5]) == pytest.approx(1.0)
    assert 0 < sign_flip_p_value([1.0] * 20) < 1e-4


def test_fisher_p_values_equal_those_computed_by_hand():
    assert fisher_p_value((3, 3), (0, 3)) == pytest.approx(2 / 20)
    assert fisher_p_value((2, 2), (2, 2)) == pytest.approx(1.0)


def make_arms(*name_levels):
    return [Arm(name=name, levels=levels) for name, levels in name_levels]


def test_the_baseline_is_the_first_arm_at_the_same_levels():
    low, high = {"task.pairs": 4}, {"task.pairs": 8}
    baselines = find_baselines(make_arms(("a", low), ("a", high), ("b", low), ("b", high)))
    assert baselines == {"b, pairs=4": "a, pairs=4", "b, pairs=8": "a, pairs=8"}


def test_without_other_arms_the_baseline_is_the_first_level():
    baselines = find_baselines(make_arms(("base", {"x": 1}), ("base", {"x": 2})))
    assert baselines == {"base, x=2": "base, x=1"}


def test_a_single_change_is_compared_with_the_unchanged_arm():
    baselines = find_baselines(make_arms(("a", {}), ("a", {"x": 1}), ("b", {}), ("b", {"x": 1})))
    assert baselines == {"a, x=1": "a", "b": "a", "b, x=1": "a, x=1"}


def test_lm_eval_metrics_have_the_resolution_of_the_observed_values():
    """Two seeds that both differ from the baseline by a single document are not significant."""
    assert metric_resolution("eval/piqa/acc", 0.4, [50.0, 52.0, 52.0, 54.0]) == 2.0
    assert metric_resolution("test/accuracy", 0.4, [50.0, 52.0]) == 0.4
    assert metric_resolution("eval/wikitext/word_perplexity", 0.4, [50.0, 52.0]) == 0.0
