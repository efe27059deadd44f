"""Trained language models: let them speak, hand them on."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.api.tracked import RUNS
from hqlt_lab.api.trained import folder_of
from hqlt_lab.hugging_face.folder import is_export

if TYPE_CHECKING:
    from hqlt_lab.generation.decoding import Piece
    from hqlt_lab.generation.generate import Generated
    from hqlt_lab.generation.prompts import Prompts
    from hqlt_lab.generation.sampling import Sampling
    from hqlt_lab.generation.text_model import TextModel
    from hqlt_lab.hugging_face.read import Exported
    from hqlt_lab.hugging_face.write import Dtype, Written


def text_model(target: str | Path, runs: str | Path = RUNS) -> "TextModel":
    """A trained language model: a cell by its folder, key or MLflow run, or the folder of an export."""
    from hqlt_lab.generation.text_model import text_model_in

    return text_model_in(Path(target) if is_export(target) else folder_of(target, runs))


def generate(
    target: "str | Path | TextModel",
    prompts: "Prompts",
    options: "Sampling | None" = None,
    told: "Callable[[Piece], None] | None" = None,
    runs: str | Path = RUNS,
) -> "list[Generated]":
    """The text that follows each prompt; `told` hears it piece by piece, as it comes."""
    from hqlt_lab.generation.generate import generate

    return generate(text_model(target, runs) if isinstance(target, str | Path) else target, prompts, options, told)


def export(target: str | Path, folder: str | Path, dtype: "Dtype" = "float32", runs: str | Path = RUNS) -> "Written":
    """Write a trained language model as a folder that Hugging Face's transformers reads."""
    from hqlt_lab.hugging_face.write import export_cell

    return export_cell(folder_of(target, runs), Path(folder), dtype)


def load_export(folder: str | Path) -> "Exported":
    """The way back: our model, its tokenizer, and the tokens of a training row."""
    from hqlt_lab.hugging_face.read import load_export

    return load_export(Path(folder))
