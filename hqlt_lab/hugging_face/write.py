"""A trained cell to a folder that transformers reads: complete, or not there at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

import hqlt_lab
from hqlt_lab.data.encoders._base import needed
from hqlt_lab.errors import StoreError
from hqlt_lab.experiment.plan import key_of
from hqlt_lab.files import flush
from hqlt_lab.hugging_face.folder import CONFIG, ENCODER, WEIGHTS, is_export
from hqlt_lab.hugging_face.tokenizer import write_tokenizer
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.train.load import cell_in, load_language
from hqlt_lab.train.outcome import read_outcome

Dtype = Literal["float32", "bfloat16", "float16"]


class Written(NamedTuple):
    """What came of an export."""

    folder: Path
    notes: list[str]  # what its user should know


def export_cell(cell: Path, folder: Path, dtype: Dtype = "float32") -> Written:
    """The language model of a cell's folder, with its tokenizer and a page about it."""
    check_place(folder)
    model, task = load_language(cell)
    needed("transformers", "transformers", "export")
    from hqlt_lab.hugging_face.card import card
    from hqlt_lab.hugging_face.config import config_of

    index = task.corpus.index
    config = config_of(
        model.config,
        index.separator,
        encoder=index.tokenizer,
        encoder_vocabulary=index.vocabulary,
        max_position_embeddings=task.length,
        origin={"version": hqlt_lab.__version__, "key": key_of(cell_in(cell)), "data": index.digest},
    )
    with appearing(folder) as making:
        write_model(model.to(getattr(torch, dtype)), config, making)
        notes = write_tokenizer(task.corpus, making)
        (making / ENCODER).mkdir()
        task.corpus.encoder.save(making / ENCODER)
        (making / "README.md").write_text(card(folder.name, config, index, read_outcome(cell), notes))
    return Written(folder, notes)


def write_model(model: SequenceModel, config: Any, folder: Path) -> None:
    """Configuration and weights, by transformers itself."""
    from transformers import GenerationConfig
    from transformers.utils import logging

    from hqlt_lab.hugging_face.causal_lm import HqltForCausalLM

    theirs = HqltForCausalLM(config)
    theirs.model = model
    # tokens that only fill up the vocabulary mean nothing
    unused = list(range(config.encoder_vocabulary, config.vocab_size))
    ends = {name: config.bos_token_id for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    theirs.generation_config = GenerationConfig(**ends, suppress_tokens=unused or None)
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    theirs.save_pretrained(folder, max_shard_size="1000TB")  # one file, however large
    if shown:
        logging.enable_progress_bar()
    # safetensors writes for its owner alone, and a folder is there to be handed on
    (folder / WEIGHTS).chmod((folder / CONFIG).stat().st_mode)


def check_place(folder: Path) -> None:
    """A sentence unless an export may be put here."""
    if folder.exists() and not is_export(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise StoreError(f"{folder}: there is something that is no export, so it is not overwritten. Use another name.")


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """A folder to write into, which gets its name when all is in it; an older export makes way then."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    making, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{what}") for what in ("writing", "old"))
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir()
    try:
        yield making
        for file in making.rglob("*"):
            flush(file)
        if folder.exists():
            os.rename(folder, old)
        os.rename(making, folder)
        flush(folder.parent)
    finally:
        shutil.rmtree(making, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
