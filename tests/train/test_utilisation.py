"""Model FLOPs utilisation, where the chip is known, and nothing elsewhere."""

import pytest
import torch

from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.model.sizes import sizes
from hqlt_lab.train.fit import fit
from hqlt_lab.train.utilisation import full_speed, peak, tokens_at
from tests.train.conftest import Notebook, tiny


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100-PCIE-40GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", None),  # of another peak
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_a_chip_is_known_by_its_drivers_name_or_not_at_all(name, flops):
    assert peak(name) == flops


def test_a_model_of_products_alone_takes_six_flops_per_weight_and_token():
    model = build_model(vocabulary=50, width=16, heads=2, layers=2, mixer="kv_only", timing={"name": "synchronous"})
    weights = sum(each.numel() for name, each in model.named_parameters() if each.ndim == 2 and "embed" not in name)
    softmax = sizes(model, 32)["softmax"].training / 32
    assert 1e12 / tokens_at(1e12, model, 32) == pytest.approx(6 * weights + softmax)


def test_on_a_cpu_nothing_is_said(folder):
    notes = Notebook()
    fit(tiny(steps=2), folder, notes)
    assert {name for _, told in notes for name in told if name.startswith("speed/")} == {
        "speed/steps_per_second",
        "speed/tokens_per_second",
    }
    assert full_speed(build_model(vocabulary=3, width=16, heads=2), 8, torch.device("cpu"), torch.bfloat16) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_known_gpu_it_is_a_part_of_the_whole(folder):
    notes = Notebook()
    fit(tiny(steps=3, precision="bf16-mixed", trainer={"accelerator": "gpu"}), folder, notes)
    told = [told["speed/mfu"] for _, told in notes if "speed/mfu" in told]
    assert bool(told) == (peak(torch.cuda.get_device_name()) is not None) and all(0 < each < 100 for each in told)
