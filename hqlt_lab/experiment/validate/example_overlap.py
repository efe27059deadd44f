"""Report how many test inputs are expected to occur in training too, which a model can answer from memory.

The estimate is that of the task (`estimate_overlap`), for all training examples of a run. Only whole inputs count.

    below MIN_REPORTED_OVERLAP      nothing
    up to MAX_OVERLAP               a warning
    above                           an issue; a warning if the arm allows `train_test_overlap`
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hqlt_lab.errors import ConfigIssue

if TYPE_CHECKING:
    from hqlt_lab.experiment.cell import Cell

TRAIN_TEST_OVERLAP = "train_test_overlap"
MIN_REPORTED_OVERLAP, MAX_OVERLAP = 0.01, 0.1  # shares of the inputs of a split


def count_train_examples(cell: "Cell") -> int:
    """Return the number of examples that a cell is trained on, unless it stops early."""
    return cell.train.steps * cell.train.batch_size


def check_example_overlap(
    task: Any, cell: "Cell", allowed_issues: tuple[str, ...]
) -> tuple[list[ConfigIssue], list[ConfigIssue]]:
    """Return issues and warnings if the valid or test split shares inputs with the training examples."""
    issues: list[ConfigIssue] = []
    warnings: list[ConfigIssue] = []
    # without its own lengths, valid has the overlap of test
    for split in ("valid", "test") if cell.task.get("valid_length") else ("test",):
        share = task.estimate_overlap(split, count_train_examples(cell))
        if share is None or share < MIN_REPORTED_OVERLAP:
            continue
        message = (
            f"about {100 * share:.0f} % of the {split} inputs also occur in training, because there are few different "
            "inputs of the sizes that both splits share."
        )
        issue = ConfigIssue(f"task.{split}_length", TRAIN_TEST_OVERLAP, message)
        if share <= MAX_OVERLAP or TRAIN_TEST_OVERLAP in allowed_issues:
            warnings.append(issue)
        else:
            hint = (
                "Use sizes that are not in task.train_length. If this is intended, set in the arm: "
                f"allow: [{TRAIN_TEST_OVERLAP}]."
            )
            issues.append(replace(issue, hint=hint))
    return issues, warnings
