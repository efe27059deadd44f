"""Backend selection: which backend runs which operation, and the reasons and warnings that are reported."""

import sys

import pytest
import torch

from hqlt_lab.ops import dispatch
from hqlt_lab.ops.dispatch import (
    ATTENTION_BACKENDS,
    SCAN_BACKENDS,
    BackendWarning,
    OpSpec,
    select_backend,
    warn_if_slow,
)
from tests.issues import raises_issue

GPU = OpSpec("cuda", torch.bfloat16, 128, 128)
CPU = OpSpec("cpu", torch.float32, 128, 128)
MASKED = {"is_masked": True}
PAST = {"is_masked": True, "has_past_keys": True}


@pytest.fixture
def set_installed(monkeypatch):
    """Return a function that sets which packages are installed."""

    def set_packages(*packages):
        monkeypatch.setattr(dispatch, "_installed_packages", {name: name in packages for name in ("fla", "flash_attn")})

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    set_packages("fla", "flash_attn")
    return set_packages


@pytest.mark.parametrize(
    ("backends", "spec", "name"),
    [
        (SCAN_BACKENDS, GPU, "fla"),
        (SCAN_BACKENDS, CPU, "torch"),
        (SCAN_BACKENDS, GPU._replace(dtype=torch.float64), "torch"),
        (SCAN_BACKENDS, GPU._replace(dtype=torch.float32), "torch"),
        (SCAN_BACKENDS, GPU._replace(key_dim=512), "torch"),
        (SCAN_BACKENDS, GPU._replace(key_dim=512, has_lookup=False), "fla"),
        (SCAN_BACKENDS, GPU._replace(limitation="forward-mode differentiation is used"), "torch"),
        (ATTENTION_BACKENDS, GPU, "flash_attn"),
        (ATTENTION_BACKENDS, GPU._replace(**MASKED), "flash_attn"),
        (ATTENTION_BACKENDS, GPU._replace(dtype=torch.float32), "sdpa"),
        (ATTENTION_BACKENDS, GPU._replace(dtype=torch.float32, **MASKED), "flex"),
        (ATTENTION_BACKENDS, GPU._replace(dtype=torch.float64, **MASKED), "blocks"),
        (ATTENTION_BACKENDS, GPU._replace(**PAST), "blocks"),
        (ATTENTION_BACKENDS, GPU._replace(key_dim=8, value_dim=8, dtype=torch.float32, **MASKED), "blocks"),
        (ATTENTION_BACKENDS, CPU, "blocks"),
        (ATTENTION_BACKENDS, CPU._replace(**MASKED), "blocks"),
    ],
)
def test_auto_selects_the_fastest_backend_without_objections(set_installed, backends, spec, name):
    choice = select_backend(backends, "auto", spec)
    assert choice.name == name and choice.reason


def test_sdpa_and_flex_are_selected_without_flash_attn(set_installed):
    set_installed("fla")
    assert select_backend(ATTENTION_BACKENDS, "auto", GPU).name == "sdpa"
    assert select_backend(ATTENTION_BACKENDS, "auto", GPU._replace(**MASKED)).name == "flex"


def test_fla_is_selected_for_float32_if_tf32_is_allowed(set_installed):
    torch.set_float32_matmul_precision("high")
    try:
        assert select_backend(SCAN_BACKENDS, "auto", GPU._replace(dtype=torch.float32)).name == "fla"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_reasons_of_the_selection_are_reported(set_installed):
    assert select_backend(SCAN_BACKENDS, "auto", CPU).reason == "not fla: it needs a GPU"
    reason = select_backend(ATTENTION_BACKENDS, "auto", GPU._replace(dtype=torch.float32, **MASKED)).reason
    assert "not flash_attn: it supports bfloat16 and float16, not float32" in reason and "not sdpa" in reason


def test_slow_backend_on_a_gpu_warns_once_with_the_install_command(set_installed, monkeypatch):
    set_installed()
    monkeypatch.setattr(dispatch, "_warned", set())
    choice = select_backend(SCAN_BACKENDS, "auto", GPU)
    with pytest.warns(BackendWarning, match=r"using torch on this GPU.*fla is not installed.*pip install.*gpu"):
        warn_if_slow("fast weights", choice)
    assert warn_if_slow("fast weights", choice) == choice  # a second warning would raise here
    assert (
        not select_backend(SCAN_BACKENDS, "auto", CPU).slow_reason
        and not select_backend(ATTENTION_BACKENDS, "auto", GPU._replace(**PAST)).slow_reason
    )


def test_requested_backend_is_used_or_rejected_with_a_reason(set_installed):
    assert select_backend(SCAN_BACKENDS, "recurrent", GPU).name == "recurrent"
    assert select_backend(SCAN_BACKENDS, "fla", GPU._replace(dtype=torch.float32)).name == "fla"
    with raises_issue("ops", "unsupported_backend"):
        select_backend(SCAN_BACKENDS, "fla", CPU)
    with raises_issue("ops", "unknown_backend"):
        select_backend(ATTENTION_BACKENDS, "flsh", CPU)
    set_installed()
    with raises_issue("ops", "unsupported_backend"):
        select_backend(ATTENTION_BACKENDS, "flash_attn", GPU)


def test_kernel_packages_are_not_imported_unless_selected():
    code = "import torch, sys; from hqlt_lab.ops.attention.scheduled_softmax import attend; "
    code += "from hqlt_lab.ops.memory_schedule import Schedule; "
    code += "x = torch.randn(1, 1, 9, 4); attend(x, x, x, Schedule(window=3)); "
    code += "print([name for name in ('flash_attn', 'fla', 'triton') if name in sys.modules])"
    import subprocess

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
