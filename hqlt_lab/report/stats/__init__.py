"""Statistics of a report, on its rows; the tests themselves are in `hqlt_lab.stats`.

summary             summary statistics over seeds
row_differences     the difference of each row from its baseline
tuning_windows      scores of tuned values, and the window of values with which an arm works
solve_times         steps to solve of each seed, and their survival curve
factorial_effects   main effects and interactions of a grid
importance          fANOVA importance of hyperparameters
"""
