"""Sequence model: tokens to logits through a stack of blocks; without a vocabulary, vectors to vectors.

logits, state = model(tokens)                                               the whole sequence
logits, state = model(more, state)                                          continue, in chunks of any length
logits, state = model(tokens, layout=Layout(valid_mask, doc_start))         padded rows, packed documents
losses, state = model(tokens, labels=labels)                                cross-entropies, without storing all logits
logits, state = model(tokens, head_mask=mask)                               logits [N, vocabulary] of these tokens only
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

from hqlt_lab.components.positions._base import Positions
from hqlt_lab.errors import ConfigError
from hqlt_lab.model.batch_layout import (
    Layout,
    TokenPositions,
    check_layout,
    compute_token_positions,
    left_align,
    restore_padding,
)
from hqlt_lab.model.block import Block, make_norm
from hqlt_lab.model.config import ModelConfig, OpsConfig, model_config
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.initialize import initialize_parameters
from hqlt_lab.model.meta_tokens import insert_meta_tokens
from hqlt_lab.model.state import State, check_state
from hqlt_lab.ops.fused.linear_cross_entropy import cross_entropy
from hqlt_lab.registry import build


class SequenceModel(nn.Module):
    """A model with uninitialized weights; see `initialize_parameters`, and `build_model` for both steps."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.norm = make_norm(config)
        self.drop = nn.Dropout(config.dropout)
        self.positions = build_input_positions(config)
        self.meta_tokens = nn.Embedding(config.meta_tokens, config.width) if config.meta_tokens else None
        self.embed, self.head = None, None
        if config.vocabulary is not None:
            self.embed = nn.Embedding(config.vocabulary, config.width)
            self.head = nn.Linear(config.width, config.vocabulary, bias=False)
            if config.tie_embeddings:
                self.head.weight = self.embed.weight

    @property
    def memories(self) -> list[HybridMemory]:
        """The memory of each block that has one."""
        return [memory for memory in self.layer_memories if memory is not None]

    @property
    def layer_memories(self) -> list[HybridMemory | None]:
        """The memory of each block, None for a gated convolution."""
        memories = [block.get_submodule("memory") for block in self.blocks]
        return [memory if isinstance(memory, HybridMemory) else None for memory in memories]

    def set_backends(self, ops: OpsConfig) -> "SequenceModel":
        """Set the backends that compute the memories.  Return the model."""
        for memory in self.memories:
            memory.set_backends(ops)
        return self

    def set_recompute(self, enabled: bool = True) -> "SequenceModel":
        """Save only the input of each block for the backward pass, and recompute the rest.  Return the model."""
        for block in self.blocks:
            cast(Block, block).recompute_activations = enabled
        return self

    def forward(
        self,
        x: Tensor,
        state: State | None = None,
        layout: Layout | None = None,
        labels: Tensor | None = None,
        head_mask: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Map tokens [B, T] to logits [B, T, vocabulary], or with labels [B, T] to losses [B, T].

        The loss is 0 where a label is -1.  With a mask [B, T], the head computes the logits [N, vocabulary] of its N
        tokens alone, in the order of rows and positions.

        Without a vocabulary, vectors [B, T, width] are mapped to vectors.
        """
        check_layout(x, layout)
        check_state(x, state, len(self.blocks))
        if self.embed is not None:
            # padding may hold any value, also one that is not a token
            x = self.embed(x if layout is None or layout.valid_mask is None else x.masked_fill(~layout.valid_mask, 0))
        x, state = self.encode(x, state, layout)
        if labels is not None:
            return self.compute_losses(x, labels), state
        if head_mask is not None:
            x = x[head_mask]  # [N, width]
        return (x if self.head is None else self.head(x)), state

    def compute_losses(self, x: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropies [B, T] of the head's logits, for the output x [B, T, width] of `encode`."""
        if self.head is None:
            raise ValueError("A model without a vocabulary has no logits, so labels cannot be used.")
        if labels.shape != x.shape[:2]:
            raise ValueError(f"labels: {list(labels.shape)} do not match tokens {list(x.shape[:2])}.")
        return cross_entropy(x.flatten(0, 1), self.head.weight, labels.flatten()).view(labels.shape)

    def encode(self, x: Tensor, state: State | None = None, layout: Layout | None = None) -> tuple[Tensor, State]:
        """Map embedded tokens to the vectors that the head reads, which are 0 at padding."""
        check_layout(x, layout)
        check_state(x, state, len(self.blocks))
        if x.shape[1] == 0:
            raise ValueError("The input has no tokens.")
        if layout is None or layout.valid_mask is None:
            return self.encode_left_aligned(x, state, layout)
        x, layout, order = left_align(x, layout)
        x, state = self.encode_left_aligned(x, state, layout)
        return restore_padding(x, layout, order), state

    def encode_left_aligned(self, x: Tensor, state: State | None, layout: Layout | None) -> tuple[Tensor, State]:
        """Map embedded tokens to the vectors that the head reads, with padding at the end of each row."""
        inserted = None
        if self.meta_tokens is not None:
            inserted = insert_meta_tokens(x, self.meta_tokens.weight, layout, is_first_call=state is None)
            x, layout = (x, layout) if inserted is None else inserted[:2]
        token_positions = compute_token_positions(x, None if state is None else state[0].document_length, layout)
        x = self.drop(x)
        if self.positions is not None:
            check_document_length(self.positions, token_positions)
            x = self.positions.embed(x, token_positions.position)
        new_states = []
        for block, block_state in zip(self.blocks, state or [None] * len(self.blocks), strict=True):
            x, new_state = block(x, block_state, token_positions)
            new_states.append(new_state)
        x = x if inserted is None else inserted.remove(x)
        return self.norm(x), tuple(new_states)


def build_input_positions(config: ModelConfig) -> Positions | None:
    """Return the positions that are added to the input, and so reach both memories; None if there are none."""
    specs = [config.component_spec("positions", layer) for layer in range(config.layers)]
    distinct_specs = [spec for index, spec in enumerate(specs) if spec not in specs[:index]]
    arguments = config.shared_size.arguments(config.width) | config.kv
    components: list[Positions] = [build("positions", spec, **arguments) for spec in distinct_specs]
    embedding = [positions for positions in components if type(positions).embed is not Positions.embed]
    if embedding and len(components) > 1:
        name = type(embedding[0]).__name__
        message = f"{name} is added to the input, which all layers share."
        raise ConfigError.at(
            "positions", "positions_differ_by_layer", message, "Use it in all layers with the same options, or in none."
        )
    return embedding[0] if embedding else None


def check_document_length(positions: Positions, token_positions: TokenPositions) -> None:
    """Raise ConfigError if a document has more tokens than there are positions; in compiled code RuntimeError.

    This waits for the device.  Compiled code cannot raise an error that depends on data, except on the device.
    """
    if positions.max_length is None or token_positions.position.is_meta:
        return
    length = token_positions.longest_document()
    name, limit = type(positions).__name__, positions.max_length
    if torch.compiler.is_compiling():
        torch._assert_async(length <= limit, f"A document has more tokens than the {limit} positions of {name}.")
    elif length > limit:
        raise ConfigError.at(
            "positions",
            "document_longer_than_positions",
            f"a document has {length} tokens, but {name} has {limit} positions.",
            "Shorten the input, or train a model with more positions.",
        )


def build_model(seed: int = 0, **settings: Any) -> SequenceModel:
    """Build a model from the settings of `ModelConfig`, with each parameter initialized from (seed, its name)."""
    model = SequenceModel(model_config(settings))
    initialize_parameters(model, model.config, seed)
    return model
