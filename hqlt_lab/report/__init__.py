"""Turn the records of a study into a report: statistics, tables, figures and an answer.

Reads only cell records and the files in cells' folders: no torch, no store.

study_report              the report: rows, warnings and answer; renders and saves every file format
arm_rows                  one row per arm, at its selected hyperparameters
build_tables              tables of results, effects and importance as text cells
tuning_tables             tables of tuning windows and of the scores of tuned values
solve_table               table of steps to solve
read_curves               logged metrics of a cell, from metrics.jsonl
value_formatting          numbers, names and counts as text
lm_eval_protocol_filter   keeps only lm-eval results that were measured with the same protocol
stats/                    summaries over seeds, intervals, tests, effects of a grid, hyperparameter importance
wording/                  the answer, warnings and table notes
render/                   the report as Markdown, CSV, LaTeX, JSON, HTML and a pandas DataFrame
figures/                  matplotlib figures
compare/                  cells, studies and published values side by side
"""
