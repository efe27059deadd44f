"""The learning rate: up in a straight line, then down along a cosine.

    step s < warmup       peak (s + 1) / (warmup + 1)                             never 0, so that no step is lost
    s = warmup            peak
    cosine, s < horizon   peak (floor + (1 - floor) (1 + cos(pi done)) / 2),    done = (s - warmup) / (horizon - warmup)
    s >= horizon          peak floor
    constant              peak

The first step is number 0.  The horizon is the number of steps unless it is set, so that the last step lies just above
the floor.
"""

import math

from hqlt_lab.experiment.settings import TrainConfig


def factor(train: TrainConfig, step: int) -> float:
    """What the peak is multiplied by in this step."""
    if step < train.warmup:
        return (step + 1) / (train.warmup + 1)
    if train.schedule == "constant":
        return 1.0
    falling = max(1, (train.lr_horizon or train.steps) - train.warmup)
    done = min(1.0, (step - train.warmup) / falling)
    return train.lr_floor + (1 - train.lr_floor) * (1 + math.cos(math.pi * done)) / 2
