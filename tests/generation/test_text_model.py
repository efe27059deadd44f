"""Loading a trained cell as a text model."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.data.corpus_reader import open_corpus
from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import cell_from_dict
from hqlt_lab.generation.text_model import load_text_model
from hqlt_lab.rundir.cell_file import read_cell, write_cell
from tests.generation.text_models import untrained_text_model
from tests.issues import raises_issue


def test_text_model_has_the_trained_weights_and_the_tokenizer_of_the_data(text_cell):
    text_model, loaded = load_text_model(text_cell), lab.load(text_cell)
    corpus = open_corpus(read_cell(text_cell).task["data"])
    tokens = torch.from_numpy(corpus.read_document("test")[None])
    expected, _ = loaded.model(tokens)
    assert torch.equal(text_model.model(tokens.to(text_model.device))[0].cpu(), expected)
    assert text_model.trained_length == 48 and text_model.separator == corpus.index.separator == tokens[0, 0]
    assert text_model.encode(text_model.decode(tokens[0])) == tokens[0, 1:].tolist()
    assert not text_model.model.training
    assert not any(parameter.requires_grad for parameter in text_model.model.parameters())


def test_padding_tokens_of_the_vocabulary_are_not_decoded(text_cell):
    text_model = load_text_model(text_cell)
    assert text_model.vocabulary == 257 and text_model.model.config.vocabulary == 264
    assert text_model.decode([72, 263, text_model.separator, 105]) == "Hi"


def test_cell_of_another_task_is_an_error(text_cell, tmp_path):
    settings = read_cell(text_cell).to_dict() | {"task": {"name": "parity"}}
    write_cell(tmp_path, cell_from_dict(settings))
    with pytest.raises(TrainingError, match=r"was trained on 'parity'\. A cell trained on 'langu"):
        load_text_model(tmp_path)


def test_lone_surrogate_is_an_error():
    with raises_issue("prompts", "prompt_not_utf8"):
        untrained_text_model().encode("\udc80")
