"""Kernels that only write, then read, serve every course."""

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.ops.fla_scan import rounded
from hqlt_lab.ops.recurrent import recurrent
from hqlt_lab.ops.spread import sequences, spread
from hqlt_lab.ops.steps import Course, Gates


def example(tokens, writes):
    shape = (2, 3, tokens * writes)
    q = torch.randn(2, 3, tokens, 4, dtype=torch.float64)
    k = F.normalize(torch.randn(*shape, 4, dtype=torch.float64), dim=-1)
    v = torch.randn(*shape, 5, dtype=torch.float64)
    beta = 2 * torch.rand(shape, dtype=torch.float64)
    return q, k, v, Gates(-torch.rand(shape, dtype=torch.float64), beta, beta)


@pytest.mark.parametrize("writes", [1, 3])
@pytest.mark.parametrize("hold", [None, 1, 4, 50])
@pytest.mark.parametrize("tokens", [1, 8, 23])
def test_a_plain_scan_gives_what_the_course_means(tokens, hold, writes):
    inputs, state = example(tokens, writes), torch.randn(2, 3, 4, 5, dtype=torch.float64)
    real, begins = torch.rand(2, tokens) < 0.8, torch.rand(2, tokens) < 0.3
    course = Course(hold, real, begins & (torch.arange(tokens) % (hold or 1) == 0))
    steps = spread(*inputs, course)
    assert steps.gates.erase is steps.gates.write
    answers, last = recurrent(*steps[:4], state, Course(starts=steps.starts))
    right, right_last = recurrent(*inputs, state, course)
    torch.testing.assert_close(steps.reads(answers), right, rtol=0, atol=1e-14)
    torch.testing.assert_close(last, right_last, rtol=0, atol=1e-14)


def test_sequences_one_by_one_are_the_rows():
    starts = torch.zeros(3, 10, dtype=torch.bool)
    starts[0, [0, 4]] = starts[1, [7, 9]] = True
    (q, k, v, gates), state = example(10, 1), torch.randn(2, 3, 4, 5, dtype=torch.float64)
    starts = starts[:2]
    cut = sequences(starts)
    assert cut.borders.tolist() == [0, 4, 10, 17, 19, 20]
    states = cut.states(state)
    assert (states[0] == 0).all() and (states[1] == 0).all() and torch.equal(states[2], state[1])
    right, last = recurrent(q, k, v, gates, state, Course(starts=starts))
    for number, (a, b) in enumerate([(0, 4), (4, 10), (10, 17), (17, 19), (19, 20)]):
        row, part = a // 10, slice(a % 10, (b - 1) % 10 + 1)
        mine = [x[row : row + 1, :, part] for x in (q, k, v)]
        answer, end = recurrent(*mine, Gates(*(gate[row : row + 1, :, part] for gate in gates)), states[number][None])
        torch.testing.assert_close(answer[0], right[row, :, part])
        if number in cut.last.tolist():
            torch.testing.assert_close(end[0], last[row])


def test_a_memory_with_rounded_keys_does_not_grow():
    torch.manual_seed(3)
    k = F.normalize(torch.randn(1, 8, 1, 16), dim=-1).expand(-1, -1, 2048, -1)
    q, v, beta = k[:, :, :1], torch.zeros(1, 8, 2048, 1), torch.full((1, 8, 2048), 2.0)
    state = k[:, :, 0, :, None].clone()

    def size(k, gates):
        _, last = recurrent(k, k, v, gates, state)
        return last.square().sum((-1, -2)).sqrt()

    _, small, _, gates = rounded(q, k, v.bfloat16(), Gates(erase=beta, write=beta))
    assert small.dtype == torch.bfloat16 and gates.erase is gates.write
    torch.testing.assert_close(size(small.float(), gates), torch.ones(1, 8), atol=1e-2, rtol=0)
    # without making up for it, some keys are too long and the memory along them grows
    assert size(small.float(), Gates(erase=beta, write=beta)).max() > 1.5
