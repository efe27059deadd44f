"""Statistical tests and verdicts, on plain values by seed: no records, no files, no torch.

intervals              confidence intervals of a mean, power, and Holm's correction
metric_scale           which metrics are in percent, and the step by which a metric can change
proportion_intervals   intervals of percentages over test examples, exact or clipped to possible values
exact_tests            permutation tests of pairs and of two samples, Fisher's exact test, bound on solved fractions
survival_curve         Kaplan-Meier curve of the time to a goal, and its median with an exact interval
bimodal_outcomes       outcomes that are either solved or not: detection and exact test
baseline_differences   each arm minus its baseline, paired by seed, with a verdict
sequential_testing     verdicts at several looks, at which seeds are added until a comparison is decided
"""
