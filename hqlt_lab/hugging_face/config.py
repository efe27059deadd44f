"""The composition in the words of transformers: theirs for what every model has, ours for the parts."""

from dataclasses import asdict
from typing import Any

from transformers import PreTrainedConfig

from hqlt_lab.hugging_face.folder import MODEL_TYPE
from hqlt_lab.model.config import ModelConfig, model_config


class HqltConfig(PreTrainedConfig):
    """`composition` rebuilds the model; sizes are repeated for programs that look for them."""

    model_type = MODEL_TYPE

    composition: dict[str, Any] | None = None  # the settings of ModelConfig
    encoder: str = "bytes"  # the lab's name for the tokenizer
    encoder_vocabulary: int | None = None  # tokens that it has; the model may have more
    origin: dict[str, Any] | None = None  # version, cell, data
    vocab_size: int = 257
    hidden_size: int = 128
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    max_position_embeddings: int | None = None  # tokens of a training row; the model reads on beyond it
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None
    use_cache: bool = True
    tie_word_embeddings: bool = False

    @property
    def model(self) -> ModelConfig:
        """What our model is built from."""
        return model_config({"vocabulary": self.vocab_size, **(self.composition or {})})


def config_of(model: ModelConfig, separator: int, **facts: Any) -> HqltConfig:
    """Of a model whose documents begin with this token."""
    assert model.vocabulary is not None
    return HqltConfig(
        composition=asdict(model),
        vocab_size=model.vocabulary,
        hidden_size=model.width,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        tie_word_embeddings=model.tie_embeddings,
        bos_token_id=separator,
        eos_token_id=separator,
        pad_token_id=separator,
        **facts,
    )
