"""Sample one token from each row of logits.

    p = softmax(logits / temperature), sorted, without the tokens excluded by top_k and top_p
    token = the first whose cumulative probability exceeds u,   u ~ U(0, 1)

Each token takes one number u, drawn on the CPU from the generator of its row.  So the samples of a row depend only on
(seed, row) and its logits, not on the other rows or the device.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from hqlt_lab.errors import TrainingError
from hqlt_lab.generation.sampling_options import Sampling
from hqlt_lab.hashing import derive_seed


def row_generator(seed: int, row: int) -> torch.Generator:
    """Return the random generator of one row."""
    return torch.Generator().manual_seed(derive_seed(f"{seed}/{row}"))


def sample_tokens(logits: Tensor, options: Sampling, generators: Sequence[torch.Generator]) -> list[int]:
    """Sample the next token of each row from logits [N, vocabulary], with one generator per row."""
    if not logits.isfinite().all():
        raise TrainingError(
            "The model's logits are not finite, so no token can be sampled. The training may have diverged."
        )
    if options.temperature == 0:
        return [int(token) for token in logits.argmax(1)]
    probabilities, token_ids = filter_logits(logits.double() / options.temperature, options)
    cumulative = probabilities.cumsum(1)  # [N, candidates]
    uniform = [torch.rand(1, generator=generator, dtype=torch.float64) for generator in generators]
    u = torch.stack(uniform).to(logits.device)  # [N, 1]
    # stay below the total even where the product rounds up, so that the sampled token has a probability above 0
    total = cumulative[:, -1:]
    threshold = torch.minimum(u * total, torch.nextafter(total, torch.zeros_like(u)))
    return token_ids.gather(1, torch.searchsorted(cumulative, threshold, right=True))[:, 0].tolist()


def filter_logits(logits: Tensor, options: Sampling) -> tuple[Tensor, Tensor]:
    """Return the probabilities [N, candidates] after top_k and top_p, in descending order, and their token ids."""
    sorted_logits, token_ids = logits.sort(dim=1, descending=True, stable=True)
    sorted_logits, token_ids = sorted_logits[:, : options.top_k], token_ids[:, : options.top_k]
    probabilities = sorted_logits.softmax(1)
    if options.top_p is not None:
        # a token stays while those before it do not reach top_p, so the first one always stays
        before = probabilities.cumsum(1) - probabilities
        probabilities = probabilities.masked_fill(before >= options.top_p, 0.0)
    return probabilities, token_ids
