"""Reading prepared data: every token of a split once per epoch, in an order that can be recomputed."""

import lzma
import pickle

import numpy as np
import pytest

from hqlt_lab.data.corpus_index import SPLITS
from hqlt_lab.data.corpus_reader import open_corpus
from hqlt_lab.data.pipeline.chunks import assign_split
from hqlt_lab.data.xz_baseline import xz_bits_per_byte
from hqlt_lab.errors import StoreError
from tests.data.conftest import TEXTS
from tests.issues import raises_issue


@pytest.fixture(scope="module")
def corpus(folder):
    return open_corpus(folder)


def expected_tokens(split):
    """Compute the split's tokens independently: each document preceded by the separator 256."""
    texts = [text.encode() for text in TEXTS if assign_split(text.encode(), 0.2, 0.1) == split]
    return np.array([token for text in texts for token in (256, *text)])


@pytest.mark.parametrize("split", SPLITS)
def test_split_is_the_concatenation_of_its_documents(corpus, split):
    assert corpus.num_tokens(split) == len(expected_tokens(split)) > 100
    assert corpus.num_documents(split) == np.count_nonzero(expected_tokens(split) == 256)
    assert corpus.num_bytes(split) == corpus.num_tokens(split) - corpus.num_documents(split)


@pytest.mark.parametrize("length", [1, 7, 64, 150])
@pytest.mark.parametrize("split", ["valid", "test"])
def test_held_out_windows_are_in_order_and_labels_are_the_next_tokens(corpus, split, length):
    tokens, count = expected_tokens(split), corpus.num_windows(split, length)
    windows = corpus.read_windows(split, 0, 0, count, length)
    assert count * length < len(tokens) <= (count + 1) * length + 1
    assert np.array_equal(windows.tokens.ravel(), tokens[: count * length])
    assert np.array_equal(windows.labels.ravel(), tokens[1 : count * length + 1])
    assert np.array_equal(windows.document_starts, windows.tokens == 256)
    assert windows.tokens.dtype == windows.labels.dtype == np.int64


def test_training_epoch_contains_every_window_once(corpus):
    length, tokens = 16, expected_tokens("train")
    count = corpus.num_windows("train", length)
    in_order = tokens[: count * length].reshape(count, length)
    orders = []
    for epoch in range(3):
        windows = corpus.read_windows("train", 5, epoch * count, count, length).tokens
        assert np.array_equal(np.unique(windows, axis=0), np.unique(in_order, axis=0))
        orders.append(windows.tobytes())
    assert len(set(orders)) == 3


def test_batch_depends_only_on_seed_and_number(corpus):
    count = corpus.num_windows("train", 16)
    together = corpus.read_windows("train", 1, count - 5, 10, 16)  # spans the boundary of two epochs
    alone = [corpus.read_windows("train", 1, count - 5 + number, 1, 16) for number in range(10)]
    for name in together._fields:
        assert np.array_equal(getattr(together, name), np.concatenate([getattr(window, name) for window in alone]))
    assert not np.array_equal(together.tokens, corpus.read_windows("train", 2, count - 5, 10, 16).tokens)


def test_changing_labels_does_not_change_tokens(corpus):
    windows = corpus.read_windows("valid", 0, 0, 2, 16)
    before = windows.tokens.copy()
    windows.labels[:] = -1
    assert np.array_equal(windows.tokens, before)


@pytest.mark.parametrize("split", SPLITS)
def test_starts_files_hold_the_positions_of_separators(corpus, split):
    tokens = expected_tokens(split)
    offsets = [
        shard * corpus.index.shard_tokens + np.fromfile(corpus.folder / f"{split}-{shard:05}.starts", dtype="<i8")
        for shard in range(corpus.index.num_shards(split))
    ]
    assert np.array_equal(np.concatenate(offsets), np.flatnonzero(tokens == 256))


def test_reading_past_the_end_of_a_held_out_split_is_an_error(corpus):
    count = corpus.num_windows("valid", 16)
    with raises_issue("length", "too_few_windows"):
        corpus.read_windows("valid", 0, count, 1, 16)
    with raises_issue("length", "too_few_windows"):
        corpus.read_windows("train", 0, 0, 1, 1_000_000)
    with raises_issue("split", "unknown_split"):
        corpus.num_tokens("short")


def test_decoding_restores_the_texts(corpus):
    texts = [text for text in TEXTS if assign_split(text.encode(), 0.2, 0.1) == "train"]
    assert corpus.decode(expected_tokens("train")) == "<|document|>" + "<|document|>".join(texts)


def test_pickled_corpus_holds_the_path_and_not_the_tokens(corpus):
    pickled = pickle.dumps(corpus)
    assert len(pickled) < 1000
    assert pickle.loads(pickled).digest == corpus.digest


def test_error_for_a_folder_without_data_names_the_command(tmp_path):
    with pytest.raises(StoreError, match=r"there are no prepared data. Prepare them with: hqlt data prepare SOURCE"):
        open_corpus(tmp_path / "nothing")
    (tmp_path / "half/work").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"incomplete. Run the same `hqlt data prepare` command again"):
        open_corpus(tmp_path / "half")


def test_xz_baseline_compresses_the_documents_of_the_split(corpus):
    text = b"".join(text.encode() for text in TEXTS if assign_split(text.encode(), 0.2, 0.1) == "test")
    assert xz_bits_per_byte(corpus, "test", max_tokens=1_000_000) == 8 * len(lzma.compress(text, preset=9)) / len(text)
    assert "".join(corpus.read_texts("test", max_tokens=100)).encode() == text[: 100 - count_separators(100)]


def count_separators(max_tokens):
    """Count the documents that begin within the first `max_tokens` tokens of the test split."""
    return np.count_nonzero(expected_tokens("test")[:max_tokens] == 256)
