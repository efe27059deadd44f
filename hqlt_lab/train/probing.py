"""Looks into the memories while a run trains: a few validation examples, the same ones every time.

A layer's mean over its heads goes into the curves (`probe/layer_0/share`), the table of layers and heads into the
folder (`probe_file`).  A look changes nothing: training is the same, bit by bit, with it and without.
"""

import math
from statistics import fmean

import torch
from lightning.pytorch import Trainer

from hqlt_lab.experiment.settings import TrainConfig
from hqlt_lab.model.layout import Layout
from hqlt_lab.model.probes import Probes, probe
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.tasks._base import Split, Task
from hqlt_lab.train.learner import Learner
from hqlt_lab.train.progress import Metrics

ROWS = 8
CURVES = (
    "share", "gate_fw", "gate_kv", "norm_fw", "norm_kv", "state_norm", "state_rank", "erase", "keep", "entropy",
)  # fmt: skip


def due(train: TrainConfig, step: int, validated: bool, finished: bool) -> bool:
    """Whether it is time for a look."""
    if train.probe_every is None:
        return validated
    return train.probe_every > 0 and (step % train.probe_every == 0 or finished)


def look(trainer: Trainer, learner: Learner) -> Probes:
    """The memories of the learner's model, in the precision of training."""
    assert isinstance(learner.model, SequenceModel)
    with trainer.precision_plugin.val_step_context():
        return look_at(learner.model, learner.task, "valid")


def look_at(model: SequenceModel, task: Task, split: Split) -> Probes:
    """On the first rows of a split."""
    batch = task.examples(split, 0, 0, min(ROWS, task.eval_size))
    real = torch.arange(batch.tokens.shape[1]) < (batch.lengths - task.unread)[:, None]
    device = next(model.parameters()).device
    starts = task.starts(batch.tokens)
    return probe(model, batch.tokens.to(device), Layout(real.to(device), None if starts is None else starts.to(device)))


def curves(seen: Probes) -> Metrics:
    """Each layer's means over its heads, where they are numbers."""
    return {
        f"probe/layer_{number}/{name}": value
        for number, layer in enumerate(seen.layers)
        for name in CURVES
        if name in layer and math.isfinite(value := fmean(layer[name]))
    }
