"""Statistics of a report, on its rows; the tests themselves are in `hqlt_lab.stats`.

summary             summary statistics over seeds
row_differences     the difference of each row from its baseline
factorial_effects   main effects and interactions of a grid
importance          fANOVA importance of hyperparameters
"""
