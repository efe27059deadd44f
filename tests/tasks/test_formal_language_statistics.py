"""Labels of formal languages are as frequent as those of the published generators, within four standard errors.

The expected numbers are counts of each label in 1,000 rows of the generators of xLSTM, which Grazzi et al. (2024) use.
"""

import numpy as np
import pytest

import hqlt_lab as lab

ROWS = 1000
BRACKETS = {"name": "modular_arithmetic", "brackets": True}
COUNTS = [
    ({"name": "parity"}, "train", (499, 501)),
    ({"name": "modular_arithmetic"}, "train", (207, 203, 201, 181, 208)),
    (BRACKETS | {"multiplication": False}, "train", (203, 205, 196, 195, 201)),
    (BRACKETS, "train", (260, 185, 200, 165, 190)),
    (BRACKETS, "test", (313, 183, 172, 174, 158)),
    ({"name": "even_pairs"}, "train", (506, 494)),
    ({"name": "cycle_navigation"}, "train", (209, 177, 213, 188, 213)),
]


@pytest.mark.parametrize(("spec", "split", "published"), COUNTS)
def test_labels_are_as_frequent_as_in_the_published_generators(spec, split, published):
    task = lab.build("task", spec)
    labels = task.generate_arrays(split, 0, 0, ROWS).labels
    frequent = np.bincount(labels[labels >= 0])
    counts = frequent[frequent > 0]
    assert len(counts) == len(published)
    if spec["name"] in ("parity", "even_pairs"):
        counts = np.sort(counts)  # the two labels have other numbers there
        published = sorted(published)
    for count, expected in zip(counts, published, strict=True):
        share = expected / ROWS
        assert abs(count - expected) < 4 * (2 * ROWS * share * (1 - share)) ** 0.5


def test_without_multiplication_there_are_only_sums_and_differences():
    for brackets in (False, True):
        task = lab.build("task", {"name": "modular_arithmetic", "brackets": brackets, "multiplication": False})
        tokens = task.generate_arrays("train", 0, 0, ROWS).tokens
        operators = [(tokens == task.alphabet.index(sign)).sum() for sign in "+-*"]
        assert operators[2] == 0 and min(operators[:2]) > ROWS
