"""Reference implementation of generation: every token from the whole sequence before it, without a state."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hqlt_lab.generation.prefill_decode import tokenize_prompts
from hqlt_lab.generation.sampler import row_generator, sample_tokens
from hqlt_lab.generation.sampling_options import Sampling
from hqlt_lab.generation.text_model import TextModel


@torch.inference_mode()
def generate_without_state(
    model: TextModel, prompt: str | Sequence[int], options: Sampling, row: int = 0
) -> tuple[list[int], Tensor]:
    """Return the tokens generated for a prompt, up to the separator, and the logits [T, vocabulary] of each step."""
    (prompt_tokens,) = tokenize_prompts(model, [prompt])  # type: ignore[arg-type]  # a list of one or of the other
    generator, generated, logits_per_step = row_generator(options.seed, row), list[int](), list[Tensor]()
    for _ in range(options.tokens):
        logits, _ = model.model(torch.tensor([prompt_tokens + generated], device=model.device))
        logits_per_step.append(logits[:, -1, : model.vocabulary])
        (token,) = sample_tokens(logits_per_step[-1], options, [generator])
        if token == model.separator:
            break
        generated.append(token)
    return generated, torch.cat(logits_per_step)
