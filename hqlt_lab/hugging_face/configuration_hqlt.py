"""Configuration of our models for transformers: its usual fields, and the composition of our components."""

from dataclasses import asdict
from typing import Any

from transformers import PreTrainedConfig

from hqlt_lab.hugging_face.export_layout import MODEL_TYPE
from hqlt_lab.model.config import ModelConfig, model_config


class HqltConfig(PreTrainedConfig):
    """`composition` rebuilds the model; the sizes are repeated for tools that read the usual fields."""

    model_type = MODEL_TYPE

    composition: dict[str, Any] | None = None  # settings of ModelConfig
    encoder: str = "bytes"  # our name of the tokenizer
    encoder_vocabulary: int | None = None  # size of its vocabulary; the model's may be larger
    origin: dict[str, Any] | None = None  # version of the lab, key of the cell, digest of the data
    vocab_size: int = 257
    hidden_size: int = 128
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    max_position_embeddings: int | None = None  # tokens per training sequence; the model accepts longer ones
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None
    use_cache: bool = True
    tie_word_embeddings: bool = False

    @property
    def sequence_model_config(self) -> ModelConfig:
        """Configuration from which our own model is built."""
        return model_config({"vocabulary": self.vocab_size, **(self.composition or {})})


def make_hqlt_config(model: ModelConfig, separator: int, **fields: Any) -> HqltConfig:
    """Return the configuration of a model whose documents begin with the separator token."""
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
        **fields,
    )
