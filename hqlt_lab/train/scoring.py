"""Score a model on a fixed split: metrics from summed counts, and their standard errors over examples.

Each example i is a row x_i of counts: correct answers, scored tokens, loss.  A metric is a function f of their sum T.
One example changes it by about g . x_i, where g is the gradient of f at T.  By the delta method, with examples as
clusters, its standard error is

    error^2 = N / (N - 1) * sum_i (g . x_i - g . T / N)^2 = N / (N - 1) * (g P g - (g . T)^2 / N),   P = sum_i x_i x_i^T

which for a ratio R = right / scored is N / (N - 1) * sum_i (right_i - R scored_i)^2 / scored^2.  T and P are sums
over examples, so each process computes a part of them and they are added up.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.experiment.run_settings import HeadTokens
from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.tasks._base import Batch, EvalSlice, Split, Task
from hqlt_lab.train.distributed.process_group import all_reduce_sum, get_rank, get_world_size
from hqlt_lab.train.trainer_state import Metrics

DIFFERENCE_STEP = 1e-4  # relative to the norm of a count; gives at least eight correct digits
Counts = Mapping[str, float]


@dataclass(frozen=True)
class MetricSums:
    """Sums of the counts, and of their products, over the examples of a split."""

    names: tuple[str, ...]  # of the counts
    examples: int  # N
    totals: Tensor  # T [K], float64
    products: Tensor  # P [K, K]

    def compute_metrics(self, finalize: Callable[[Counts], Metrics]) -> Metrics:
        """Return the metrics; `finalize` computes them from the summed counts."""
        return finalize(dict(zip(self.names, self.totals.tolist(), strict=True)))

    def standard_errors(self, finalize: Callable[[Counts], Metrics]) -> Metrics:
        """Return the standard error of each metric; empty with fewer than two examples."""
        if self.examples < 2:
            return {}
        return {name: self.standard_error(gradient) for name, gradient in self.metric_gradients(finalize).items()}

    def standard_error(self, gradient: Tensor) -> float:
        """Return the standard error of a metric with this gradient with respect to the totals."""
        squares = gradient @ self.products @ gradient - (gradient @ self.totals) ** 2 / self.examples
        return math.sqrt(max(0.0, float(squares)) * self.examples / (self.examples - 1))

    def metric_gradients(self, finalize: Callable[[Counts], Metrics]) -> dict[str, Tensor]:
        """Return the gradient [K] of each metric, by central differences, so that `finalize` may be any function."""
        metrics = self.compute_metrics(finalize)
        gradients = {name: torch.zeros_like(self.totals) for name in metrics}
        for index, size in enumerate(self.products.diagonal().sqrt().tolist()):
            if size == 0:  # the count is 0 in every example, so it contributes no error
                continue
            up, down = (finalize(self.shift_total(index, sign * DIFFERENCE_STEP * size)) for sign in (1, -1))
            for name in metrics:
                gradients[name][index] = (up[name] - down[name]) / (2 * DIFFERENCE_STEP * size)
        return gradients

    def shift_total(self, index: int, delta: float) -> Counts:
        """Return the totals by name, with `delta` added to one of them."""
        counts = self.totals.clone()
        counts[index] += delta
        return dict(zip(self.names, counts.tolist(), strict=True))


def reduce_metric_sums(names: tuple[str, ...], examples: int, totals: Tensor, products: Tensor) -> MetricSums:
    """Return the sums over all processes.  Collective: every process must call it."""
    local_count = totals.new_tensor([float(examples)])
    local_sums = torch.cat([local_count, totals, products.flatten()])
    count, totals, products = all_reduce_sum(local_sums).cpu().split((1, len(names), len(names) ** 2))
    return MetricSums(names, round(float(count)), totals, products.unflatten(0, (len(names), len(names))))


class Score(NamedTuple):
    """Metrics of a model on a fixed split."""

    task: Task
    sums: MetricSums

    @property
    def metrics(self) -> Metrics:
        """The metrics of the task, and the loss."""
        return self.sums.compute_metrics(self.finalize_metrics)

    @property
    def errors(self) -> Metrics:
        """The standard error of each metric over the examples of the split."""
        return self.sums.standard_errors(self.finalize_metrics)

    def finalize_metrics(self, counts: Counts) -> Metrics:
        return self.task.compute_metrics(counts) | {"loss": counts["loss"] / counts["scored"]}


@torch.no_grad()
def score_model(model: nn.Module, task: Task, split: Split, batch_size: int, head: HeadTokens = "all") -> Score:
    """Score a model on a fixed split.  Each process takes a part of it, and all return the result."""
    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    names: tuple[str, ...] = ()
    examples, totals, products = 0, torch.zeros(()), torch.zeros(())
    for batch, eval_slice in eval_batches(task, split, batch_size):
        moved = Batch(*(field.to(device) for field in batch))
        if head == "labeled":
            outputs, losses = predictions_and_losses(model, task, moved.tokens, moved.labels)
            counts = task.score_predictions(outputs, moved)
        else:
            outputs, losses = outputs_and_losses(model, task, moved.tokens, moved.labels)
            counts = task.score_examples(outputs, moved)
        counts = count_by_slice(counts, task.slices(split), eval_slice) | {"loss": losses.double().sum(1)}
        names, rows = tuple(counts), torch.stack([count.double() for count in counts.values()], 1)  # [B, K]
        examples, totals, products = examples + len(rows), rows.sum(0) + totals, rows.mT @ rows + products
    model.train(was_training)
    return Score(task, reduce_metric_sums(names, examples, totals, products))


def eval_batches(task: Task, split: Split, batch_size: int) -> Iterator[tuple[Batch, EvalSlice | None]]:
    """Yield the batches of this process's part of a fixed split, each with its slice if the split has slices.

    With slices, or if the task has rare sizes, a batch is as wide as its longest row.  It has rows of one slice.
    """
    first, end = (task.eval_size * rank // get_world_size() for rank in (get_rank(), get_rank() + 1))
    for eval_slice in task.slices(split) or (None,):
        low, high = first, end
        if eval_slice is not None:
            low, high = max(first, eval_slice.first), min(end, eval_slice.first + eval_slice.rows)
        for start in range(low, high, batch_size):
            batch = task.get_examples(split, 0, start, min(batch_size, high - start))
            is_trimmed = eval_slice is not None or task.has_rare_sizes
            yield batch.trim_padding(task.unread_tokens) if is_trimmed else batch, eval_slice


def count_by_slice(
    counts: dict[str, Tensor], slices: Sequence[EvalSlice], current: EvalSlice | None
) -> dict[str, Tensor]:
    """Return counts of examples of the current slice, and for each slice the same counts, 0 in all others."""
    totals = {name: count for name, count in counts.items() if "/" not in name}
    return counts | {
        f"{name}/{eval_slice.name}": count * (eval_slice == current)
        for eval_slice in slices
        for name, count in totals.items()
    }


def total_loss(model: nn.Module, task: Task, tokens: Tensor, labels: Tensor, head: HeadTokens = "all") -> Tensor:
    """Return the sum of the cross-entropies at labeled positions."""
    if head == "labeled":
        labeled = labels >= 0
        logits, _ = model(tokens, layout=task_layout(task, tokens), head_mask=labeled)
        return F.cross_entropy(logits, labels[labeled], reduction="sum")
    if task.score_input == "losses":
        return outputs_and_losses(model, task, tokens, labels)[1].sum()
    logits, _ = model(tokens, layout=task_layout(task, tokens))
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1, reduction="sum")


def outputs_and_losses(model: nn.Module, task: Task, tokens: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs that the task scores, and the cross-entropy at each token [B, T], 0 without a label."""
    layout = task_layout(task, tokens)
    if task.score_input == "losses":  # the model computes losses without materializing all logits
        losses, _ = model(tokens, layout=layout, labels=labels)
        return losses, losses
    logits, _ = model(tokens, layout=layout)
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1, reduction="none")
    return logits, losses.unflatten(0, labels.shape)


def predictions_and_losses(model: nn.Module, task: Task, tokens: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the predicted tokens and the cross-entropies [B, T], both computed at labels only and 0 elsewhere."""
    labeled = labels >= 0
    logits, _ = model(tokens, layout=task_layout(task, tokens), head_mask=labeled)
    losses = F.cross_entropy(logits, labels[labeled], reduction="none")
    predictions = torch.zeros_like(labels).masked_scatter(labeled, logits.argmax(-1))
    return predictions, torch.zeros_like(labels, dtype=losses.dtype).masked_scatter(labeled, losses)


def task_layout(task: Task, tokens: Tensor) -> Layout | None:
    """Return the layout with the document starts, at which memories are reset; None if the task has none."""
    doc_start = task.document_starts(tokens)
    return None if doc_start is None else Layout(doc_start=doc_start)
