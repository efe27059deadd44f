"""Tokenizers: no text is lost, separators stand before documents only, and data keep what decodes them."""

import shutil

import numpy as np
import pytest

from hqlt_lab.data.corpus import open_corpus
from hqlt_lab.data.encoders.bpe import Bpe
from hqlt_lab.data.encoders.choose import load_encoder, make_encoder
from hqlt_lab.data.pieces import INSIDE, dtype_of, tokenise
from hqlt_lab.data.prepare import prepare
from hqlt_lab.data.request import Request
from hqlt_lab.errors import ConfigError
from tests.data.conftest import TEXTS

BYTES = [text.encode() for text in TEXTS]
ODD = ["  two spaces\n\n\ttab", "名前 🙂 é", "<s> </s> <|document|> <unk>", "a\r\nb\x00c"]


@pytest.fixture(scope="module")
def hub_folder(tmp_path_factory):
    """A tokenizer as the hub has them: a folder that transformers reads."""
    from transformers import PreTrainedTokenizerFast

    own = Bpe.learn(BYTES, 300).tokenizer
    folder = tmp_path_factory.mktemp("hub") / "own"
    PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<|document|>").save_pretrained(folder)
    return folder


@pytest.fixture(params=["bytes", "bpe", "mistral", "hub"])
def encoder(request, tmp_path):
    """Each tokenizer, as a process of the crew gets it: saved and loaded."""
    name = str(request.getfixturevalue("hub_folder")) if request.param == "hub" else request.param
    make_encoder(name, 300, iter(BYTES)).save(tmp_path)
    return load_encoder(name, tmp_path)


def test_nothing_of_a_text_is_lost(encoder):
    for text, ids in zip(ODD, encoder.encode([text.encode() for text in ODD]), strict=True):
        assert encoder.decode(ids.tolist()) == text
        assert ids.max() < encoder.vocabulary


def test_what_looks_like_a_separator_in_a_text_is_text(encoder):
    assert all(encoder.separator not in ids for ids in encoder.encode([text.encode() for text in ODD]))


def test_every_document_begins_with_a_separator_that_stands_nowhere_else(encoder):
    piece = tokenise(BYTES, encoder, 0.2, 0.2)
    for split, contents in piece.tally.splits.items():
        tokens, starts = piece.arrays[f"{split}.tokens"], piece.arrays[f"{split}.starts"]
        assert contents.documents > 5 and tokens.dtype == dtype_of(encoder)
        assert np.array_equal(np.flatnonzero(tokens == encoder.separator), starts)


def test_a_separator_that_a_tokenizer_finds_in_a_text_is_left_out_and_counted(encoder):
    class Careless(type(encoder)):
        def __init__(self):
            self.__dict__.update(encoder.__dict__)

        def encode(self, texts):
            return [np.array([7, self.separator, 8], dtype=np.uint32) for _ in texts]

    piece = tokenise([b"a", b"b"], Careless(), 0, 0)
    assert piece.arrays["train.tokens"].tolist() == [encoder.separator, 7, 8] * 2
    assert piece.tally.skipped == {INSIDE: 2}


def test_mistral_is_the_vocabulary_of_32000_with_1_before_a_document():
    encoder = make_encoder("mistral", 0, iter([]))
    assert (encoder.vocabulary, encoder.separator, dtype_of(encoder)) == (32_000, 1, "uint16")


def test_bpe_learns_as_many_tokens_as_asked_for_and_the_same_ones_every_time(tmp_path):
    texts = [text for text in BYTES for _ in range(5)]
    first, second = (Bpe.learn(iter(texts), 320) for _ in range(2))
    assert first.vocabulary == 320 and first.tokenizer.to_str() == second.tokenizer.to_str()
    assert len(first.encode([BYTES[6]])[0]) < len(BYTES[6]) / 2
    with pytest.raises(ConfigError, match="vocabulary: at least 257 is needed"):
        Bpe.learn(iter(texts), 256)


def test_a_large_vocabulary_takes_32_bits():
    class Large:
        vocabulary, separator = 100_000, 99_999

        def encode(self, texts):
            return [np.array([70_000], dtype=np.uint32) for _ in texts]

    assert tokenise([b"a"], Large(), 0, 0).arrays["train.tokens"].tolist() == [99_999, 70_000]


@pytest.mark.parametrize("name", ["bpe", "mistral", "hub"])
def test_data_are_read_without_what_they_were_made_from(name, stories, hub_folder, tmp_path):
    tokenizer = shutil.copytree(hub_folder, tmp_path / "own") if name == "hub" else name
    request = Request(source=str(stories), tokenizer=str(tokenizer), vocabulary=300, valid=0, test=0)
    prepare(request, tmp_path / "into", workers=1)
    shutil.rmtree(tmp_path / "own", ignore_errors=True)
    corpus = open_corpus(tmp_path / "into")
    assert corpus.decode(corpus.document("train")) == f"<|document|>{TEXTS[0]}"
    assert corpus.tokens("train") < corpus.bytes("train")


def test_a_tokenizer_that_is_nowhere_says_what_there_is(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"nobody/nothing: .* Without the hub there are: bytes, bpe, mistral"):
        make_encoder("nobody/nothing", 0, iter([]))


def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"tokenizers is not installed. Install it with: pip install .*\[data\]"):
        make_encoder("bpe", 300, iter(BYTES))
