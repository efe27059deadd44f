"""Tokens to logits through a stack of blocks; or, without a vocabulary, vectors to vectors.

logits, state = model(tokens)            the whole text
logits, state = model(more, state)       and on from there, in pieces of any length
logits, state = model(tokens, layout=Layout(real, starts))       padded rows, packed documents
losses, state = model(tokens, labels=labels)                     cross-entropies, without the memory for all logits
"""

from typing import Any

from torch import Tensor, nn

from hqlt_lab.components.positions._base import Positions
from hqlt_lab.errors import ConfigError
from hqlt_lab.model.block import Block, norm
from hqlt_lab.model.config import ModelConfig, OpsConfig, model_config
from hqlt_lab.model.initialise import initialise
from hqlt_lab.model.layout import Layout, check_layout, closed_up, places_of, spread_out
from hqlt_lab.model.memory import HybridMemory
from hqlt_lab.model.state import State, check_state
from hqlt_lab.ops.cross_entropy import cross_entropy
from hqlt_lab.registry import build


class SequenceModel(nn.Module):
    """One composition, with weights that `initialise` has yet to draw."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.norm = norm(config)
        self.drop = nn.Dropout(config.dropout)
        self.positions = input_positions(config)
        self.embed, self.head = None, None
        if config.vocabulary is not None:
            self.embed = nn.Embedding(config.vocabulary, config.width)
            self.head = nn.Linear(config.width, config.vocabulary, bias=False)
            if config.tie_embeddings:
                self.head.weight = self.embed.weight

    @property
    def memories(self) -> list[HybridMemory]:
        """The memory of each block."""
        return [block.get_submodule("memory") for block in self.blocks]  # type: ignore[misc]

    def use(self, ops: OpsConfig) -> "SequenceModel":
        """Have the memories computed by these backends; the model itself, for chaining."""
        for memory in self.memories:
            memory.use(ops)
        return self

    def recompute(self, wanted: bool = True) -> "SequenceModel":
        """Have each block keep its input alone for backwards, and compute the rest again; the model, for chaining."""
        for block in self.blocks:
            block.recomputed = wanted  # type: ignore[assignment]
        return self

    def forward(
        self, x: Tensor, state: State | None = None, layout: Layout | None = None, labels: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Tokens [B, T] -> logits [B, T, vocabulary], or with labels [B, T] losses [B, T], 0 where a label is -1.

        Without a vocabulary vectors [B, T, width] -> the same.
        """
        check_layout(x, layout)
        check_state(x, state, len(self.blocks))
        if self.embed is not None:
            # padding may be a number that is no token
            x = self.embed(x if layout is None or layout.real is None else x.masked_fill(~layout.real, 0))
        x, state = self.encode(x, state, layout)
        if labels is not None:
            return self.losses(x, labels), state
        return (x if self.head is None else self.head(x)), state

    def losses(self, x: Tensor, labels: Tensor) -> Tensor:
        """What the head's logits cost, [B, T]; x [B, T, width] is what `encode` gives."""
        if self.head is None:
            raise ValueError("A model without a vocabulary has no logits, so it takes no labels.")
        if labels.shape != x.shape[:2]:
            raise ValueError(f"labels: {list(labels.shape)} do not fit tokens {list(x.shape[:2])}.")
        return cross_entropy(x.flatten(0, 1), self.head.weight, labels.flatten()).view(labels.shape)

    def encode(self, x: Tensor, state: State | None = None, layout: Layout | None = None) -> tuple[Tensor, State]:
        """Embedded tokens to the vectors that the head reads, which are 0 at padding."""
        check_layout(x, layout)
        check_state(x, state, len(self.blocks))
        if x.shape[1] == 0:
            raise ValueError("The text has no tokens.")
        if layout is None or layout.real is None:
            return self.read(x, state, layout)
        x, layout, order = closed_up(x, layout)
        x, state = self.read(x, state, layout)
        return spread_out(x, layout, order), state

    def read(self, x: Tensor, state: State | None, layout: Layout | None) -> tuple[Tensor, State]:
        """The same, where padding is at the end of each row."""
        places = places_of(x, None if state is None else state[0].count, layout)
        x = self.drop(x)
        if self.positions is not None:
            x = self.positions.embed(x, places.place)
        states = []
        for block, before in zip(self.blocks, state or [None] * len(self.blocks), strict=True):
            x, after = block(x, before, places)
            states.append(after)
        return self.norm(x), tuple(states)


def input_positions(config: ModelConfig) -> Positions | None:
    """The positions that are added to the input, which both memories then see; None where softmax alone has any."""
    parts: list[Positions] = [
        build("positions", config.part("positions", layer), width=config.width, heads=config.heads)
        for layer in range(config.layers)
    ]
    adding = [part for part in parts if type(part).embed is not Positions.embed]
    if adding and len(adding) < len(parts):
        name = type(adding[0]).__name__
        raise ConfigError(
            f"positions: {name} is added to the input, so every layer has it. Use it in all layers or in none."
        )
    return adding[0] if adding else None


def build_model(seed: int = 0, **settings: Any) -> SequenceModel:
    """A model from the settings of `ModelConfig`, its weights drawn from (seed, name)."""
    model = SequenceModel(model_config(settings))
    initialise(model, model.config, seed)
    return model
