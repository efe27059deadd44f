"""A model that reads and writes text: weights, tokenizer, and the token that stands before each document.

model = text_model_in(folder)            of a cell that was trained on a text, or of an export
tokens = [model.separator, *model.encode("Once upon")]
logits, state = model.model(torch.tensor([tokens], device=model.device))
logits[..., : model.vocabulary]          the model may have more tokens than the tokenizer; those mean nothing
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from hqlt_lab.data.encoders.choose import Encoder
from hqlt_lab.errors import ConfigError
from hqlt_lab.hugging_face.folder import is_export
from hqlt_lab.hugging_face.read import Exported, load_export
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.train.load import load_language


@dataclass(frozen=True, kw_only=True)
class TextModel:
    """A trained model with all that is needed to speak to it."""

    model: SequenceModel  # in eval mode, without gradients
    encoder: Encoder
    separator: int  # the token before each document, which therefore also ends the one before it
    vocabulary: int  # tokens that the tokenizer has; the model's own vocabulary may be larger
    trained_length: int  # tokens of a training row
    name: str  # of its folder, for people
    device: torch.device

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without the separator; what looks like a special token is text."""
        try:
            return [int(token) for token in self.encoder.encode([text.encode()])[0]]
        except UnicodeEncodeError as error:
            raise ConfigError(f"{text!r}: this is no text that UTF-8 could write down ({error.reason}).") from error

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of some tokens; separators, and tokens that the tokenizer does not have, are left out."""
        return self.encoder.decode(
            [token for token in map(int, tokens) if token < self.vocabulary and token != self.separator]
        )


def text_model_in(folder: Path | str, device: str | torch.device | None = None) -> TextModel:
    """The language model of a cell's folder, or of an export's; without a device, on the GPU if there is one."""
    folder = Path(folder)
    model, encoder, trained_length = load_export(folder) if is_export(folder) else trained_in(folder)
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return TextModel(
        model=model.to(device).requires_grad_(False),
        encoder=encoder,
        separator=encoder.separator,
        vocabulary=encoder.vocabulary,
        trained_length=trained_length,
        name=folder.name,
        device=device,
    )


def trained_in(folder: Path) -> Exported:
    """What an export of this cell would hold."""
    model, task = load_language(folder)
    return Exported(model, task.corpus.encoder, task.length)
