"""Statistics of RULER's tasks with word tokens: places, frequencies and sizes of the published generators."""

from collections import Counter

import numpy as np
import pytest

import hqlt_lab as lab

ROWS = 1000


def make_task(kind, size, **options):
    return lab.build(
        "task", {"name": "ruler", "kind": kind, "train_length": [size, size], "test_length": [size, size], **options}
    )


def contexts(task):
    arrays = task.generate_arrays("test", 0, 0, ROWS)
    question = (arrays.tokens == task.alphabet.index("?")).argmax(1)
    return [arrays.tokens[row, :end] for row, end in enumerate(question)]


def test_a_needle_is_before_a_uniform_line_of_filler():
    rows = np.array(contexts(make_task("niah_single_1", 40)))
    is_needle = rows >= 8
    assert rows.shape == (ROWS, 202) and (is_needle.sum(1) == 2).all()
    places = is_needle.argmax(1)
    assert (places % 5 == 0).all() and places.min() == 0 and places.max() == 195
    assert abs(places.mean() / 5 - 19.5) < 4 * (places / 5).std() / ROWS**0.5
    for row, place in zip(rows, places, strict=True):
        assert (np.delete(row, [place, place + 1]) == np.tile([3, 4, 5, 6, 7], 40)).all()


def test_the_asked_pair_is_uniform_among_all():
    task = make_task("niah_multikey_2", 64)
    arrays = task.generate_arrays("test", 0, 0, ROWS)
    assert arrays.lengths.tolist() == [130] * ROWS
    keys, asked = arrays.tokens[:, 0:128:2], arrays.tokens[:, 129:130]
    assert all(len(set(row)) == 64 for row in keys.tolist())
    places = (keys == asked).argmax(1)
    assert abs(places.mean() - 31.5) < 4 * places.std() / ROWS**0.5 and {0, 63} <= set(places.tolist())


def test_assignments_of_a_chain_are_at_uniform_places_in_order():
    places = []
    for row in contexts(make_task("vt", 30)):
        (facts,) = np.nonzero(row >= 8)
        assert len(facts) == 10 and len(row) == 160
        # the number of the line before which each assignment is
        places.append((facts[0::2] - 2 * np.arange(5)) / 5)
    places = np.array(places)
    assert (np.diff(places, axis=1) >= 1).all() and (places % 1 == 0).all()
    # order statistics of 5 of 30 lines: i * 31 / 6 - 1
    assert places.mean(0) == pytest.approx(np.arange(1, 6) * 31 / 6 - 1, abs=4 * places.std(0).max() / ROWS**0.5)


def test_ten_words_of_a_list_are_six_times_as_frequent():
    rows = contexts(make_task("cwe", 100))
    assert all(Counter(Counter(row.tolist()).values()) == {6: 10, 1: 90} for row in rows)
    # common words are not at the same places in every row: 60 of 150
    is_common = np.array([[Counter(row.tolist())[token] == 6 for token in row.tolist()] for row in rows[:300]])
    assert abs(is_common.mean(0) - 0.4).max() < 4.5 * (0.24 / 300) ** 0.5


def test_coded_words_are_as_frequent_as_published():
    """At 1,024 whitespace tokens the published generator has 572 dots, then 143, 63 and 35 for N = 942."""
    task = make_task("fwe", 942)
    rows = contexts(task)
    for row in rows[:50]:
        counts = Counter(row.tolist()).most_common()
        assert [count for _, count in counts[:4]] == [572, 143, 63, 35] and counts[0][0] == task.alphabet.index("...")
        assert len(counts) == 942 // 50
    assert len({row.tobytes() for row in rows}) == ROWS


def test_extrapolation_stops_where_there_are_too_few_words():
    axis_values = [value for _, value, _ in make_task("niah_multikey_2", 64, words=300).extrapolation_tests(8)]
    assert axis_values == [131 - 1, 259 - 1, 515 - 1]
    # filler needs no words
    assert len(make_task("niah_single_1", 64, words=2).extrapolation_tests(8)) == 4
