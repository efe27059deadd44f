"""Reading: every token of a split once per epoch, in an order that anyone can compute."""

import lzma
import pickle

import numpy as np
import pytest

from hqlt_lab.data.compress import xz_bits_per_byte
from hqlt_lab.data.corpus import open_corpus
from hqlt_lab.data.index import SPLITS
from hqlt_lab.data.pieces import split_of
from hqlt_lab.errors import ConfigError, StoreError
from tests.data.conftest import TEXTS


@pytest.fixture(scope="module")
def corpus(folder):
    return open_corpus(folder)


def expected(split):
    """The split's tokens, written without the lab: each document behind a 256."""
    mine = [text.encode() for text in TEXTS if split_of(text.encode(), 0.2, 0.1) == split]
    return np.array([token for text in mine for token in (256, *text)])


@pytest.mark.parametrize("split", SPLITS)
def test_a_split_has_its_documents_one_after_the_other(corpus, split):
    assert corpus.tokens(split) == len(expected(split)) > 100
    assert corpus.documents(split) == np.count_nonzero(expected(split) == 256)
    assert corpus.bytes(split) == corpus.tokens(split) - corpus.documents(split)


@pytest.mark.parametrize("length", [1, 7, 64, 150])
@pytest.mark.parametrize("split", ["valid", "test"])
def test_held_out_windows_come_in_order_with_the_next_token_as_label(corpus, split, length):
    whole, count = expected(split), corpus.windows_in(split, length)
    windows = corpus.windows(split, 0, 0, count, length)
    assert count * length < len(whole) <= (count + 1) * length + 1
    assert np.array_equal(windows.tokens.ravel(), whole[: count * length])
    assert np.array_equal(windows.labels.ravel(), whole[1 : count * length + 1])
    assert np.array_equal(windows.starts, windows.tokens == 256)
    assert windows.tokens.dtype == windows.labels.dtype == np.int64


def test_an_epoch_of_training_has_every_window_once(corpus):
    length, whole = 16, expected("train")
    count = corpus.windows_in("train", length)
    in_order = whole[: count * length].reshape(count, length)
    orders = []
    for epoch in range(3):
        seen = corpus.windows("train", 5, epoch * count, count, length).tokens
        assert np.array_equal(np.unique(seen, axis=0), np.unique(in_order, axis=0))
        orders.append(seen.tobytes())
    assert len(set(orders)) == 3


def test_a_batch_is_a_function_of_seed_and_number_alone(corpus):
    count = corpus.windows_in("train", 16)
    together = corpus.windows("train", 1, count - 5, 10, 16)  # across the border of two epochs
    alone = [corpus.windows("train", 1, count - 5 + number, 1, 16) for number in range(10)]
    for name in together._fields:
        assert np.array_equal(getattr(together, name), np.concatenate([getattr(one, name) for one in alone]))
    assert not np.array_equal(together.tokens, corpus.windows("train", 2, count - 5, 10, 16).tokens)


def test_labels_can_be_changed_without_changing_tokens(corpus):
    windows = corpus.windows("valid", 0, 0, 2, 16)
    before = windows.tokens.copy()
    windows.labels[:] = -1
    assert np.array_equal(windows.tokens, before)


@pytest.mark.parametrize("split", SPLITS)
def test_starts_are_where_documents_begin(corpus, split):
    whole = expected(split)
    offsets = [
        shard * corpus.index.shard_tokens + np.fromfile(corpus.folder / f"{split}-{shard:05}.starts", dtype="<i8")
        for shard in range(corpus.index.shards(split))
    ]
    assert np.array_equal(np.concatenate(offsets), np.flatnonzero(whole == 256))


def test_past_the_end_of_what_is_held_out_is_nothing(corpus):
    count = corpus.windows_in("valid", 16)
    with pytest.raises(ConfigError, match=f"windows {count} to {count} of valid .* there are {count} of 16 tokens"):
        corpus.windows("valid", 0, count, 1, 16)
    with pytest.raises(ConfigError, match="there are 0 of 1000000 tokens"):
        corpus.windows("train", 0, 0, 1, 1_000_000)
    with pytest.raises(ConfigError, match=r"'short': there is no such split. There are: train, valid, test"):
        corpus.tokens("short")


def test_tokens_become_text_again(corpus):
    texts = [text for text in TEXTS if split_of(text.encode(), 0.2, 0.1) == "train"]
    assert corpus.decode(expected("train")) == "<|document|>" + "<|document|>".join(texts)


def test_another_process_gets_the_folder_and_not_the_tokens(corpus):
    sent = pickle.dumps(corpus)
    assert len(sent) < 1000
    assert pickle.loads(sent).digest == corpus.digest


def test_a_folder_without_data_says_what_to_type(tmp_path):
    with pytest.raises(StoreError, match=r"there are no prepared data. Make some with: hqlt data prepare SOURCE"):
        open_corpus(tmp_path / "nothing")
    (tmp_path / "half/work").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"not complete. Run the same `hqlt data prepare` again"):
        open_corpus(tmp_path / "half")


def test_what_xz_makes_of_a_split_is_what_it_makes_of_its_documents(corpus):
    text = b"".join(text.encode() for text in TEXTS if split_of(text.encode(), 0.2, 0.1) == "test")
    assert xz_bits_per_byte(corpus, "test", most=1_000_000) == 8 * len(lzma.compress(text, preset=9)) / len(text)
    assert "".join(corpus.texts("test", most=100)).encode() == text[: 100 - borders(100)]


def borders(tokens):
    """How many documents begin among the first tokens of the test split."""
    return np.count_nonzero(expected("test")[:tokens] == 256)
