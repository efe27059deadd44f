"""From a YAML file to a plan: read strictly, complain about everything at once, list the cells to train.  No torch.

settings      what a run is told besides its task and model: train, trainer, measure
agent         the same for an agent in a world
source        the text of a file, looked at before anything is made of it
read          YAML, `extends` and `--set` to one mapping, references as they are written
yaml_mistakes what is wrong with a text that is no YAML
yaml_trouble  where its parser gave up
references    what they stand for
places        where in the files everything is written
extent        how large an experiment may be
change        named changes to it: arms, crossed axes, tuned values
tune          lists of values, and ranges that are searched
fill          every default written in, and the way back
cell          one thing to train, completely told
experiment    the validated whole
complaints    everything that is wrong with it, gathered
subject       what a complaint is about
metrics       what is measured, and whether the task has it
composition   what is wrong although each part is right: the one place that loads torch
gates         whether a rule from outside has any
compositions  all of them, one after the other
every_mistake all that is wrong where something is
match         arms of equal size: what the file may say of them
matched       which arm is matched to which, and how
solve         the setting that makes a model as large as another
plan          arms x tuning points x seeds: the cells, each with its key
json_schema   the same rules for editors
"""
