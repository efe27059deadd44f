"""Accuracy by counting: right answers are summed over the fixed set, whoever computes which part of it."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.tasks._base import Batch, Split, Task
from hqlt_lab.train.ranks import rank, summed, world


@torch.no_grad()
def score(model: nn.Module, task: Task, split: Split, batch_size: int) -> dict[str, float]:
    """The task's metrics on a fixed set, and the loss; each process takes its part and all know the result."""
    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    totals: dict[str, Tensor] = {}
    for batch in batches(task, split, batch_size):
        moved = Batch(*(field.to(device) for field in batch))
        logits, _ = model(moved.tokens)
        found = task.score(logits, moved) | {"loss": total_loss(logits, moved.labels).double()}
        totals = {name: value + totals.get(name, 0) for name, value in found.items()}
    model.train(was_training)
    counted = dict(zip(totals, summed(torch.stack([value.double() for value in totals.values()])), strict=True))
    loss = float(counted.pop("loss") / counted["scored"])
    return task.metrics(counted) | {"loss": loss}


def batches(task: Task, split: Split, batch_size: int) -> Iterator[Batch]:
    """This process's part of a fixed set."""
    first, end = (task.eval_size * part // world() for part in (rank(), rank() + 1))
    for start in range(first, end, batch_size):
        yield task.examples(split, 0, start, min(batch_size, end - start))


def total_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum of the cross-entropies at labelled positions; logits [B, T, V], labels [B, T]."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1, reduction="sum")
