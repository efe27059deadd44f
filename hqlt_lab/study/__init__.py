"""Many cells: Optuna holds every one of them, a coordinator hands them out, workers train.

run           what a study does, from the lock to the last cell
store         one folder per experiment: its cells, and where its attempts are written down
journal       that is a file, which one program at a time owns
database      or PostgreSQL, which several programs share
address       where that is
pulse         signs of life among them
others        what they do, seen from here
ledger        every attempt at every cell, and what came of it
agenda        which cells there are, in which order, and how each stands
record        a cell as it stands, for people and tables
sources       which code a cell was trained by
past          a study as its folder remembers it, without its file
choose        which tuned point an arm is judged by
search        what is searched, in Optuna's words
coordinator   hands out cells, listens, settles, stops
job           a cell under way
hands         those who train, as the coordinator sees them
crew          the workers of a machine
member        one of them
worker        the process that trains
warm          what it is forked from
machine       who gets which cores and GPUs
post          what coordinator and worker say to each other in a cell's folder
ray_crew      cells as tasks of a Ray cluster
ray_task      what such a task does
ray_cluster   how a cluster is found, and what it has room for
slurm         jobs of an array: written, submitted, followed
errand        what a program elsewhere must be told to join
launchers     a shelf: who trains the cells
pace          how long it will still take
view          someone who watches
"""
