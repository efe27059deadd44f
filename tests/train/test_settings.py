"""Every setting does something."""

import ast
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hqlt_lab.experiment.settings import TrainConfig, TrainerConfig
from hqlt_lab.train.fit import fit
from hqlt_lab.train.trainer import accelerator
from tests.train.conftest import tiny

ROOT = Path(__file__).parents[2] / "hqlt_lab"
READERS = [
    file
    for room in ("train", "experiment")
    for file in sorted((ROOT / room).glob("*.py"))
    if file.name != "settings.py"  # there it is checked, which is no use
]


def read_somewhere() -> set[str]:
    trees = [ast.parse(file.read_text()) for file in READERS]
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("settings", [TrainConfig, TrainerConfig])
def test_every_setting_is_read_somewhere(settings):
    assert {field.name for field in dataclasses.fields(settings)} <= read_somewhere()


def test_lightning_is_known_to_this_room_alone():
    outside = [file for file in ROOT.rglob("*.py") if file.parent.name != "train"]
    assert not [
        file for file in outside if "import lightning" in file.read_text() or "from lightning" in file.read_text()
    ]


def test_asking_for_a_process_loads_no_lightning():
    script = "import sys, hqlt_lab.train.apart; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "lightning"} & set(loaded)


@pytest.mark.parametrize(("before", "after"), [(None, ":4096:8"), (":16:8", ":16:8")], ids=["unset", "set"])
def test_products_on_a_gpu_can_repeat_in_a_process_whose_first_cell_did_not_ask(folder, monkeypatch, before, after):
    name = "CUBLAS_WORKSPACE_CONFIG"
    monkeypatch.setenv(name, before) if before else monkeypatch.delenv(name, raising=False)
    fit(tiny(steps=1), folder)
    assert os.environ[name] == after


@pytest.mark.parametrize(
    ("asked", "there", "taken"),
    [
        ("auto", False, "cpu"),
        ("auto", True, "cuda"),
        ("gpu", False, "cuda"),
        ("gpu", True, "cuda"),
        ("cpu", True, "cpu"),
    ],
)
def test_a_gpu_is_one_that_torch_calls_cuda(asked, there, taken, monkeypatch):
    """Left to itself, Lightning takes Apple's, where the first layer would fail for want of 64-bit numbers."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert accelerator(TrainerConfig(accelerator=asked)) == taken
