"""Model FLOPs utilization is logged for known chips only."""

import pytest
import torch

from hqlt_lab.model.analysis.component_sizes import sizes
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.train.fit import fit
from hqlt_lab.train.training_callback import peak_flops, peak_tokens_per_second, tokens_per_second_at
from tests.train.conftest import MetricsLog, tiny_cell


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100-PCIE-40GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", None),  # has another peak
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_the_peak_is_known_only_for_listed_driver_names(name, flops):
    assert peak_flops(name) == flops


def test_training_takes_six_flops_per_weight_and_token_plus_softmax():
    model = build_model(vocabulary=50, width=16, heads=2, layers=2, mixer="kv_only", timing={"name": "synchronous"})
    weights = sum(
        parameter.numel() for name, parameter in model.named_parameters() if parameter.ndim == 2 and "embed" not in name
    )
    softmax = sizes(model, 32)["softmax"].training / 32
    assert 1e12 / tokens_per_second_at(1e12, model, 32) == pytest.approx(6 * weights + softmax)


def test_on_a_cpu_there_is_no_mfu(folder):
    log = MetricsLog()
    fit(tiny_cell(steps=2), folder, log)
    assert {name for _, metrics in log for name in metrics if name.startswith("speed/")} == {
        "speed/steps_per_second",
        "speed/tokens_per_second",
    }
    model = build_model(vocabulary=3, width=16, heads=2)
    assert peak_tokens_per_second(model, 8, torch.device("cpu"), torch.bfloat16) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_known_gpu_the_mfu_is_between_0_and_100_percent(folder):
    log = MetricsLog()
    fit(tiny_cell(steps=3, precision="bf16-mixed", trainer={"accelerator": "gpu"}), folder, log)
    values = [metrics["speed/mfu"] for _, metrics in log if "speed/mfu" in metrics]
    assert bool(values) == (peak_flops(torch.cuda.get_device_name()) is not None)
    assert all(0 < value < 100 for value in values)
