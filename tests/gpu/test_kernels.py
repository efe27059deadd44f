"""Backends on a real GPU: `pytest -m gpu`."""

import warnings

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.check.backend_comparison import compare_backend, relative_error
from hqlt_lab.check.component_under_test import fixed_noise
from hqlt_lab.model.config import OpsConfig
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.ops.dispatch import ATTENTION_BACKENDS, REFERENCE_BACKENDS, SCAN_BACKENDS, is_installed, linear_scan
from hqlt_lab.ops.gates import Gates, distinct_gates, map_gates
from hqlt_lab.rundir.diagnostics import read_backends, read_determinism_check
from hqlt_lab.train.fit import fit
from tests.model.test_setting_crosses import ROWS, assert_accurate, build_row
from tests.train.conftest import tiny_cell

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")]
MODEL = {"width": 128, "heads": 2, "update_rule": {"name": "delta", "max_beta": 2}}


@pytest.mark.parametrize(
    "backend", [name for name in (*SCAN_BACKENDS, *ATTENTION_BACKENDS) if name not in REFERENCE_BACKENDS]
)
def test_every_backend_equals_the_reference(backend):
    package = (SCAN_BACKENDS | ATTENTION_BACKENDS)[backend].package
    if not is_installed(package):
        pytest.skip(f"{package} is not installed")
    results = list(compare_backend(backend, "cuda"))
    assert not [result for result in results if result.outcome == "failed"]
    assert [result for result in results if result.outcome == "passed"]


@pytest.mark.parametrize(
    ("channels", "value_channels"), [(8, 8), (24, 24), (64, 64), (256, 256), (96, 16), (24, 64)], ids=str
)
def test_every_kernel_of_fla_agrees_with_the_reference_in_bfloat16(channels, value_channels):
    """Compare outputs and gradients, also those of decays, which Triton's interpreter computes incorrectly in bfloat16.

    Keys and values have different numbers of channels with wide feature maps, or if `model` sets both sizes.
    """
    if not is_installed("fla"):
        pytest.skip("fla is not installed")
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(2, 2, 130, *shape, generator=generator)

    q, k, p = (F.normalize(normal(channels), dim=-1).bfloat16() for _ in range(3))
    v, beta, erase = normal(value_channels).bfloat16(), normal().sigmoid(), normal(channels).sigmoid()
    scalar, log_keep = -0.1 * normal().exp(), -0.1 * normal(channels).exp()
    for gates in (
        Gates(scalar),
        Gates(log_keep),
        Gates(None, beta, beta),
        Gates(scalar, beta, beta),
        Gates(log_keep, beta, beta),
        Gates(log_keep, erase, beta),
        Gates(scalar, beta, beta, early_lookup=p.float()),
        Gates(log_keep, beta, early_lookup=p.float()),
        Gates(log_keep, beta, lookup=p.float()),
    ):
        results = []
        for backend, dtype in (("recurrent", torch.float64), ("fla", torch.bfloat16)):
            inputs = [x.to("cuda", dtype).requires_grad_() for x in (q, k, v)]
            gate_dtype = torch.promote_types(dtype, torch.float32)
            leaf_gates = map_gates(lambda x, dtype=gate_dtype: x.to("cuda", dtype).requires_grad_(), gates)
            reads, state = linear_scan(*inputs, leaf_gates, backend=backend)
            leaves = [*inputs, *distinct_gates(leaf_gates)]
            results.append([reads, state, *torch.autograd.grad(reads.square().sum() + state.square().sum(), leaves)])
        for expected, actual in zip(*results, strict=True):
            assert relative_error(actual, expected) < 0.05


def test_memory_is_float32_under_bfloat16_autocast_and_does_not_grow():
    model = build_model(vocabulary=4, **MODEL).cuda()
    with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        _, state = model(torch.randint(0, 4, (2, 8192), device="cuda"))
    assert all(layer.fw.dtype == torch.float32 for layer in state)
    assert all(layer.fw.abs().max() < 100 for layer in state)


@pytest.mark.parametrize("sinks", [0, 4])
@pytest.mark.parametrize("attention", ["softmax", "forgetting"])
@pytest.mark.parametrize("timing", ["synchronous", "delayed_stream", "delayed_chunk"])
def test_sequence_in_chunks_and_token_by_token_equals_one_call(timing, attention, sinks):
    timing = {"name": timing, "window": 64, "sinks": sinks}
    model = build_model(vocabulary=16, timing=timing, attention=attention, meta_tokens=sinks, **MODEL).cuda()
    x = torch.randint(0, 16, (2, 300), device="cuda")
    with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        expected, _ = model(x)
        state, outputs = None, []
        for chunk in x.split([200, *[1] * 100], 1):
            output, state = model(chunk, state)
            outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, 1), expected, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("row", ROWS, ids=str)
@torch.no_grad()
def test_combination_of_settings_is_accurate_in_mixed_precision(row):
    model, x = build_row(row, width=64, mlp_width=64), fixed_noise(2, 70, 64)
    expected, _ = model(x)
    with torch.autocast("cuda", torch.bfloat16):
        actual, _ = model.float().cuda()(x.float().cuda())
    assert_accurate(row, actual.cpu(), expected)


@pytest.mark.parametrize("train", [{}, {"window": {"low": 2, "high": 6}, "memories": {"fw": {"start_step": 4}}}])
@pytest.mark.parametrize("timing", ["synchronous", "delayed_stream", "delayed_chunk"])
def test_deterministic_training_is_reproducible(tmp_path, timing, train):
    model = {"width": 128, "timing": {"name": timing, "window": 4}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(tiny_cell(model=model, trainer={"accelerator": "auto", "deterministic": True}, **train), tmp_path)
    assert read_determinism_check(tmp_path).repeatable
    assert read_backends(tmp_path)["device"] == "cuda"


def test_compiled_model_gives_the_same_output():
    model = build_model(vocabulary=16, **MODEL).cuda()
    x = torch.randint(0, 16, (2, 300), device="cuda")
    with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        torch.testing.assert_close(torch.compile(model)(x)[0], model(x)[0], atol=0.1, rtol=0.1)


def test_flex_and_blocks_give_the_same_output_for_packed_documents():
    from hqlt_lab.model.batch_layout import Layout

    model = build_model(vocabulary=16, timing={"name": "synchronous", "window": 64}, **MODEL).cuda()
    x = torch.randint(0, 16, (2, 300), device="cuda")
    layout = Layout(doc_start=torch.rand(2, 300, device="cuda") < 0.02)
    outputs = [model.set_backends(OpsConfig(attention=name))(x, None, layout)[0] for name in ("flex", "blocks")]
    torch.testing.assert_close(*outputs, atol=1e-2, rtol=1e-2)
