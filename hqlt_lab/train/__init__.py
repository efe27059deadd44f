"""Training one cell with Lightning: the only room that knows it.

fit           the plan of a run
apart         the same in a process of its own, which several devices need
cell          that process: python -m hqlt_lab.train.cell FOLDER/cell.json
batches       which rows of a step are whose
learner       loss, gradient norm, clipping
optimiser     AdamW and its groups
schedule      the learning rate
canary        whether the first step, computed twice, is the same
canary_file   what it found, in the folder
watch         what happens after a step: log, validate, probe, save, stop
score         accuracy by counting
in_a_world    the plan of a run where the task is a world
life          an agent that acts and learns in turns
world_begin   what is looked at before it learns
world_end     tested and filmed, or diverged
world_score   how well it does in the fixed episodes
failure       why a run failed, and whether it would again
guard         loss or gradient are no longer numbers
heap          freed memory stays for the next step
interrupt     the run is asked to stop
progress      how far a run has come
checkpoints   saved whole or not at all
claim         a folder belongs to one cell
outcome       what came of it
tidy          what stays of a run that has ended
files         writing that a crash cannot tear
lines         lines of JSON, appended as things happen
probing       looks into the memories
probe_file    what the probes saw, in the folder
evaluate      a trained cell, asked again
evaluations   what a trained cell scored when asked again
ranks         what several processes know together
sharding      fsdp2: each process has its share of the model
utilisation   how much of a GPU's peak the model's products are
trainer       Lightning's Trainer, lean and quiet
cost          what a cell will cost, estimated or measured
measured      steps of a cell, timed in a process of their own
"""
