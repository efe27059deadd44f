"""Which backend takes which job, and what is said about it."""

import sys

import pytest
import torch

from hqlt_lab.errors import ConfigError
from hqlt_lab.ops import choosing
from hqlt_lab.ops.backends import ATTENTIONS, SCANS
from hqlt_lab.ops.choosing import BackendWarning, Job, advise, choose

GPU = Job("cuda", torch.bfloat16, 128, 128)
CPU = Job("cpu", torch.float32, 128, 128)
MASKED = {"masked": True}
PAST = {"masked": True, "past": True, "documents": True}


@pytest.fixture
def there(monkeypatch):
    """Say which packages are installed."""

    def say(*packages):
        monkeypatch.setattr(choosing, "_installed", {name: name in packages for name in ("fla", "flash_attn")})

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    say("fla", "flash_attn")
    return say


@pytest.mark.parametrize(
    ("backends", "job", "name"),
    [
        (SCANS, GPU, "fla"),
        (SCANS, CPU, "torch"),
        (SCANS, GPU._replace(dtype=torch.float64), "torch"),
        (SCANS, GPU._replace(dtype=torch.float32), "torch"),
        (SCANS, GPU._replace(key=512), "torch"),
        (SCANS, GPU._replace(obstacle="it has two strengths"), "torch"),
        (ATTENTIONS, GPU, "flash_attn"),
        (ATTENTIONS, GPU._replace(**MASKED, documents=True), "flash_attn"),
        (ATTENTIONS, GPU._replace(dtype=torch.float32), "sdpa"),
        (ATTENTIONS, GPU._replace(dtype=torch.float32, **MASKED), "flex"),
        (ATTENTIONS, GPU._replace(dtype=torch.float64, **MASKED), "blocks"),
        (ATTENTIONS, GPU._replace(**PAST), "blocks"),
        (ATTENTIONS, GPU._replace(key=8, value=8, dtype=torch.float32, **MASKED), "blocks"),
        (ATTENTIONS, CPU, "blocks"),
        (ATTENTIONS, CPU._replace(**MASKED), "blocks"),
    ],
)
def test_auto_takes_the_fastest_that_can(there, backends, job, name):
    choice = choose(backends, "auto", job)
    assert choice.name == name and choice.why


def test_without_flash_attn_torch_has_kernels_too(there):
    there("fla")
    assert choose(ATTENTIONS, "auto", GPU).name == "sdpa"
    assert choose(ATTENTIONS, "auto", GPU._replace(**MASKED)).name == "flex"


def test_tf32_that_is_allowed_is_no_reason_against_fla(there):
    torch.set_float32_matmul_precision("high")
    try:
        assert choose(SCANS, "auto", GPU._replace(dtype=torch.float32)).name == "fla"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_the_reasons_are_told(there):
    assert choose(SCANS, "auto", CPU).why == "not fla: it needs a GPU"
    why = choose(ATTENTIONS, "auto", GPU._replace(dtype=torch.float32, **MASKED)).why
    assert "not flash_attn: it computes in bfloat16 and float16, not in float32" in why and "not sdpa" in why


def test_a_gpu_that_computes_slowly_is_told_what_to_install_once(there, monkeypatch):
    there()
    monkeypatch.setattr(choosing, "_told", set())
    choice = choose(SCANS, "auto", GPU)
    with pytest.warns(BackendWarning, match=r"torch computes on this GPU.*fla is not installed.*pip install.*gpu"):
        advise("fast weights", choice)
    assert advise("fast weights", choice) == choice  # a second warning would be an error here
    assert not choose(SCANS, "auto", CPU).slow and not choose(ATTENTIONS, "auto", GPU._replace(**PAST)).slow


def test_what_is_asked_for_by_name_is_taken_or_refused_with_a_reason(there):
    assert choose(SCANS, "recurrent", GPU).name == "recurrent"
    assert choose(SCANS, "fla", GPU._replace(dtype=torch.float32)).name == "fla"
    with pytest.raises(ConfigError, match=r"fla was asked for and cannot compute this: it needs a GPU\. Use auto"):
        choose(SCANS, "fla", CPU)
    with pytest.raises(ConfigError, match=r"no backend 'flsh'\. Did you mean 'flash_attn'"):
        choose(ATTENTIONS, "flsh", CPU)
    there()
    with pytest.raises(ConfigError, match=r"flash_attn is not installed. Install it: pip install .*flash"):
        choose(ATTENTIONS, "flash_attn", GPU)


def test_no_package_of_kernels_is_loaded_where_none_is_chosen():
    code = "import torch, sys; from hqlt_lab.ops.attention import attend; from hqlt_lab.ops.schedule import Schedule; "
    code += "x = torch.randn(1, 1, 9, 4); attend(x, x, x, Schedule(window=3)); "
    code += "print([name for name in ('flash_attn', 'fla', 'triton') if name in sys.modules])"
    import subprocess

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
