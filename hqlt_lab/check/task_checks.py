"""Checks of tasks that generate their examples by index: resuming, pairing arms by seed and fair tests rely on them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

import torch
from torch import Tensor

from hqlt_lab.check.component_under_test import ComponentCase
from hqlt_lab.check.conformance_report import CheckFailed, CheckResult
from hqlt_lab.registry import build
from hqlt_lab.tasks._base import Batch, Split

if TYPE_CHECKING:
    from hqlt_lab.tasks._generated_task import GeneratedTask

SPLITS: tuple[Split, ...] = get_args(Split)
FIXED_SPLITS: tuple[Split, ...] = ("short", "valid", "test")
NUM_EXAMPLES = 8192  # enough for every size to occur


def examples_are_reproducible_by_index(case: ComponentCase) -> None:
    """Example i is the same in any batch and at any time, so that a resumed run neither skips nor repeats examples."""
    task = build_task(case)
    for split in SPLITS:
        batch = task.get_examples(split, 3, 64, 32)
        chunks = [task.get_examples(split, 3, first, count) for first, count in ((64, 16), (80, 15), (95, 1))]
        if not is_same_batch(batch, Batch(*(torch.cat(field) for field in zip(*chunks, strict=True)))):
            raise CheckFailed(
                f"{split}: examples 64 to 95 differ between one batch and three batches. Draw random numbers only "
                "from `rng`."
            )


def only_training_depends_on_the_seed(case: ComponentCase) -> None:
    """`train` differs between run seeds; the fixed splits are the same for all, and valid and test differ."""
    task = build_task(case)
    if is_same_batch(task.get_examples("train", 0, 0, 64), task.get_examples("train", 1, 0, 64)):
        raise CheckFailed("train: runs with different seeds get the same examples.")
    for split in FIXED_SPLITS:
        if not is_same_batch(task.get_examples(split, 0, 0, 64), task.get_examples(split, 1, 0, 64)):
            raise CheckFailed(
                f"{split}: the examples depend on the run's seed, so arms and seeds are not tested on the same "
                "examples."
            )
    if is_same_batch(task.get_examples("valid", 0, 0, 64), task.get_examples("test", 0, 0, 64)):
        raise CheckFailed("valid and test have the same examples, so selection would use the test set.")


def rows_are_padded_on_the_right(case: ComponentCase) -> None:
    """Batches are int64 and as wide as the split's longest example; valid tokens are > 0, padding behind them is 0."""
    task = build_task(case)
    for split in SPLITS:
        batch = task.get_examples(split, 0, 0, 300)
        shape = (300, task.sequence_length(split))
        if any(field.dtype != torch.int64 for field in batch) or batch.tokens.shape != shape:
            raise CheckFailed(
                f"{split}: int64 {list(shape)} is expected, got {batch.tokens.dtype} {list(batch.tokens.shape)}."
            )
        valid_mask, tokens = valid_token_mask(task, batch), batch.tokens
        if (tokens[~valid_mask] != 0).any() or (tokens[valid_mask] <= 0).any() or (tokens >= task.vocabulary).any():
            raise CheckFailed(f"{split}: tokens must be 1 to {task.vocabulary - 1}, followed by padding of 0.")


def labels_are_inside_their_example(case: ComponentCase) -> None:
    """Each example has a label, none is behind its end, and every label is a token."""
    task = build_task(case)
    for split in SPLITS:
        batch = task.get_examples(split, 0, 0, 300)
        has_label = batch.labels >= 0
        if (has_label & ~valid_token_mask(task, batch)).any():
            raise CheckFailed(f"{split}: a label is after the end of its example.")
        if not has_label.any(1).all():
            raise CheckFailed(f"{split}: some examples have no label.")
        if (batch.labels[has_label] == 0).any() or (batch.labels >= task.vocabulary).any():
            raise CheckFailed(f"{split}: labels must be tokens from 1 to {task.vocabulary - 1}.")


def every_size_occurs(case: ComponentCase) -> None:
    """The smallest and the largest size of every split are those that `length_ranges` declares.

    If the task has rare sizes, all sizes are between those.
    """
    task = build_task(case)
    for split in SPLITS:
        lengths, (low, high) = task.get_examples(split, 0, 0, NUM_EXAMPLES).lengths, task.length_ranges[split]
        size_range = (int(lengths.min()), int(lengths.max()))
        if task.has_rare_sizes and low <= size_range[0] and size_range[1] <= high:
            continue
        if size_range != (low, high):
            raise CheckFailed(f"{split}: sizes are {size_range}, but `length_ranges` is {task.length_ranges[split]}.")


def chance_level_is_as_declared(case: ComponentCase) -> Iterator[CheckResult]:
    """The number of different labels is the one that `chance_level` implies.

    A label that is more frequent than chance is mentioned in the result, but is not a failure.
    """
    task = build_task(case)
    labels = task.get_examples("test", 0, 0, NUM_EXAMPLES).labels
    distinct_labels, counts = labels[labels >= 0].unique(return_counts=True)
    if len(distinct_labels) != round(100 / task.chance_level):
        raise CheckFailed(
            f"there are {len(distinct_labels)} different labels, but `chance_level` is {task.chance_level:.3g} %."
        )
    top_share = float(counts.max() / counts.sum())
    standard_error = (top_share * (1 - top_share) / float(counts.sum())) ** 0.5
    is_uneven = top_share - 5 * standard_error > task.chance_level / 100
    detail = (
        f"the most frequent label has {100 * top_share:.3g} %, above the chance level of {task.chance_level:.3g} %"
        if is_uneven
        else ""
    )
    yield CheckResult("chance level is as declared", "passed", detail)


def examples_can_be_decoded(case: ComponentCase) -> None:
    """`alphabet` has a different word for every token, and `format_example` shows the labels in brackets."""
    task = build_task(case)
    if len(set(task.alphabet)) != task.vocabulary or any(not word or " " in word for word in task.alphabet):
        raise CheckFailed("`alphabet` needs a different word without blanks for every token.")
    batch = task.get_examples("train", 0, 0, 8)
    for row in range(8):
        shown = [word[1:-1] for word in task.format_example(batch, row).split() if word.startswith("[")]
        expected = [task.alphabet[label] for label in batch.labels[row].tolist() if label >= 0]
        if shown != expected:
            raise CheckFailed(f"`format_example` shows the labels {shown} for example {row}, expected {expected}.")


def build_task(case: ComponentCase) -> "GeneratedTask":
    return build("task", case.spec)


def valid_token_mask(task: "GeneratedTask", batch: Batch) -> Tensor:
    """Return a mask [B, T] of the tokens that are not padding."""
    return torch.arange(batch.tokens.shape[1]) < (batch.lengths - task.unread_tokens)[:, None]


def is_same_batch(batch: Batch, other: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(batch, other, strict=True))
