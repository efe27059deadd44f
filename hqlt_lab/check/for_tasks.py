"""Promises of tasks whose examples are made by a counter: what resuming, pairing by seed and fair tests stand on."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

import torch
from torch import Tensor

from hqlt_lab.check.report import Broken, Line
from hqlt_lab.check.subject import Subject
from hqlt_lab.registry import build
from hqlt_lab.tasks._base import Batch, Split

if TYPE_CHECKING:
    from hqlt_lab.tasks._generated import Generated

SPLITS: tuple[Split, ...] = get_args(Split)
FIXED: tuple[Split, ...] = ("short", "valid", "test")
MANY = 8192  # examples, in which every size should occur


def examples_are_numbered(subject: Subject) -> None:
    """Example i is the same in any batch and at any time, so that a run which resumes misses and repeats nothing."""
    task = task_of(subject)
    for split in SPLITS:
        whole = task.examples(split, 3, 64, 32)
        parts = [task.examples(split, 3, first, count) for first, count in ((64, 16), (80, 15), (95, 1))]
        if not equal(whole, Batch(*(torch.cat(field) for field in zip(*parts, strict=True)))):
            raise Broken(f"{split}: examples 64 to 95 are others in one batch than in three. Draw from `draws` alone.")


def training_varies_and_tests_do_not(subject: Subject) -> None:
    """`train` is other examples for every run seed; the fixed sets are the same for all, and no two splits are one."""
    task = task_of(subject)
    if equal(task.examples("train", 0, 0, 64), task.examples("train", 1, 0, 64)):
        raise Broken("train: runs with other seeds learn from the same examples.")
    for split in FIXED:
        if not equal(task.examples(split, 0, 0, 64), task.examples(split, 1, 0, 64)):
            raise Broken(
                f"{split}: it changes with the run's seed, so that arms and seeds are tested on other examples."
            )
    if equal(task.examples("valid", 0, 0, 64), task.examples("test", 0, 0, 64)):
        raise Broken("valid and test have the same examples, so that selecting would see the test.")


def rows_are_padded_on_the_right(subject: Subject) -> None:
    """int64, as wide as the split's longest example; real tokens are in the vocabulary, and behind them is 0."""
    task = task_of(subject)
    for split in SPLITS:
        batch = task.examples(split, 0, 0, 300)
        wide = (300, task.tokens_in(split))
        if any(field.dtype != torch.int64 for field in batch) or batch.tokens.shape != wide:
            raise Broken(f"{split}: int64 {list(wide)} is due, not {batch.tokens.dtype} {list(batch.tokens.shape)}.")
        real, tokens = read(task, batch), batch.tokens
        if (tokens[~real] != 0).any() or (tokens[real] <= 0).any() or (tokens >= task.vocabulary).any():
            raise Broken(f"{split}: read tokens are 1 to {task.vocabulary - 1}, and 0 stands behind them.")


def answers_stand_at_tokens_that_are_read(subject: Subject) -> None:
    """Each example asks for something, nothing behind its end, and every answer is a token."""
    task = task_of(subject)
    for split in SPLITS:
        batch = task.examples(split, 0, 0, 300)
        due = batch.labels >= 0
        if (due & ~read(task, batch)).any():
            raise Broken(f"{split}: an answer is due behind the end of its example.")
        if not due.any(1).all():
            raise Broken(f"{split}: some examples ask for nothing.")
        if (batch.labels[due] == 0).any() or (batch.labels >= task.vocabulary).any():
            raise Broken(f"{split}: answers are tokens from 1 to {task.vocabulary - 1}.")


def every_size_occurs(subject: Subject) -> None:
    """Sizes reach from the smallest to the largest that `lengths` tells, in every split."""
    task = task_of(subject)
    for split in SPLITS:
        lengths = task.examples(split, 0, 0, MANY).lengths
        if (found := (int(lengths.min()), int(lengths.max()))) != task.lengths[split]:
            raise Broken(f"{split}: sizes are {found}, and `lengths` says {task.lengths[split]}.")


def guessing_is_what_chance_says(subject: Subject) -> Iterator[Line]:
    """As many answers occur as guessing among them allows; where one of them is commoner, the line says so."""
    task = task_of(subject)
    labels = task.examples("test", 0, 0, MANY).labels
    answers, counts = labels[labels >= 0].unique(return_counts=True)
    if len(answers) != round(100 / task.chance):
        raise Broken(f"{len(answers)} answers occur, and `chance` is {task.chance:.3g} %.")
    commonest = float(counts.max() / counts.sum())
    error = (commonest * (1 - commonest) / float(counts.sum())) ** 0.5
    uneven = commonest - 5 * error > task.chance / 100
    told = f"the commonest answer is right in {100 * commonest:.3g} %, chance is {task.chance:.3g} %" if uneven else ""
    yield Line("guessing is what chance says", "passed", told)


def examples_can_be_read_by_people(subject: Subject) -> None:
    """`alphabet` has a word for every token, all different, and `decode` spells examples with their answers."""
    task = task_of(subject)
    if len(set(task.alphabet)) != task.vocabulary or any(not word or " " in word for word in task.alphabet):
        raise Broken("`alphabet` needs a different word without blanks for every token.")
    batch = task.examples("train", 0, 0, 8)
    for row in range(8):
        told = [word[1:-1] for word in task.decode(batch, row).split() if word.startswith("[")]
        due = [task.alphabet[label] for label in batch.labels[row].tolist() if label >= 0]
        if told != due:
            raise Broken(f"example {row} is spelled with the answers {told}, and {due} are due.")


def task_of(subject: Subject) -> "Generated":
    """The task under test."""
    return build("task", subject.spec)


def read(task: "Generated", batch: Batch) -> Tensor:
    """[B, T]: which tokens are real."""
    return torch.arange(batch.tokens.shape[1]) < (batch.lengths - task.unread)[:, None]


def equal(one: Batch, other: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
