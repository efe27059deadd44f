"""Many cells: Optuna holds every one of them, one coordinator owns it, workers train.

store         one folder per experiment: its lock, its journal, its cells
ledger        every attempt at every cell, and what came of it
record        a cell as it stands, for people and tables
choose        which tuned point an arm is judged by
"""
