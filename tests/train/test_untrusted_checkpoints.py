"""Untrusted run folders: their files are read as data, and no code in them is executed."""

import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch

from hqlt_lab.errors import HqltError, TrainingError
from hqlt_lab.rundir.cell_file import read_cell, write_cell
from hqlt_lab.train.checkpoints.resume_point import find_resume_point
from hqlt_lab.train.load_trained_model import read_weights
from tests.train.conftest import tiny_cell


class MaliciousPickle:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def write_torch_zip(file, marker):
    torch.save(
        {"state_dict": {"model.x": MaliciousPickle(marker)}, "trainer_state": {}, "cell": "{}", "global_step": 1}, file
    )


def write_legacy_torch(file, marker):
    torch.save({"state_dict": MaliciousPickle(marker)}, file, _use_new_zipfile_serialization=False)


def write_pickle(file, marker):
    file.write_bytes(pickle.dumps(MaliciousPickle(marker)))


def write_pickle_zip(file, marker):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(MaliciousPickle(marker), protocol=2))
        archive.writestr("archive/version", "3\n")


def write_zip_bomb(file, marker):
    torch.save({"state_dict": {}}, file.with_suffix(".plain"))
    with zipfile.ZipFile(file.with_suffix(".plain")) as plain, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bomb:
        for name in plain.namelist():
            bomb.writestr(name, plain.read(name))
        bomb.writestr("archive/data/0", bytes(5_000_000))
    assert file.stat().st_size < 100_000


ATTACKS = (write_torch_zip, write_legacy_torch, write_pickle, write_pickle_zip, write_zip_bomb)


@pytest.mark.parametrize("write", ATTACKS)
def test_a_malicious_checkpoint_is_refused_without_executing_it(write, tmp_path):
    folder, marker = tmp_path / "cell", tmp_path / "PWNED"
    write_cell(folder, tiny_cell())
    write(folder / "last.ckpt", marker)
    with pytest.raises(TrainingError, match=r"last\.ckpt: the file cannot be read \((UnpicklingError|BadZipFile)"):
        read_weights(folder, tiny_cell())
    resume_point = find_resume_point(folder, tiny_cell())
    assert resume_point.checkpoint is None and "could not be read" in resume_point.trainer_state.notes[0]
    assert (folder / "last.damaged").exists() and not marker.exists()


def test_the_attack_works_if_pickles_are_loaded(tmp_path):
    """Shows that the test above would notice executed code."""
    write_torch_zip(tmp_path / "evil.ckpt", tmp_path / "PWNED")
    torch.load(tmp_path / "evil.ckpt", weights_only=False)
    assert (tmp_path / "PWNED").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"task": {"name": "os.system", "command": "touch PWNED"}},
        {"task": "/etc/passwd"},
        {"task": {"name": "../../evil"}},
        {"model": {"mixer": {"name": "builtins.eval"}}},
        {"model": []},
        {"train": {"steps": 10**30}},
        {"trainer": None},
        {"measure": {"select": 1}},
        {"plugins": ["os.system"]},
        None,
    ],
    ids=str,
)
def test_an_untrusted_cell_file_must_name_registered_components(change, tmp_path, monkeypatch):
    from hqlt_lab.train.load_trained_model import restore_model

    monkeypatch.chdir(tmp_path)
    cell_dict = json.loads(json.dumps(tiny_cell().to_dict()))
    text = json.dumps(cell_dict | change) if change else "[" * 100_000
    (tmp_path / "cell.json").write_text(text)
    with pytest.raises(HqltError):
        restore_model(tmp_path, read_cell(tmp_path))
    assert not (tmp_path / "PWNED").exists()
