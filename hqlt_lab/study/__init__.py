"""Many cells: Optuna holds every one of them, one coordinator owns it, workers train.

run           what a study does, from the lock to the last cell
store         one folder per experiment: its lock, its journal, its cells
ledger        every attempt at every cell, and what came of it
agenda        which cells there are, in which order, and how each stands
record        a cell as it stands, for people and tables
past          a study as its folder remembers it, without its file
choose        which tuned point an arm is judged by
search        what is searched, in Optuna's words
coordinator   hands out cells, listens, settles, stops
crew          the workers of a machine
member        one of them
worker        the process that trains
warm          what it is forked from
machine       who gets which cores and GPUs
launchers     a shelf: who trains the cells
pace          how long it will still take
view          someone who watches
"""
