"""Load our own model and tokenizer from an export folder, with an error message for each kind of damage."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from hqlt_lab.data.tokenizers._base import import_optional
from hqlt_lab.data.tokenizers.load_tokenizer import Tokenizer, load_tokenizer
from hqlt_lab.errors import HqltError, StoreError, format_names, list_issues
from hqlt_lab.hugging_face.export_layout import CONFIG_FILE, ENCODER_FOLDER, WEIGHTS_FILE, read_config
from hqlt_lab.model.config import model_config
from hqlt_lab.model.initialize import SkipInit
from hqlt_lab.model.sequence_model import SequenceModel

WEIGHT_PREFIX = "model."  # of our parameter names inside HqltForCausalLM
HEAD_WEIGHT, EMBED_WEIGHT = "head.weight", "embed.weight"


class ExportedModel(NamedTuple):
    """A language model with its tokenizer, loaded from an export or from a trained cell."""

    model: SequenceModel
    tokenizer: Tokenizer
    trained_length: int  # tokens per training sequence


def load_export(folder: Path) -> ExportedModel:
    """Load model and tokenizer of an export, with the dtype in which its weights are stored."""
    export_config = read_config(folder)
    try:
        config = model_config(export_config["composition"])
    except HqltError as error:
        issues = [replace(issue.under("composition"), source=str(folder / CONFIG_FILE)) for issue in list_issues(error)]
        lines = "\n".join(map(str, issues))
        raise StoreError(f"{lines}\nLoad your own components with --with or lab.load_components.") from error
    weights = load_weights(folder)
    if config.tie_embeddings and EMBED_WEIGHT in weights:
        weights.setdefault(HEAD_WEIGHT, weights[EMBED_WEIGHT])
    with torch.device("meta"), SkipInit():
        model = SequenceModel(config)
    check_weights(folder, model, weights)
    model.load_state_dict(weights, assign=True)
    if config.tie_embeddings:
        assert model.head is not None and model.embed is not None
        model.head.weight = model.embed.weight
    tokenizer = load_export_tokenizer(folder, export_config["encoder"])
    return ExportedModel(model.eval(), tokenizer, export_config["max_position_embeddings"])


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Load the weights of an export, by their parameter names in our model."""
    library = import_optional("safetensors", "safetensors", "export")
    try:
        weights = import_optional("safetensors.torch", "safetensors", "export").load_file(folder / WEIGHTS_FILE)
    except library.SafetensorError as error:
        raise StoreError(f"{folder / WEIGHTS_FILE}: the file is damaged ({error}). Export the model again.") from error
    return {name.removeprefix(WEIGHT_PREFIX): weight for name, weight in weights.items()}


def check_weights(folder: Path, model: SequenceModel, weights: dict[str, Tensor]) -> None:
    """Raise a StoreError if the names or shapes of the weights do not fit the model."""
    shapes = {name: list(weight.shape) for name, weight in model.state_dict().items()}
    errors = [f"{name} is missing" for name in shapes if name not in weights]
    errors += [f"{name} is unknown" for name in weights if name not in shapes]
    errors += [
        f"{name} is {list(weights[name].shape)} instead of {shape}"
        for name, shape in shapes.items()
        if name in weights and list(weights[name].shape) != shape
    ]
    if errors:
        raise StoreError(
            f"{folder / WEIGHTS_FILE}: the weights do not match {CONFIG_FILE}: {format_names(errors[:5])}."
        )


def load_export_tokenizer(folder: Path, name: str) -> Tokenizer:
    """Load the tokenizer of an export from our own format."""
    try:
        return load_tokenizer(name, folder / ENCODER_FOLDER)
    except HqltError:
        raise
    except Exception as error:  # each tokenizer library has its own exceptions
        raise StoreError(
            f"{folder / ENCODER_FOLDER}: the tokenizer {name!r} cannot be read ({type(error).__name__}). "
            "Export it again."
        ) from error
