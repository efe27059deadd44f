"""Tokenizers of transformers that give our tokens, number by number."""

import json

import pytest

from hqlt_lab.data.corpus import open_corpus
from hqlt_lab.data.encoders.bpe import Bpe
from hqlt_lab.data.prepare import prepare
from hqlt_lab.data.request import Request
from hqlt_lab.hugging_face.tokenizer import TRICKY, first_difference, theirs, write_tokenizer

TEXTS = ["The key 🗝️ opens the door — né?", "漢字 and\n\n\ttabs  and spaces ", "naïve café", "don't 123"] * 4


@pytest.fixture(scope="module", params=["bytes", "bpe", "mistral", pytest.param("hub", marks=pytest.mark.slow)])
def corpus(request, tmp_path_factory):
    from transformers import PreTrainedTokenizerFast

    folder, name = tmp_path_factory.mktemp("data"), request.param
    (folder / "source.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    if name == "hub":
        own = Bpe.learn([text.encode() for text in TEXTS], 280).tokenizer
        PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<|document|>").save_pretrained(folder / "own")
        name = str(folder / "own")
    asked = Request(source=str(folder / "source.jsonl"), tokenizer=name, vocabulary=300, valid=0, test=0)
    prepare(asked, folder / "text", workers=1)
    return open_corpus(folder / "text")


def test_what_is_written_gives_our_tokens_and_begins_with_the_separator(corpus, tmp_path):
    from transformers import AutoTokenizer

    notes = write_tokenizer(corpus, tmp_path)
    read = AutoTokenizer.from_pretrained(tmp_path)
    for text in (*TEXTS, *TRICKY):
        tokens = [int(token) for token in corpus.encoder.encode([text.encode()])[0]]
        assert read(text, add_special_tokens=False)["input_ids"] == tokens
        assert read.decode(tokens) == corpus.encoder.decode(tokens) or not tokens
    begins = read("a")["input_ids"][0] == corpus.index.separator
    assert begins or "put token" in notes[0]


def test_a_tokenizer_that_differs_is_noticed():
    import transformers

    ours, other = (Bpe.learn([text.encode() for text in TEXTS], size) for size in (280, 281))
    made = theirs(other, transformers)
    assert first_difference(other, made, TEXTS) is None
    assert first_difference(ours, made, TEXTS) in TEXTS
