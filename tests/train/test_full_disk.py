"""A full disk: saved files stay intact, partly written ones are ignored, and the run resumes once there is space."""

import errno
import os
import shutil

import pytest

from hqlt_lab.agent.replay_buffer import ReplayBuffer
from hqlt_lab.files import DiskFull, translate_disk_full, write_atomic
from hqlt_lab.registry import build
from hqlt_lab.rundir.metrics import MetricsWriter, read_rows
from hqlt_lab.train.checkpoints.checkpoint_io import read_checkpoint
from hqlt_lab.train.fit import fit
from tests.train.conftest import MetricsLog, equal_weights, last_weights, tiny_cell


class DiskFillingLog(MetricsLog):
    """Fills the disk once a given metric is logged at a given step."""

    def __init__(self, disk, step, metric):
        super().__init__()
        self.disk, self.fill_at = disk, (step, metric)

    def __call__(self, step, metrics):
        super().__call__(step, metrics)
        if self.fill_at in {(step, name) for name in metrics}:
            self.disk.fill()


@pytest.mark.parametrize(
    ("step", "metric", "saved"),
    [(5, "train/loss", 4), (12, "test/accuracy", 12)],
    ids=["before a checkpoint", "before the outcome"],
)
def test_a_run_on_a_full_disk_keeps_its_last_checkpoint_and_resumes_with_space(
    small_disk, tmp_path, step, metric, saved
):
    straight, folder = fit(tiny_cell(), tmp_path / "straight"), small_disk.folder / "run"
    message = rf"the disk {small_disk.folder} is full .* free some space, and run the same command"
    with pytest.raises(DiskFull, match=message), translate_disk_full(folder):
        fit(tiny_cell(), folder, DiskFillingLog(small_disk, step, metric))
    assert read_checkpoint(folder / "last.ckpt")["global_step"] == saved
    assert not list(folder.glob("*.writing")) and not (folder / "outcome.json").exists()
    small_disk.free()
    assert fit(tiny_cell(), folder).metrics == straight.metrics
    assert equal_weights(last_weights(folder), last_weights(tmp_path / "straight"))


def test_the_error_names_the_disk_that_a_symlink_leads_to(small_disk, tmp_path):
    (tmp_path / "link").symlink_to(small_disk.folder)
    small_disk.fill()
    message = rf"/link: the disk {small_disk.folder} is full \(0 of 32 MB are free\)"
    with pytest.raises(DiskFull, match=message), translate_disk_full(tmp_path / "link"):
        write_atomic(tmp_path / "link/outcome.json", "new" * 10_000)


def test_checkpoints_need_no_space_in_the_temporary_directory(small_disk, tmp_path, monkeypatch):
    small_disk.fill()
    monkeypatch.setattr("tempfile.tempdir", str(small_disk.folder))
    assert fit(tiny_cell(steps=4), tmp_path / "run").status == "done"


def test_a_line_that_does_not_fit_raises_and_leaves_no_partial_point(small_disk):
    with pytest.raises(OSError, match="No space left") as raised, MetricsWriter(small_disk.folder) as writer:
        writer.write_row(1, {"a": 1.0})
        small_disk.fill()
        for step in range(2, 1000):  # some lines, and a part of one, still fit into the last block of the file
            writer.write_row(step, {"a": 1.0})
            last_written = step
    assert raised.value.errno == errno.ENOSPC
    steps = [point.step for point in read_rows(small_disk.folder)[0]]
    small_disk.free()
    with MetricsWriter(small_disk.folder) as writer:
        for step in range(2, 1000):
            writer.write_row(step, {"a": 1.0})
    assert steps == list(range(1, last_written + 1)) and last_written < 999
    assert [point.step for point in read_rows(small_disk.folder)[0]] == list(range(1, 1000))


def test_a_file_that_does_not_fit_leaves_the_old_one_intact(small_disk):
    file = small_disk.folder / "outcome.json"
    write_atomic(file, "old")
    small_disk.fill()
    with pytest.raises(OSError, match="No space left"):
        write_atomic(file, "new" * 10_000)
    assert file.read_text() == "old" and sorted(os.listdir(small_disk.folder)) == ["ballast", "outcome.json"]


def test_a_replay_buffer_without_space_raises_instead_of_crashing_the_process(small_disk):
    small_disk.fill()
    with pytest.raises(OSError, match="No space left"):
        ReplayBuffer(small_disk.folder, build("task", {"name": "t_maze"}), capacity_steps=1000)
    assert shutil.disk_usage(small_disk.folder).free == 0
