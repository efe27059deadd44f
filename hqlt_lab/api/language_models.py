"""Generate text with trained language models, and export them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.api.tracking import DEFAULT_RUNS
from hqlt_lab.api.trained_cells import find_cell_folder
from hqlt_lab.hugging_face.export_layout import is_export

if TYPE_CHECKING:
    from hqlt_lab.generation.batch_decoder import TextChunk
    from hqlt_lab.generation.prefill_decode import Prompts
    from hqlt_lab.generation.sampling_options import Sampling
    from hqlt_lab.generation.text_generation import GeneratedText
    from hqlt_lab.generation.text_model import TextModel
    from hqlt_lab.hugging_face.export_reader import ExportedModel
    from hqlt_lab.hugging_face.export_writer import Dtype, ExportResult


def load_text_model(target: str | Path, runs: str | Path = DEFAULT_RUNS) -> "TextModel":
    """Load a trained language model: a cell by its folder, key or MLflow run, or an export by its folder."""
    from hqlt_lab.generation.text_model import load_text_model

    return load_text_model(Path(target) if is_export(target) else find_cell_folder(target, runs))


def generate(
    target: "str | Path | TextModel",
    prompts: "Prompts",
    options: "Sampling | None" = None,
    on_chunk: "Callable[[TextChunk], None] | None" = None,
    runs: str | Path = DEFAULT_RUNS,
) -> "list[GeneratedText]":
    """Return the continuation of each prompt; `on_chunk` is called with each piece of text as it is generated."""
    from hqlt_lab.generation.text_generation import generate

    model = load_text_model(target, runs) if isinstance(target, str | Path) else target
    return generate(model, prompts, options, on_chunk)


def export(
    target: str | Path, folder: str | Path, dtype: "Dtype" = "float32", runs: str | Path = DEFAULT_RUNS
) -> "ExportResult":
    """Write a trained language model to a folder that Hugging Face's transformers can load."""
    from hqlt_lab.hugging_face.export_writer import export_cell

    return export_cell(find_cell_folder(target, runs), Path(folder), dtype)


def load_export(folder: str | Path) -> "ExportedModel":
    """Load an exported model: the model, its tokenizer, and its training length in tokens."""
    from hqlt_lab.hugging_face.export_reader import load_export

    return load_export(Path(folder))
