"""Converted tokenizers give exactly the token ids of ours."""

import json

import pytest

from hqlt_lab.data.corpus_reader import open_corpus
from hqlt_lab.data.prepare import prepare_data
from hqlt_lab.data.prepare_options import PrepareRequest
from hqlt_lab.data.tokenizers.bpe import BpeTokenizer
from hqlt_lab.hugging_face.tokenizer_conversion import (
    EDGE_CASE_STRINGS,
    convert_tokenizer,
    find_first_difference,
    write_tokenizer,
)

TEXTS = ["The key 🗝️ opens the door — né?", "漢字 and\n\n\ttabs  and spaces ", "naïve café", "don't 123"] * 4


@pytest.fixture(scope="module", params=["bytes", "bpe", "mistral", pytest.param("hub", marks=pytest.mark.slow)])
def corpus(request, tmp_path_factory):
    from transformers import PreTrainedTokenizerFast

    folder, name = tmp_path_factory.mktemp("data"), request.param
    (folder / "source.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    if name == "hub":
        tokenizer = BpeTokenizer.train_from_texts([text.encode() for text in TEXTS], 280).tokenizer
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|document|>").save_pretrained(folder / "own")
        name = str(folder / "own")
    prepare_request = PrepareRequest(
        source=str(folder / "source.jsonl"), tokenizer=name, vocabulary=300, valid=0, test=0
    )
    prepare_data(prepare_request, folder / "text", workers=1)
    return open_corpus(folder / "text")


def test_written_tokenizer_gives_our_tokens_and_begins_with_the_separator(corpus, tmp_path):
    from transformers import AutoTokenizer

    notes = write_tokenizer(corpus, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    for text in (*TEXTS, *EDGE_CASE_STRINGS):
        tokens = [int(token) for token in corpus.tokenizer.encode([text.encode()])[0]]
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == tokens
        assert tokenizer.decode(tokens) == corpus.tokenizer.decode(tokens) or not tokens
    begins_with_separator = tokenizer("a")["input_ids"][0] == corpus.index.separator
    assert begins_with_separator or "put token" in notes[0]


def test_tokenizer_that_differs_is_detected():
    import transformers

    first, second = (BpeTokenizer.train_from_texts([text.encode() for text in TEXTS], size) for size in (280, 281))
    converted = convert_tokenizer(second, transformers)
    assert find_first_difference(second, converted, TEXTS) is None
    assert find_first_difference(first, converted, TEXTS) in TEXTS
