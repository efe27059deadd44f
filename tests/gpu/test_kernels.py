"""The kernels themselves, where there is a GPU: `pytest -m gpu`."""

import warnings

import pytest
import torch

from hqlt_lab.check.backends import cells
from hqlt_lab.model.config import OpsConfig
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.ops.backends import ATTENTIONS, SCANS, TRUTHS
from hqlt_lab.ops.choosing import installed
from hqlt_lab.train.canary_file import read_canary
from hqlt_lab.train.fit import fit
from hqlt_lab.train.ops_file import read_ops
from tests.train.conftest import tiny

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")]
MODEL = {"width": 128, "heads": 2, "update_rule": {"name": "delta", "max_beta": 2}}


@pytest.mark.parametrize("backend", [name for name in (*SCANS, *ATTENTIONS) if name not in TRUTHS])
def test_every_backend_gives_the_truth(backend):
    package = (SCANS | ATTENTIONS)[backend].package
    if not installed(package):
        pytest.skip(f"{package} is not installed")
    done = list(cells(backend, "cuda"))
    assert not [cell for cell in done if cell.outcome == "failed"]
    assert [cell for cell in done if cell.outcome == "passed"]


def test_a_memory_is_float32_under_bfloat16_and_does_not_grow():
    model = build_model(vocabulary=4, **MODEL).cuda()
    with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        _, state = model(torch.randint(0, 4, (2, 8192), device="cuda"))
    assert all(layer.fw.dtype == torch.float32 for layer in state)
    assert all(layer.fw.abs().max() < 100 for layer in state)


@pytest.mark.parametrize("timing", ["synchronous", "delayed_stream", "delayed_chunk"])
def test_a_text_at_once_in_pieces_and_token_by_token(timing):
    model = build_model(vocabulary=16, timing={"name": timing, "window": 64}, **MODEL).cuda()
    x = torch.randint(0, 16, (2, 300), device="cuda")
    with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        whole, _ = model(x)
        state, pieces = None, []
        for piece in x.split([200, *[1] * 100], 1):
            answer, state = model(piece, state)
            pieces.append(answer)
    torch.testing.assert_close(torch.cat(pieces, 1), whole, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("timing", ["synchronous", "delayed_stream", "delayed_chunk"])
def test_deterministic_training_repeats(tmp_path, timing):
    model = {"width": 128, "timing": {"name": timing, "window": 4}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(tiny(model=model, trainer={"accelerator": "auto", "deterministic": True}), tmp_path)
    assert read_canary(tmp_path).repeatable
    assert read_ops(tmp_path)["device"] == "cuda"


def test_a_compiled_model_gives_the_same():
    model = build_model(vocabulary=16, **MODEL).cuda()
    x = torch.randint(0, 16, (2, 300), device="cuda")
    with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        torch.testing.assert_close(torch.compile(model)(x)[0], model(x)[0], atol=0.1, rtol=0.1)


def test_documents_are_read_by_flex_and_blocks_alike():
    from hqlt_lab.model.layout import Layout

    model = build_model(vocabulary=16, timing={"name": "synchronous", "window": 64}, **MODEL).cuda()
    x = torch.randint(0, 16, (2, 300), device="cuda")
    layout = Layout(starts=torch.rand(2, 300, device="cuda") < 0.02)
    answers = [model.use(OpsConfig(attention=name))(x, None, layout)[0] for name in ("flex", "blocks")]
    torch.testing.assert_close(*answers, atol=1e-2, rtol=1e-2)
