"""Write a trained cell to a folder that transformers reads; the folder appears complete or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

import hqlt_lab
from hqlt_lab.data.tokenizers._base import import_optional
from hqlt_lab.errors import StoreError, TrainingError
from hqlt_lab.experiment.cell_key import cell_key
from hqlt_lab.files import fsync_path
from hqlt_lab.hugging_face.export_layout import CONFIG_FILE, ENCODER_FOLDER, WEIGHTS_FILE, is_export
from hqlt_lab.hugging_face.tokenizer_conversion import write_tokenizer
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.rundir.cell_file import read_cell
from hqlt_lab.rundir.outcome import read_outcome
from hqlt_lab.train.load_trained_model import load_language_model

Dtype = Literal["float32", "bfloat16", "float16"]


class ExportResult(NamedTuple):
    """Result of an export."""

    folder: Path
    notes: list[str]  # limitations that users of the export should know


def export_cell(cell_folder: Path, folder: Path, dtype: Dtype = "float32") -> ExportResult:
    """Export the language model of a cell with its tokenizer and a model card."""
    check_destination(folder)
    model, task = load_language_model(cell_folder)
    if silent := sorted({name for memory in model.memories for name in memory.silent}):
        raise TrainingError(
            f"{cell_folder}: the weights are from before train.memories.{silent[0]}.start_step, and an exported model "
            "cannot leave out a memory. Train the cell for more steps."
        )
    import_optional("transformers", "transformers", "export")
    from hqlt_lab.hugging_face.configuration_hqlt import make_hqlt_config
    from hqlt_lab.hugging_face.model_card import make_model_card

    index = task.corpus.index
    config = make_hqlt_config(
        model.config,
        index.separator,
        encoder=index.tokenizer,
        encoder_vocabulary=index.vocabulary,
        max_position_embeddings=task.length,
        origin={"version": hqlt_lab.__version__, "key": cell_key(read_cell(cell_folder)), "data": index.digest},
    )
    with write_folder_atomically(folder) as temp_folder:
        write_model(model.to(getattr(torch, dtype)), config, temp_folder)
        notes = write_tokenizer(task.corpus, temp_folder)
        (temp_folder / ENCODER_FOLDER).mkdir()
        task.corpus.tokenizer.save(temp_folder / ENCODER_FOLDER)
        model_card = make_model_card(folder.name, config, index, read_outcome(cell_folder), notes)
        (temp_folder / "README.md").write_text(model_card)
    return ExportResult(folder, notes)


def write_model(model: SequenceModel, config: Any, folder: Path) -> None:
    """Write configuration and weights with transformers' `save_pretrained`."""
    from transformers import GenerationConfig
    from transformers.utils import logging

    from hqlt_lab.hugging_face.modeling_hqlt import HqltForCausalLM

    hf_model = HqltForCausalLM(config)
    hf_model.model = model
    # padding tokens of the vocabulary must not be generated
    padding_tokens = list(range(config.encoder_vocabulary, config.vocab_size))
    special_tokens = {name: config.bos_token_id for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    hf_model.generation_config = GenerationConfig(**special_tokens, suppress_tokens=padding_tokens or None)
    had_progress_bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    hf_model.save_pretrained(folder, max_shard_size="1000TB")  # always a single file
    if had_progress_bar:
        logging.enable_progress_bar()
    # safetensors makes the file readable for its owner only, but an export is meant to be shared
    (folder / WEIGHTS_FILE).chmod((folder / CONFIG_FILE).stat().st_mode)


def check_destination(folder: Path) -> None:
    """Raise a StoreError if writing here would overwrite anything but an older export."""
    if folder.exists() and not is_export(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise StoreError(
            f"{folder}: the folder already exists and is not an export, so it is not overwritten. Use another name."
        )


@contextmanager
def write_folder_atomically(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed at the end, replacing an older export."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temp_folder, replaced_folder = (
        folder.with_name(f".{folder.name}.{os.getpid()}.{suffix}") for suffix in ("writing", "old")
    )
    shutil.rmtree(temp_folder, ignore_errors=True)
    temp_folder.mkdir()
    try:
        yield temp_folder
        for file in temp_folder.rglob("*"):
            fsync_path(file)
        if folder.exists():
            os.rename(folder, replaced_folder)
        os.rename(temp_folder, folder)
        fsync_path(folder.parent)
    finally:
        shutil.rmtree(temp_folder, ignore_errors=True)
        shutil.rmtree(replaced_folder, ignore_errors=True)
