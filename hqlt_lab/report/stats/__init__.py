"""Statistics of a report.

summary                summary statistics over seeds
intervals              confidence intervals of a mean, and Holm's correction
percentage_intervals   intervals of percentages over test examples, exact or clipped to possible values
exact_tests            permutation tests of pairs and of two samples, and Fisher's exact test
two_group_outcomes     outcomes that are either solved or not: detection and exact test
baseline_differences   each arm minus its baseline, paired by seed, with a verdict
factorial_effects      main effects and interactions of a grid
importance             fANOVA importance of hyper-parameters
"""
