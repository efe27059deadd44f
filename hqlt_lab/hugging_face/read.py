"""An export as our model again, and a sentence for whatever is wrong with the folder."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from hqlt_lab.data.encoders._base import needed
from hqlt_lab.data.encoders.choose import Encoder, load_encoder
from hqlt_lab.errors import HqltError, StoreError, listed
from hqlt_lab.hugging_face.folder import CONFIG, ENCODER, WEIGHTS, read_config
from hqlt_lab.model.config import model_config
from hqlt_lab.model.initialise import Undrawn
from hqlt_lab.model.sequence_model import SequenceModel

PREFIX = "model."  # of our weights inside the class of transformers
HEAD, EMBED = "head.weight", "embed.weight"


class Exported(NamedTuple):
    """A language model with what it was trained on."""

    model: SequenceModel
    encoder: Encoder
    trained_length: int  # tokens of a training row


def load_export(folder: Path) -> Exported:
    """Model and tokenizer of an export, in the precision that it has."""
    told = read_config(folder)
    try:
        config = model_config(told["composition"])
    except HqltError as error:
        lines = "\n".join(f"{folder / CONFIG}: composition.{line}" for line in str(error).splitlines())
        raise StoreError(f"{lines}\nIf a part is your own, register its file with --with or lab.include.") from error
    weights = weights_in(folder)
    if config.tie_embeddings and EMBED in weights:
        weights.setdefault(HEAD, weights[EMBED])
    with torch.device("meta"), Undrawn():
        model = SequenceModel(config)
    check_weights(folder, model, weights)
    model.load_state_dict(weights, assign=True)
    if config.tie_embeddings:
        assert model.head is not None and model.embed is not None
        model.head.weight = model.embed.weight
    return Exported(model.eval(), encoder_in(folder, told["encoder"]), told["max_position_embeddings"])


def weights_in(folder: Path) -> dict[str, Tensor]:
    """By their names in our model."""
    library = needed("safetensors", "safetensors", "export")
    try:
        found = needed("safetensors.torch", "safetensors", "export").load_file(folder / WEIGHTS)
    except library.SafetensorError as error:
        raise StoreError(f"{folder / WEIGHTS}: it is damaged ({error}). Export the model again.") from error
    return {name.removeprefix(PREFIX): weight for name, weight in found.items()}


def check_weights(folder: Path, model: SequenceModel, weights: dict[str, Tensor]) -> None:
    """Sentences unless these are the weights of this model."""
    shapes = {name: list(weight.shape) for name, weight in model.state_dict().items()}
    wrong = [f"{name} is missing" for name in shapes if name not in weights]
    wrong += [f"{name} belongs to nothing" for name in weights if name not in shapes]
    wrong += [
        f"{name} is {list(weights[name].shape)} instead of {shape}"
        for name, shape in shapes.items()
        if name in weights and list(weights[name].shape) != shape
    ]
    if wrong:
        raise StoreError(f"{folder / WEIGHTS}: these are not the weights of {CONFIG}: {listed(wrong[:5])}.")


def encoder_in(folder: Path, name: str) -> Encoder:
    """The tokenizer as the lab keeps it."""
    try:
        return load_encoder(name, folder / ENCODER)
    except HqltError:
        raise
    except Exception as error:  # each library has exceptions of its own
        raise StoreError(
            f"{folder / ENCODER}: the tokenizer {name!r} cannot be read ({type(error).__name__}). Export it again."
        ) from error
