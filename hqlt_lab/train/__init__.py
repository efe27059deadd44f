"""Training one cell with Lightning.  No other package imports Lightning.

fit                   train and test one cell
lightning_module      the Lightning module: loss and optimizer step
divergence            gradient norm, clipping, and the end of a run that diverges
build_outcome         the weights that are tested, and the outcome of a run
training_callback     the Lightning callback: log, validate, probe, save, stop; model FLOPs utilization
trainer               the Lightning Trainer and its options
micro_batches         split the batch of a step over processes and micro-batches
optim                 AdamW, its parameter groups, and the learning rate schedule
per_memory_training   how the memories are trained: silent or frozen at first, slower, with windows that are drawn
scoring               metrics of a fixed split and their standard errors
determinism_check     whether the first step, computed twice, is bitwise equal
trainer_state         metrics, times and messages of a run, stored in its checkpoints
interrupt             stop on a signal
describe_failure      why a run failed, and whether a retry would fail too
load_trained_model    load a trained model
cell_evaluator        evaluate a trained cell
checkpoints/          write and read checkpoints, find the one to resume from
distributed/          several devices: python -m hqlt_lab.train.distributed.rank_main FOLDER/cell.json
rl/                   reinforcement learning, for tasks that are environments
cost/                 estimated or measured cost of a cell
"""
