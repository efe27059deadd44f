"""Sampled tokens follow the distribution after temperature, top_k and top_p."""

import math

import pytest
import torch

from hqlt_lab.generation.sampler import row_generator, sample_tokens
from hqlt_lab.generation.sampling_options import Sampling

PROBABILITIES = [0.05, 0.4, 0.0, 0.25, 0.2, 0.1]  # token 1 is the most likely one, token 2 is never sampled
ROWS = 3000


def expected_distribution(temperature, top_k, top_p):
    """Compute the distribution with plain Python: top_k, then the first tokens that reach top_p, then normalization."""
    weights = [probability ** (1 / temperature) for probability in PROBABILITIES]
    candidates = sorted(range(len(weights)), key=lambda token: -weights[token])[: top_k or len(weights)]
    total, nucleus, cumulative = sum(weights[token] for token in candidates), [], 0.0
    for token in candidates:
        if cumulative < (top_p or 2):
            nucleus.append(token)
        cumulative += weights[token] / total
    normalizer = sum(weights[token] for token in nucleus)
    return [weights[token] / normalizer if token in nucleus else 0.0 for token in range(len(weights))]


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(None, None), (3, None), (None, 0.7), (4, 0.8), (1, None), (None, 0.01)])
def test_frequencies_match_the_expected_distribution(temperature, top_k, top_p):
    logits = torch.tensor([[math.log(p) if p else -1e9 for p in PROBABILITIES]]).expand(ROWS, -1)
    options = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    tokens = sample_tokens(logits, options, [row_generator(0, row) for row in range(ROWS)])
    counts = torch.tensor(tokens).bincount(minlength=6)
    for token, p in enumerate(expected_distribution(temperature, top_k, top_p)):
        assert abs(counts[token].item() / ROWS - p) <= 5 * math.sqrt(p * (1 - p) / ROWS)


def test_temperature_zero_gives_the_most_likely_token():
    logits, options = torch.tensor(PROBABILITIES)[None], Sampling(temperature=0, top_k=3)
    assert sample_tokens(logits, options, [row_generator(0, 0)]) == [1]


def test_random_numbers_depend_on_seed_and_row():
    first, same, other_row, other_seed = (
        torch.rand(4, generator=row_generator(seed, row)).tolist() for seed, row in ((1, 2), (1, 2), (1, 3), (2, 2))
    )
    assert first == same and first != other_row and first != other_seed
