"""Export folder: written completely or not at all, never over other files, with an error for each kind of damage."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import hqlt_lab as lab
from hqlt_lab.data.corpus_reader import open_corpus
from hqlt_lab.errors import StoreError
from hqlt_lab.experiment.cell_key import cell_key
from hqlt_lab.generation.text_model import load_text_model
from hqlt_lab.hugging_face.modeling_hqlt import HqltForCausalLM
from hqlt_lab.rundir.cell_file import read_cell


@pytest.fixture
def copied_export(export_folder, tmp_path):
    """A copy of the export that a test may damage."""
    return shutil.copytree(export_folder, tmp_path / "copy")


def edit_config(folder, change):
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def test_export_generates_the_same_text_as_its_cell(export_folder, text_cell):
    options = lab.Sampling(tokens=12, seed=2)
    texts, expected = (
        [result.text for result in lab.generate(folder, ["the", ""], options)] for folder in (export_folder, text_cell)
    )
    assert texts == expected
    text_model = load_text_model(export_folder)
    assert text_model.trained_length == 48 and text_model.vocabulary == 257


def test_config_and_model_card_describe_the_model(export_folder, text_cell):
    cell = read_cell(text_cell)
    config = json.loads((export_folder / "config.json").read_text())
    assert config["origin"] == {
        "version": lab.__version__, "key": cell_key(cell), "data": open_corpus(cell.task["data"]).digest
    }  # fmt: skip
    assert config["bos_token_id"] == config["eos_token_id"] == 256 and config["max_position_embeddings"] == 48
    suppressed = json.loads((export_folder / "generation_config.json").read_text())["suppress_tokens"]
    assert suppressed == [*range(257, 264)]
    card = (export_folder / "README.md").read_text()
    assert cell_key(cell) in card and "delayed_stream" in card and "test/bits_per_byte" in card
    assert str(text_cell.parent) not in card and "from_pretrained" in card


def test_older_export_is_replaced_and_other_folders_are_not(text_cell, tmp_path):
    folder = tmp_path / "export"
    lab.export(text_cell, folder)
    (folder / "left_over").touch()
    lab.export(text_cell, folder, "bfloat16")
    assert not (folder / "left_over").exists() and [path.name for path in tmp_path.iterdir()] == ["export"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match="already exists and is not an export, so it is not overwritten"):
        lab.export(text_cell, tmp_path / "mine")
    assert (tmp_path / "mine/thesis.tex").read_text() == "years of work"


def test_failed_export_leaves_no_files(text_cell, tmp_path):
    with pytest.raises(AttributeError):
        lab.export(text_cell, tmp_path / "export", "float33")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: config.pop("composition"), "keys are missing: composition"),
        (lambda config: config.update(model_type="llama"), "not an export of hqlt_lab"),
        (lambda config: config["composition"].update(mixer="dleta"), r"composition\.mixer: "),
        (lambda config: config["composition"].update(depth=3), r"composition\.depth: "),
        (lambda config: config["composition"].update(width=32), r"is \[16\] instead of \[32\]"),
        (lambda config: config["composition"].update(layers=4), "blocks.2.* is missing"),
        (lambda config: config["composition"].update(layers=1), "blocks.1.* is unknown"),
        (lambda config: config.update(encoder="bpe"), "the tokenizer 'bpe' cannot be read"),
    ],
)
def test_config_that_does_not_fit_the_weights_is_an_error(change, message, copied_export):
    edit_config(copied_export, change)
    with pytest.raises(StoreError, match=message):
        lab.load_export(copied_export)


def test_truncated_missing_or_pickled_weights_are_an_error(copied_export):
    content = (copied_export / "model.safetensors").read_bytes()
    (copied_export / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(StoreError, match="the file is damaged"):
        lab.load_export(copied_export)
    (copied_export / "model.safetensors").unlink()
    torch.save({}, copied_export / "pytorch_model.bin")
    with pytest.raises(
        StoreError, match=("no model\\.safetensors\\. pytorch_model\\.bin is not read, because a pickle can run code")
    ):
        lab.load_export(copied_export)


def test_missing_weight_is_an_error_in_transformers_too(copied_export):
    weights = load_file(copied_export / "model.safetensors")
    name = sorted(weights)[0]
    save_file({key: value for key, value in weights.items() if key != name}, copied_export / "model.safetensors")
    with pytest.raises(StoreError, match=f"missing: {name}"):
        HqltForCausalLM.from_pretrained(copied_export)
    with pytest.raises(StoreError, match="is missing"):
        lab.load_export(copied_export)
