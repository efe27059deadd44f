"""Every setting is used, and Lightning and CUDA are set up as configured."""

import ast
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hqlt_lab.experiment.run_settings import TrainConfig, TrainerConfig
from hqlt_lab.train.fit import fit
from hqlt_lab.train.trainer import lightning_accelerator
from tests.train.conftest import tiny_cell

ROOT = Path(__file__).parents[2] / "hqlt_lab"
READERS = [
    file
    for package in ("train", "experiment")
    for file in sorted((ROOT / package).rglob("*.py"))
    if file.name != "settings.py"  # only validates the settings
]


def read_attributes() -> set[str]:
    trees = [ast.parse(file.read_text()) for file in READERS]
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("settings", [TrainConfig, TrainerConfig])
def test_every_setting_is_read_outside_its_definition(settings):
    assert {field.name for field in dataclasses.fields(settings)} <= read_attributes()


def test_only_the_train_package_imports_lightning():
    outside = [file for file in ROOT.rglob("*.py") if file.relative_to(ROOT).parts[0] != "train"]
    assert not [
        file for file in outside if "import lightning" in file.read_text() or "from lightning" in file.read_text()
    ]


def test_the_launch_module_loads_neither_torch_nor_lightning():
    script = "import sys, hqlt_lab.train.distributed.fit_in_subprocess; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "lightning"} & set(loaded)


@pytest.mark.parametrize(("before", "after"), [(None, ":4096:8"), (":16:8", ":16:8")], ids=["unset", "set"])
def test_cublas_is_deterministic_in_a_process_whose_first_cell_did_not_request_it(folder, monkeypatch, before, after):
    name = "CUBLAS_WORKSPACE_CONFIG"
    monkeypatch.setenv(name, before) if before else monkeypatch.delenv(name, raising=False)
    fit(tiny_cell(steps=1), folder)
    assert os.environ[name] == after


@pytest.mark.parametrize(
    ("accelerator", "has_cuda", "expected"),
    [
        ("auto", False, "cpu"),
        ("auto", True, "cuda"),
        ("gpu", False, "cuda"),
        ("gpu", True, "cuda"),
        ("cpu", True, "cpu"),
    ],
)
def test_only_cuda_devices_count_as_gpus(accelerator, has_cuda, expected, monkeypatch):
    """Lightning's own choice includes Apple's MPS, where the first layer would fail because it has no float64."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    assert lightning_accelerator(TrainerConfig(accelerator=accelerator)) == expected
