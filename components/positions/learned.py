"""Learned positions: one vector per position is learned and added to the embedded tokens.

    x_t += e_t,   t < length

The positions are part of the input, so both memories receive them.  They are counted from the first token of a
document.  A document of more than `length` tokens is an error: there is no vector for its last tokens, and the model
cannot be used on sequences that are longer than those it is built for.

    positions: {name: learned, length: 512}

Gehring et al. 2017, arXiv:1705.03122.
"""

from typing import Annotated

from torch import Tensor, nn

from hqlt_lab.components.positions._base import Positions
from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import register


@register("positions", "learned")
class Learned(Positions):
    def __init__(self, width: int, length: Annotated[int, "Length of the longest document, in tokens."] = 1024) -> None:
        super().__init__()
        if length < 1:
            raise ConfigError.at("length", "below_minimum", f"at least 1 is needed, got {length}.")
        self.max_length = length
        self.table = nn.Embedding(length, width)

    def embed(self, x: Tensor, position: Tensor) -> Tensor:
        # padding continues to count, so it may be beyond the table; documents are checked before
        return x + self.table(position.clamp(0, self.table.num_embeddings - 1)).to(x.dtype)
