"""Macro accuracy, as in MAD: the mean over classes of the share of correct labels of the class, in groups of rows.

    group    128 consecutive rows of a batch; the metric is the mean over groups
    class    a token that is a label or a prediction in the group; without a label its share is 0

So a wrong prediction of a token that is never a label lowers the score.  Groups have 128 rows only if `eval_batch_size`
is a multiple of 128.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

GROUP_ROWS = 128


def count_macro(predictions: "Tensor", labels: "Tensor") -> "dict[str, Tensor]":
    """Return counts per example [B] of which only those of the first row of each group are not 0."""
    import torch

    recall = torch.zeros(len(labels), dtype=torch.float64, device=labels.device)
    groups = torch.zeros_like(recall)
    for first in range(0, len(labels), GROUP_ROWS):
        rows = slice(first, first + GROUP_ROWS)
        recall[first], groups[first] = macro_recall(predictions[rows], labels[rows]), 1
    return {"macro_recall": recall, "macro_groups": groups}


def macro_recall(predictions: "Tensor", labels: "Tensor") -> float:
    """Return the mean share of correct labels over the classes of a group."""
    import torch

    targets = labels[labels >= 0]
    predicted = predictions[labels >= 0]
    size = int(torch.cat([targets, predicted]).max()) + 1
    counts, predicted_counts = targets.bincount(minlength=size), predicted.bincount(minlength=size)
    correct = targets[targets == predicted].bincount(minlength=size)
    is_class = counts + predicted_counts > 0
    return float((correct[is_class] / counts[is_class].clamp(min=1)).double().mean())
