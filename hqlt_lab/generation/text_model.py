"""A language model with its tokenizer and the separator token that begins each document.

model = load_text_model(folder)          folder of a trained language-model cell or of an export
tokens = [model.separator, *model.encode("Once upon")]
logits, state = model.model(torch.tensor([tokens], device=model.device))
logits[..., : model.vocabulary]          the model's vocabulary may be padded beyond that of the tokenizer
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from hqlt_lab.data.tokenizers.load_tokenizer import Tokenizer
from hqlt_lab.errors import ConfigError
from hqlt_lab.hugging_face.export_layout import is_export
from hqlt_lab.hugging_face.export_reader import ExportedModel, load_export
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.train.load_trained_model import load_language_model


@dataclass(frozen=True, kw_only=True)
class TextModel:
    """A trained language model with its tokenizer."""

    model: SequenceModel  # in eval mode, without gradients
    tokenizer: Tokenizer
    separator: int  # token at the beginning of each document, which therefore also ends the previous one
    vocabulary: int  # size of the tokenizer's vocabulary; the model's may be larger
    trained_length: int  # tokens per training sequence
    name: str  # name of its folder, for messages
    device: torch.device

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text without the separator; the names of special tokens are encoded as text."""
        try:
            return [int(token) for token in self.tokenizer.encode([text.encode()])[0]]
        except UnicodeEncodeError as error:
            message = f"{text!r} cannot be encoded as UTF-8 ({error.reason})."
            raise ConfigError.at("prompts", "prompt_not_utf8", message) from error

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens, without separators and tokens that are not in the tokenizer."""
        return self.tokenizer.decode(
            [token for token in map(int, tokens) if token < self.vocabulary and token != self.separator]
        )


def load_text_model(folder: Path | str, device: str | torch.device | None = None) -> TextModel:
    """Load a language model from the folder of a cell or of an export; by default onto the GPU if there is one."""
    folder = Path(folder)
    model, tokenizer, trained_length = load_export(folder) if is_export(folder) else load_trained_cell(folder)
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return TextModel(
        model=model.to(device).requires_grad_(False),
        tokenizer=tokenizer,
        separator=tokenizer.separator,
        vocabulary=tokenizer.vocabulary,
        trained_length=trained_length,
        name=folder.name,
        device=device,
    )


def load_trained_cell(folder: Path) -> ExportedModel:
    """Load model, tokenizer and training length of a cell, in the same form as from an export."""
    model, task = load_language_model(folder)
    return ExportedModel(model, task.corpus.tokenizer, task.length)
