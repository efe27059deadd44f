"""A disk without room: what was saved stays, nothing half-written counts, and with room again the run goes on."""

import errno
import os
import shutil

import pytest

from hqlt_lab.agent.replay import Replay
from hqlt_lab.files import NoRoom, with_room, write
from hqlt_lab.registry import build
from hqlt_lab.track.spool import Spool
from hqlt_lab.track.spool import read as points_in
from hqlt_lab.train.checkpoints import read
from hqlt_lab.train.fit import fit
from tests.train.conftest import Notebook, same, tiny, weights


class Filler(Notebook):
    """Fills the disk once some metric was told at some step."""

    def __init__(self, disk, step, metric):
        super().__init__()
        self.disk, self.moment = disk, (step, metric)

    def __call__(self, step, metrics):
        super().__call__(step, metrics)
        if self.moment in {(step, name) for name in metrics}:
            self.disk.fill()


@pytest.mark.parametrize(
    ("step", "metric", "saved"),
    [(5, "train/loss", 4), (12, "test/accuracy", 12)],
    ids=["before a checkpoint", "before the outcome"],
)
def test_a_full_disk_leaves_the_last_checkpoint_and_with_room_it_goes_on(small_disk, tmp_path, step, metric, saved):
    straight, folder = fit(tiny(), tmp_path / "straight"), small_disk.folder / "run"
    told = pytest.raises(NoRoom, match=rf"the disk {small_disk.folder} is full .* make room, and run the same command")
    with told, with_room(folder):
        fit(tiny(), folder, Filler(small_disk, step, metric))
    assert read(folder / "last.ckpt")["global_step"] == saved
    assert not list(folder.glob("*.writing")) and not (folder / "outcome.json").exists()
    small_disk.free()
    assert fit(tiny(), folder).metrics == straight.metrics
    assert same(weights(folder), weights(tmp_path / "straight"))


def test_of_a_link_the_disk_is_named_that_it_leads_to(small_disk, tmp_path):
    (tmp_path / "link").symlink_to(small_disk.folder)
    small_disk.fill()
    told = pytest.raises(NoRoom, match=rf"/link: the disk {small_disk.folder} is full \(0 of 32 MB are free\)")
    with told, with_room(tmp_path / "link"):
        write(tmp_path / "link/outcome.json", "new" * 10_000)


def test_checkpoints_need_no_room_on_the_disk_of_temporary_files(small_disk, tmp_path, monkeypatch):
    small_disk.fill()
    monkeypatch.setattr("tempfile.tempdir", str(small_disk.folder))
    assert fit(tiny(steps=4), tmp_path / "run").status == "done"


def test_a_line_that_fits_only_in_part_is_an_error_and_not_half_a_point(small_disk):
    with pytest.raises(OSError, match="No space left") as full, Spool(small_disk.folder) as spool:
        spool.add(1, {"a": 1.0})
        small_disk.fill()
        for step in range(2, 1000):  # the rest of the file's last block takes some, and a part of one
            spool.add(step, {"a": 1.0})
            added = step
    assert full.value.errno == errno.ENOSPC
    there = [point.step for point in points_in(small_disk.folder)[0]]
    small_disk.free()
    with Spool(small_disk.folder) as spool:
        for step in range(2, 1000):
            spool.add(step, {"a": 1.0})
    assert there == list(range(1, added + 1)) and added < 999
    assert [point.step for point in points_in(small_disk.folder)[0]] == list(range(1, 1000))


def test_a_file_that_does_not_fit_leaves_the_old_one(small_disk):
    file = small_disk.folder / "outcome.json"
    write(file, "old")
    small_disk.fill()
    with pytest.raises(OSError, match="No space left"):
        write(file, "new" * 10_000)
    assert file.read_text() == "old" and sorted(os.listdir(small_disk.folder)) == ["ballast", "outcome.json"]


def test_episodes_without_room_are_an_error_and_do_not_end_the_process(small_disk):
    small_disk.fill()
    with pytest.raises(OSError, match="No space left"):
        Replay(small_disk.folder, build("task", {"name": "t_maze"}), steps=1000)
    assert shutil.disk_usage(small_disk.folder).free == 0
