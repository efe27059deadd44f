"""Which token comes next: as often as its probability says, among those that may come."""

import math

import pytest
import torch

from hqlt_lab.generation.choose import choose, draws_of
from hqlt_lab.generation.sampling import Sampling

CHANCES = [0.05, 0.4, 0.0, 0.25, 0.2, 0.1]  # token 1 is the likeliest, token 2 never comes
ROWS = 3000


def allowed(temperature, top_k, top_p):
    """The distribution, written out: cut to top_k, then to the first tokens that reach top_p, then scaled to 1."""
    sharp = [chance ** (1 / temperature) for chance in CHANCES]
    order = sorted(range(len(sharp)), key=lambda token: -sharp[token])[: top_k or len(sharp)]
    total, kept, reached = sum(sharp[token] for token in order), [], 0.0
    for token in order:
        if reached < (top_p or 2):
            kept.append(token)
        reached += sharp[token] / total
    weight = sum(sharp[token] for token in kept)
    return [sharp[token] / weight if token in kept else 0.0 for token in range(len(sharp))]


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(None, None), (3, None), (None, 0.7), (4, 0.8), (1, None), (None, 0.01)])
def test_tokens_come_as_often_as_their_probability_says(temperature, top_k, top_p):
    logits = torch.tensor([[math.log(chance) if chance else -1e9 for chance in CHANCES]]).expand(ROWS, -1)
    options = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    found = torch.tensor(choose(logits, options, [draws_of(0, row) for row in range(ROWS)])).bincount(minlength=6)
    for token, chance in enumerate(allowed(temperature, top_k, top_p)):
        assert abs(found[token].item() / ROWS - chance) <= 5 * math.sqrt(chance * (1 - chance) / ROWS)


def test_without_temperature_the_likeliest_comes():
    assert choose(torch.tensor(CHANCES)[None], Sampling(temperature=0, top_k=3), [draws_of(0, 0)]) == [1]


def test_the_same_seed_and_row_draw_the_same_and_others_do_not():
    first, same, row, seed = (
        torch.rand(4, generator=draws_of(*one)).tolist() for one in ((1, 2), (1, 2), (1, 3), (2, 2))
    )
    assert first == same and first != row and first != seed
