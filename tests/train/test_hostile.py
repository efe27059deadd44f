"""Folders from somebody who means ill: whatever is in them is read as data, and nothing of it is run."""

import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch

from hqlt_lab.errors import HqltError, TrainingError
from hqlt_lab.train.checkpoints import start_from
from hqlt_lab.train.claim import claim
from hqlt_lab.train.load import cell_in, weights_in
from tests.train.conftest import tiny


class Evil:
    """What touches a file as soon as it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def as_torch_saves(file, mark):
    torch.save({"state_dict": {"model.x": Evil(mark)}, "progress": {}, "cell": "{}", "global_step": 1}, file)


def as_torch_saved_once(file, mark):
    torch.save({"state_dict": Evil(mark)}, file, _use_new_zipfile_serialization=False)


def as_pickle(file, mark):
    file.write_bytes(pickle.dumps(Evil(mark)))


def as_pickle_in_a_zip(file, mark):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Evil(mark), protocol=2))
        archive.writestr("archive/version", "3\n")


def as_a_bomb(file, mark):
    torch.save({"state_dict": {}}, file.with_suffix(".plain"))
    with zipfile.ZipFile(file.with_suffix(".plain")) as plain, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bomb:
        for name in plain.namelist():
            bomb.writestr(name, plain.read(name))
        bomb.writestr("archive/data/0", bytes(5_000_000))
    assert file.stat().st_size < 100_000


KINDS = (as_torch_saves, as_torch_saved_once, as_pickle, as_pickle_in_a_zip, as_a_bomb)


@pytest.mark.parametrize("write", KINDS)
def test_a_hostile_checkpoint_is_refused_and_nothing_of_it_is_run(write, tmp_path):
    folder, mark = tmp_path / "cell", tmp_path / "PWNED"
    claim(folder, tiny())
    write(folder / "last.ckpt", mark)
    with pytest.raises(TrainingError, match=r"last\.ckpt: cannot be read \((UnpicklingError: .*none of|BadZipFile)"):
        weights_in(folder, tiny())
    start = start_from(folder, tiny())
    assert start.checkpoint is None and "could not be read" in start.progress.notes[0]
    assert (folder / "last.damaged").exists() and not mark.exists()


def test_the_attack_would_work_where_pickles_are_read(tmp_path):
    """What the test above guards against is real."""
    as_torch_saves(tmp_path / "evil.ckpt", tmp_path / "PWNED")
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
def test_a_cell_of_somebody_else_names_registered_parts_or_is_refused(change, tmp_path, monkeypatch):
    from hqlt_lab.train.load import restored

    monkeypatch.chdir(tmp_path)
    told = json.loads(json.dumps(tiny().as_dict()))
    text = json.dumps(told | change) if change else "[" * 100_000
    (tmp_path / "cell.json").write_text(text)
    with pytest.raises(HqltError):
        restored(tmp_path, cell_in(tmp_path))
    assert not (tmp_path / "PWNED").exists()
