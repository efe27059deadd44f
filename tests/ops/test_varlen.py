"""Any scan can be run by kernels that only write, then read, step by step."""

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.ops.gates import Gates, ScanContext, named_gates
from hqlt_lab.ops.scan.chunked import neutralize_invalid_steps
from hqlt_lab.ops.scan.external_kernel_inputs import make_varlen_sequences, unroll_steps
from hqlt_lab.ops.scan.fla_kernels import make_kernel_inputs
from hqlt_lab.ops.scan.recurrent import recurrent_scan


def make_inputs(tokens, writes):
    shape = (2, 3, tokens * writes)
    q = torch.randn(2, 3, tokens, 4, dtype=torch.float64)
    k = F.normalize(torch.randn(*shape, 4, dtype=torch.float64), dim=-1)
    v = torch.randn(*shape, 5, dtype=torch.float64)
    beta = 2 * torch.rand(shape, dtype=torch.float64)
    return q, k, v, Gates(-torch.rand(shape, dtype=torch.float64), beta, beta)


@pytest.mark.parametrize("writes", [1, 3])
@pytest.mark.parametrize("hold", [None, 1, 4, 50])
@pytest.mark.parametrize("tokens", [1, 8, 23])
def test_plain_scan_of_the_unrolled_steps_equals_the_reference(tokens, hold, writes):
    inputs, state = make_inputs(tokens, writes), torch.randn(2, 3, 4, 5, dtype=torch.float64)
    valid_mask, starts = torch.rand(2, tokens) < 0.8, torch.rand(2, tokens) < 0.3
    context = ScanContext(hold, valid_mask, starts & (torch.arange(tokens) % (hold or 1) == 0))
    q, *writes = inputs
    k, v, gates = neutralize_invalid_steps(*writes, valid_mask)
    steps = unroll_steps(q, {"k": k, "v": v, **named_gates(gates)}, context)
    k, v, log_keep, erase, write = steps.step_arguments.values()
    step_reads, last = recurrent_scan(
        steps.q, k, v, Gates(log_keep, erase, write), state, ScanContext(doc_start=steps.doc_start)
    )
    expected, expected_last = recurrent_scan(*inputs, state, context)
    torch.testing.assert_close(steps.select_token_reads(step_reads), expected, rtol=0, atol=1e-14)
    torch.testing.assert_close(last, expected_last, rtol=0, atol=1e-14)


def test_sequences_scanned_separately_equal_the_rows():
    starts = torch.zeros(3, 10, dtype=torch.bool)
    starts[0, [0, 4]] = starts[1, [7, 9]] = True
    (q, k, v, gates), state = make_inputs(10, 1), torch.randn(2, 3, 4, 5, dtype=torch.float64)
    starts = starts[:2]
    sequences = make_varlen_sequences(starts)
    assert sequences.cu_seqlens.tolist() == [0, 4, 10, 17, 19, 20]
    states = sequences.initial_states(state)
    assert (states[0] == 0).all() and (states[1] == 0).all() and torch.equal(states[2], state[1])
    expected, last = recurrent_scan(q, k, v, gates, state, ScanContext(doc_start=starts))
    for number, (a, b) in enumerate([(0, 4), (4, 10), (10, 17), (17, 19), (19, 20)]):
        row, span = a // 10, slice(a % 10, (b - 1) % 10 + 1)
        inputs = [x[row : row + 1, :, span] for x in (q, k, v, *gates[:3])]
        reads, end_state = recurrent_scan(*inputs[:3], Gates(*inputs[3:]), states[number][None])
        torch.testing.assert_close(reads[0], expected[row, :, span])
        if number in sequences.last_sequence.tolist():
            torch.testing.assert_close(end_state[0], last[row])


def test_memory_with_rounded_keys_does_not_grow():
    torch.manual_seed(3)
    k = F.normalize(torch.randn(1, 8, 1, 16), dim=-1).expand(-1, -1, 2048, -1)
    q, v, beta = k[:, :, :1], torch.zeros(1, 8, 2048, 1), torch.full((1, 8, 2048), 2.0)
    state = k[:, :, 0, :, None].clone()

    def final_norm(k, gates):
        _, last = recurrent_scan(k, k, v, gates, state)
        return last.square().sum((-1, -2)).sqrt()

    inputs = make_kernel_inputs(q, k, v.bfloat16(), Gates(erase=beta, write=beta))
    rounded_k, corrected = inputs.step_arguments["k"], inputs.step_arguments["beta"]
    assert rounded_k.dtype == torch.bfloat16
    gates = Gates(erase=corrected, write=corrected)
    torch.testing.assert_close(final_norm(rounded_k.float(), gates), torch.ones(1, 8), atol=1e-2, rtol=0)
    # without the correction, some keys are too long and the memory grows along them
    assert final_norm(rounded_k.float(), Gates(erase=beta, write=beta)).max() > 1.5
