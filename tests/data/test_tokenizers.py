"""Tokenizers: decoding is lossless, separators occur only before documents, and the data include the tokenizer."""

import shutil

import numpy as np
import pytest

from hqlt_lab.data.corpus_reader import open_corpus
from hqlt_lab.data.pipeline.chunks import SEPARATOR_INSIDE, token_dtype, tokenize_documents
from hqlt_lab.data.prepare import prepare_data
from hqlt_lab.data.prepare_options import PrepareRequest
from hqlt_lab.data.tokenizers.bpe import BpeTokenizer
from hqlt_lab.data.tokenizers.load_tokenizer import create_tokenizer, load_tokenizer
from tests.data.conftest import TEXTS
from tests.issues import raises_issue

BYTES = [text.encode() for text in TEXTS]
ODD = ["  two spaces\n\n\ttab", "名前 🙂 é", "<s> </s> <|document|> <unk>", "a\r\nb\x00c"]


@pytest.fixture(scope="module")
def hub_folder(tmp_path_factory):
    """A tokenizer in the format of the Hugging Face hub."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = BpeTokenizer.train_from_texts(BYTES, 300).tokenizer
    folder = tmp_path_factory.mktemp("hub") / "own"
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|document|>").save_pretrained(folder)
    return folder


@pytest.fixture(params=["bytes", "bpe", "mistral", "hub"])
def tokenizer(request, tmp_path):
    """Each tokenizer, saved and loaded as in a worker process."""
    name = str(request.getfixturevalue("hub_folder")) if request.param == "hub" else request.param
    create_tokenizer(name, 300, iter(BYTES)).save(tmp_path)
    return load_tokenizer(name, tmp_path)


def test_decoding_restores_the_text_exactly(tokenizer):
    for text, ids in zip(ODD, tokenizer.encode([text.encode() for text in ODD]), strict=True):
        assert tokenizer.decode(ids.tolist()) == text
        assert ids.max() < tokenizer.vocabulary


def test_separator_name_in_a_text_is_encoded_as_text(tokenizer):
    assert all(tokenizer.separator not in ids for ids in tokenizer.encode([text.encode() for text in ODD]))


def test_separators_occur_exactly_at_document_starts(tokenizer):
    chunk = tokenize_documents(BYTES, tokenizer, 0.2, 0.2)
    for split, contents in chunk.stats.splits.items():
        tokens, starts = chunk.arrays[f"{split}.tokens"], chunk.arrays[f"{split}.starts"]
        assert contents.documents > 5 and tokens.dtype == token_dtype(tokenizer)
        assert np.array_equal(np.flatnonzero(tokens == tokenizer.separator), starts)


def test_separators_produced_inside_a_document_are_removed_and_counted(tokenizer):
    class SeparatorEmittingTokenizer(type(tokenizer)):
        def __init__(self):
            self.__dict__.update(tokenizer.__dict__)

        def encode(self, texts):
            return [np.array([7, self.separator, 8], dtype=np.uint32) for _ in texts]

    chunk = tokenize_documents([b"a", b"b"], SeparatorEmittingTokenizer(), 0, 0)
    assert chunk.arrays["train.tokens"].tolist() == [tokenizer.separator, 7, 8] * 2
    assert chunk.stats.skipped == {SEPARATOR_INSIDE: 2}


def test_mistral_has_32000_tokens_and_separator_1():
    tokenizer = create_tokenizer("mistral", 0, iter([]))
    assert (tokenizer.vocabulary, tokenizer.separator, token_dtype(tokenizer)) == (32_000, 1, "uint16")


def test_bpe_training_has_the_requested_vocabulary_and_is_deterministic(tmp_path):
    texts = [text for text in BYTES for _ in range(5)]
    first, second = (BpeTokenizer.train_from_texts(iter(texts), 320) for _ in range(2))
    assert first.vocabulary == 320 and first.tokenizer.to_str() == second.tokenizer.to_str()
    assert len(first.encode([BYTES[6]])[0]) < len(BYTES[6]) / 2
    with raises_issue("vocabulary", "below_minimum"):
        BpeTokenizer.train_from_texts(iter(texts), 256)


def test_large_vocabulary_uses_32_bit_tokens():
    class LargeTokenizer:
        vocabulary, separator = 100_000, 99_999

        def encode(self, texts):
            return [np.array([70_000], dtype=np.uint32) for _ in texts]

    assert tokenize_documents([b"a"], LargeTokenizer(), 0, 0).arrays["train.tokens"].tolist() == [99_999, 70_000]


@pytest.mark.parametrize("name", ["bpe", "mistral", "hub"])
def test_prepared_data_can_be_decoded_without_the_original_tokenizer(name, stories, hub_folder, tmp_path):
    tokenizer = shutil.copytree(hub_folder, tmp_path / "own") if name == "hub" else name
    request = PrepareRequest(source=str(stories), tokenizer=str(tokenizer), vocabulary=300, valid=0, test=0)
    prepare_data(request, tmp_path / "into", workers=1)
    shutil.rmtree(tmp_path / "own", ignore_errors=True)
    corpus = open_corpus(tmp_path / "into")
    assert corpus.decode(corpus.read_document("train")) == f"<|document|>{TEXTS[0]}"
    assert corpus.num_tokens("train") < corpus.num_bytes("train")


def test_error_for_an_unknown_tokenizer_lists_the_offline_ones(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with raises_issue("tokenizer", "tokenizer_not_found"):
        create_tokenizer("nobody/nothing", 0, iter([]))


def test_error_for_a_missing_package_names_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with raises_issue("tokenizer", "package_not_installed"):
        create_tokenizer("bpe", 300, iter(BYTES))
