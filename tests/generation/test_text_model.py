"""A trained cell as something that reads and writes text."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.data.corpus import open_corpus
from hqlt_lab.errors import ConfigError, TrainingError
from hqlt_lab.experiment.cell import cell_from
from hqlt_lab.generation.text_model import text_model_in
from hqlt_lab.train.claim import claim
from hqlt_lab.train.load import cell_in
from tests.generation.speakers import untrained


def test_it_is_the_model_that_was_trained_with_the_tokenizer_of_its_data(text_cell):
    found, loaded = text_model_in(text_cell), lab.load(text_cell)
    corpus = open_corpus(cell_in(text_cell).task["data"])
    tokens = torch.from_numpy(corpus.document("test")[None])
    expected, _ = loaded.model(tokens)
    assert torch.equal(found.model(tokens.to(found.device))[0].cpu(), expected)
    assert found.trained_length == 48 and found.separator == corpus.index.separator == tokens[0, 0]
    assert found.encode(found.decode(tokens[0])) == tokens[0, 1:].tolist()
    assert not found.model.training and not any(one.requires_grad for one in found.model.parameters())


def test_tokens_that_only_fill_up_the_vocabulary_are_known_as_such(text_cell):
    found = text_model_in(text_cell)
    assert found.vocabulary == 257 and found.model.config.vocabulary == 264
    assert found.decode([72, 263, found.separator, 105]) == "Hi"


def test_a_cell_of_another_task_is_told_in_a_sentence(text_cell, tmp_path):
    told = cell_in(text_cell).as_dict() | {"task": {"name": "parity"}}
    claim(tmp_path, cell_from(told))
    with pytest.raises(TrainingError, match=r"has learned 'parity', which is no text\. A cell whose task is 'langu"):
        text_model_in(tmp_path)


def test_half_a_surrogate_is_told_in_a_sentence():
    with pytest.raises(ConfigError, match="no text that UTF-8 could write down"):
        untrained().encode("\udc80")
