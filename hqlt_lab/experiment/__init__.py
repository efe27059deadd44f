"""From a YAML file to a plan: read strictly, complain about everything at once, list the cells to train.  No torch.

settings      what a run is told besides its task and model: train, trainer, measure
read          YAML, `extends` and `--set` to one mapping, interpolation unresolved
change        named changes to it: arms, crossed axes, tuned values
experiment    the validated whole
complaints    everything that is wrong with one composition
plan          arms x tuning points x seeds: the cells, each with its key
json_schema   the same rules for editors
"""
