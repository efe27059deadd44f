"""Accuracy by counting: right answers are summed over the fixed set, whoever computes which part of it."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.model.layout import Layout
from hqlt_lab.tasks._base import Batch, Split, Task
from hqlt_lab.train.ranks import rank, world
from hqlt_lab.train.sums import Counts, Metrics, Sums, over_processes


class Score(NamedTuple):
    """What a model does on a fixed set."""

    task: Task
    sums: Sums

    @property
    def metrics(self) -> Metrics:
        """The task's own, and the loss."""
        return self.sums.metrics(self.told)

    @property
    def errors(self) -> Metrics:
        """The standard error of each over the examples of the set."""
        return self.sums.errors(self.told)

    def told(self, counts: Counts) -> Metrics:
        return self.task.metrics(counts) | {"loss": counts["loss"] / counts["scored"]}


@torch.no_grad()
def score(model: nn.Module, task: Task, split: Split, batch_size: int) -> Score:
    """How well a fixed set is done; each process takes its part and all know the result."""
    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    names: tuple[str, ...] = ()
    examples, totals, products = 0, torch.zeros(()), torch.zeros(())
    for batch in batches(task, split, batch_size):
        moved = Batch(*(field.to(device) for field in batch))
        found, each = answers(model, task, moved.tokens, moved.labels)
        counts = task.score(found, moved) | {"loss": each.double().sum(1)}
        names, rows = tuple(counts), torch.stack([count.double() for count in counts.values()], 1)  # [B, K]
        examples, totals, products = examples + len(rows), rows.sum(0) + totals, rows.mT @ rows + products
    model.train(was_training)
    return Score(task, over_processes(names, examples, totals, products))


def batches(task: Task, split: Split, batch_size: int) -> Iterator[Batch]:
    """This process's part of a fixed set."""
    first, end = (task.eval_size * part // world() for part in (rank(), rank() + 1))
    for start in range(first, end, batch_size):
        yield task.examples(split, 0, start, min(batch_size, end - start))


def total_loss(model: nn.Module, task: Task, tokens: Tensor, labels: Tensor) -> Tensor:
    """The sum of the cross-entropies at labelled positions."""
    if task.scored_by == "losses":
        return answers(model, task, tokens, labels)[1].sum()
    logits, _ = model(tokens, layout=layout_of(task, tokens))
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1, reduction="sum")


def answers(model: nn.Module, task: Task, tokens: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """What the task scores, and the cross-entropy at each token [B, T], 0 where nothing is due."""
    layout = layout_of(task, tokens)
    if task.scored_by == "losses":  # no logits are kept
        losses, _ = model(tokens, layout=layout, labels=labels)
        return losses, losses
    logits, _ = model(tokens, layout=layout)
    each = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1, reduction="none")
    return logits, each.unflatten(0, labels.shape)


def layout_of(task: Task, tokens: Tensor) -> Layout | None:
    """Where memories begin anew."""
    starts = task.starts(tokens)
    return None if starts is None else Layout(starts=starts)
