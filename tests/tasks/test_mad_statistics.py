"""Statistics of MAD's tasks agree with those of its generators, and its macro accuracy with a plain implementation.

The expected numbers are means over 1,000 test rows of the published generators, at the baseline of each task.
"""

import numpy as np
import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.tasks._macro_accuracy import count_macro

ROWS = 1000
COPYING = {
    "items": 16,
    "symbols": 14,
    "noise_at": "before_symbols",
    "marks": "one",
    "train_length": [256, 256],
    "test_length": [256, 256],
}
# task: labels per row, their smallest and largest number, share of the most frequent label, number of labels
STATISTICS = [
    ({"name": "in_context_recall"}, 56.003, (56, 57), 0.133, 8),
    ({"name": "in_context_recall", "noise": 0.2}, 43.626, (32, 53), 0.132, 8),
    ({"name": "fuzzy_recall"}, 4.432, (1, 17), 0.130, 8),
    ({"name": "memorization"}, 16, (16, 16), 0.0103, 127),
    ({"name": "selective_copying"} | COPYING, 16, (16, 16), 0.0757, 14),
]


@pytest.mark.parametrize(("spec", "mean", "limits", "top_share", "classes"), STATISTICS, ids=str)
def test_labels_are_as_many_and_as_frequent_as_published(spec, mean, limits, top_share, classes):
    labels = lab.build("task", spec).generate_arrays("test", 0, 0, ROWS).labels
    counts = (labels >= 0).sum(1)
    assert abs(counts.mean() - mean) <= 4 * 2**0.5 * counts.std() / ROWS**0.5 + 1e-9
    assert limits[0] - 2 <= counts.min() and counts.max() <= limits[1] + 2
    frequent = np.bincount(labels[labels >= 0])
    assert (frequent > 0).sum() == classes
    share = frequent.max() / counts.sum()
    assert abs(share - top_share) <= 4 * (2 * top_share / counts.sum()) ** 0.5 + 0.0005


@pytest.mark.parametrize("noise_at", ["uniform", "before_symbols"])
def test_the_last_symbol_is_right_before_the_mark_if_noise_is_in_front_of_symbols(noise_at):
    spec = {"name": "selective_copying"} | COPYING | {"noise_at": noise_at}
    tokens = lab.build("task", spec).generate_arrays("test", 0, 0, ROWS).tokens
    assert (tokens[:, 239] == 2).all() and (tokens[:, 240:] == 1).all()
    last_is_symbol = (tokens[:, 238] >= 3).mean()
    assert last_is_symbol == 1 if noise_at == "before_symbols" else last_is_symbol < 0.2
    first = (tokens >= 3).argmax(1)
    # uniform: the first of 16 of 239 positions is at 223 / 17 on average; else 223 noise tokens in 16 gaps
    expected, gaps = (223 / 17, 17) if noise_at == "uniform" else (223 / 16, 16)
    assert abs(first.mean() - expected) < 4 * first.std() / ROWS**0.5 and gaps


def test_a_noisy_pair_is_never_asked_and_one_pair_is_never_noise():
    task = lab.build("task", {"name": "in_context_recall", "noise": 0.95, "test_length": [9, 9]})
    arrays = task.generate_arrays("test", 0, 0, ROWS)
    first_noise = task.alphabet.index("n0")
    is_noise = arrays.tokens >= first_noise
    assert (arrays.labels[is_noise] == -1).all() and np.array_equal(is_noise[:, 0:8:2], is_noise[:, 1:8:2])
    num_noise = is_noise[:, 0:8:2].sum(1)
    assert num_noise.max() == 3 and not is_noise[:, 8].any()
    assert abs(num_noise.mean() - 3 * 0.95) < 4 * num_noise.std() / ROWS**0.5


def test_all_splits_share_the_table_and_another_seed_has_another():
    first, second = (lab.build("task", {"name": "memorization", "map_seed": seed}) for seed in (0, 1))
    assert sorted(first.table) == list(range(127))
    assert (first.table == second.table).sum() < 10


def plain_macro_accuracy(predictions, labels):
    values = []
    for first in range(0, len(labels), 128):
        pairs = [
            (p, t)
            for row in range(first, min(first + 128, len(labels)))
            for p, t in zip(predictions[row].tolist(), labels[row].tolist(), strict=True)
            if t >= 0
        ]
        classes = {p for p, _ in pairs} | {t for _, t in pairs}
        shares = []
        for name in classes:
            of_class = [p == t for p, t in pairs if t == name]
            shares.append(sum(of_class) / len(of_class) if of_class else 0.0)
        values.append(sum(shares) / len(shares))
    return 100 * sum(values) / len(values)


@pytest.mark.parametrize("rows", [128, 300])
def test_macro_accuracy_is_the_mean_over_classes_and_groups(rows):
    task = lab.build("task", "memorization")
    batch = task.get_examples("test", 0, 0, rows)
    generator = torch.Generator().manual_seed(0)
    is_wrong = torch.rand(batch.labels.shape, generator=generator) < 0.3
    predictions = torch.where(is_wrong, batch.tokens, batch.labels)  # keys and marks are never labels
    counts = task.score_predictions(predictions, batch)
    metrics = task.compute_metrics({name: float(count.sum()) for name, count in counts.items()})
    assert metrics["macro_accuracy"] == pytest.approx(plain_macro_accuracy(predictions, batch.labels))
    assert metrics["macro_accuracy"] < metrics["accuracy"] and "macro_accuracy" in task.metric_names


def test_only_the_first_row_of_a_group_counts_in_the_macro_accuracy():
    labels = torch.tensor([[3, -1], [-1, 4], [3, 3]])
    counts = count_macro(torch.tensor([[3, 9], [9, 4], [3, 5]]), labels)
    assert counts["macro_groups"].tolist() == [1, 0, 0]
    # class 3 has two of three, class 4 one of one, class 5 is only predicted
    assert counts["macro_recall"].tolist() == pytest.approx([(2 / 3 + 1 + 0) / 3, 0, 0])
