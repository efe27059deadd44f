"""The folder itself: complete or absent, never over something else, and a sentence for each thing that is wrong."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import hqlt_lab as lab
from hqlt_lab.data.corpus import open_corpus
from hqlt_lab.errors import StoreError
from hqlt_lab.experiment.plan import key_of
from hqlt_lab.generation.text_model import text_model_in
from hqlt_lab.hugging_face.causal_lm import HqltForCausalLM
from hqlt_lab.train.load import cell_in


@pytest.fixture
def broken(exported, tmp_path):
    """A copy to be damaged."""
    return shutil.copytree(exported, tmp_path / "broken")


def changed(folder, change):
    told = json.loads((folder / "config.json").read_text())
    change(told)
    (folder / "config.json").write_text(json.dumps(told))


def test_an_export_speaks_as_the_cell_does(exported, text_cell):
    options = lab.Sampling(tokens=12, seed=2)
    assert [one.text for one in lab.generate(exported, ["the", ""], options)] == [
        one.text for one in lab.generate(text_cell, ["the", ""], options)
    ]
    assert text_model_in(exported).trained_length == 48 and text_model_in(exported).vocabulary == 257


def test_the_configuration_and_the_card_say_what_it_is(exported, text_cell):
    cell = cell_in(text_cell)
    told = json.loads((exported / "config.json").read_text())
    assert told["origin"] == {
        "version": lab.__version__, "key": key_of(cell), "data": open_corpus(cell.task["data"]).digest
    }  # fmt: skip
    assert told["bos_token_id"] == told["eos_token_id"] == 256 and told["max_position_embeddings"] == 48
    suppressed = json.loads((exported / "generation_config.json").read_text())["suppress_tokens"]
    assert suppressed == [*range(257, 264)]
    card = (exported / "README.md").read_text()
    assert key_of(cell) in card and "delayed_stream" in card and "test/bits_per_byte" in card
    assert str(text_cell.parent) not in card and "from_pretrained" in card


def test_an_older_export_makes_way_and_anything_else_stays(text_cell, tmp_path):
    place = tmp_path / "place"
    lab.export(text_cell, place)
    (place / "left_over").touch()
    lab.export(text_cell, place, "bfloat16")
    assert not (place / "left_over").exists() and [one.name for one in tmp_path.iterdir()] == ["place"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match="something that is no export, so it is not overwritten"):
        lab.export(text_cell, tmp_path / "mine")
    assert (tmp_path / "mine/thesis.tex").read_text() == "years of work"


def test_what_fails_on_the_way_leaves_nothing(text_cell, tmp_path):
    with pytest.raises(AttributeError):
        lab.export(text_cell, tmp_path / "place", "float33")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda told: told.pop("composition"), "does not say composition"),
        (lambda told: told.update(model_type="llama"), "this is no export"),
        (lambda told: told["composition"].update(mixer="dleta"), r"composition\.mixer.*no mixer is called 'dleta'"),
        (lambda told: told["composition"].update(depth=3), r"composition\.depth: there is no such setting"),
        (lambda told: told["composition"].update(width=32), r"is \[16\] instead of \[32\]"),
        (lambda told: told["composition"].update(layers=4), "blocks.2.* is missing"),
        (lambda told: told["composition"].update(layers=1), "blocks.1.* belongs to nothing"),
        (lambda told: told.update(encoder="bpe"), "the tokenizer 'bpe' cannot be read"),
    ],
)
def test_a_configuration_that_does_not_fit_is_told(change, sentence, broken):
    changed(broken, change)
    with pytest.raises(StoreError, match=sentence):
        lab.load_export(broken)


def test_weights_that_are_cut_off_missing_or_pickled_are_told(broken):
    whole = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="it is damaged"):
        lab.load_export(broken)
    (broken / "model.safetensors").unlink()
    torch.save({}, broken / "pytorch_model.bin")
    with pytest.raises(StoreError, match=r"no model\.safetensors\. There is pytorch_model\.bin, which may run code"):
        lab.load_export(broken)


def test_a_weight_that_is_missing_is_an_error_of_theirs_too(broken):
    weights = load_file(broken / "model.safetensors")
    name = sorted(weights)[0]
    save_file({key: value for key, value in weights.items() if key != name}, broken / "model.safetensors")
    with pytest.raises(StoreError, match=f"missing: {name}"):
        HqltForCausalLM.from_pretrained(broken)
    with pytest.raises(StoreError, match="is missing"):
        lab.load_export(broken)
