"""The slow truth of generation: every token from the whole text before it, without any state."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hqlt_lab.generation.choose import choose, draws_of
from hqlt_lab.generation.prompts import tokens_of
from hqlt_lab.generation.sampling import Sampling
from hqlt_lab.generation.text_model import TextModel


@torch.inference_mode()
def recomputed(
    model: TextModel, prompt: str | Sequence[int], options: Sampling, row: int = 0
) -> tuple[list[int], Tensor]:
    """What follows a prompt in that row: tokens, up to the separator; and the logits [T, vocabulary] of each choice."""
    (text,) = tokens_of(model, [prompt])  # type: ignore[arg-type]  # a list of one or of the other
    draws, found, seen = draws_of(options.seed, row), list[int](), list[Tensor]()
    for _ in range(options.tokens):
        logits, _ = model.model(torch.tensor([text + found], device=model.device))
        seen.append(logits[:, -1, : model.vocabulary])
        (token,) = choose(seen[-1], options, [draws])
        if token == model.separator:
            break
        found.append(token)
    return found, torch.cat(seen)
