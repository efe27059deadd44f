"""A folder belongs to one cell, and corrupt files in it are detected."""

import dataclasses
import errno
import json
import random

import pytest
import torch

from hqlt_lab.errors import StoreError, TrainingError
from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.cell import cell_from_dict
from hqlt_lab.rundir.outcome import Outcome, read_outcome
from hqlt_lab.train.checkpoints.checkpoint_io import CORRUPTION_ERRORS, read_checkpoint, write_checkpoint
from hqlt_lab.train.checkpoints.resume_point import find_resume_point, is_transient_error
from hqlt_lab.train.fit import fit
from hqlt_lab.train.interrupt import RunInterrupted
from hqlt_lab.train.trainer_state import TrainerState
from tests.train.conftest import MetricsLog, equal_weights, last_weights, tiny_cell


def interrupt_run(folder, step=9, **changes):
    with pytest.raises(RunInterrupted):
        fit(tiny_cell(**changes), folder, MetricsLog(stop_at=step))


@pytest.mark.parametrize("stop_at", [None, 5], ids=["finished", "interrupted"])
def test_the_folder_of_another_cell_is_refused(folder, stop_at):
    fit(tiny_cell(), folder) if stop_at is None else interrupt_run(folder, stop_at)
    with pytest.raises(TrainingError, match=r"\(train.lr is 0.001 instead of 0.01\)"):
        fit(tiny_cell(lr=0.01), folder)


def test_a_checkpoint_of_another_cell_is_refused(folder, tmp_path):
    interrupt_run(folder)
    (tmp_path / "other").mkdir()
    (folder / "last.ckpt").rename(tmp_path / "other/last.ckpt")
    with pytest.raises(TrainingError, match=r"\(seed is 0 instead of 1\)"):
        fit(tiny_cell(seed=1), tmp_path / "other")


def test_a_run_can_be_resumed_with_another_name_and_other_micro_batches(folder, tmp_path):
    fit(tiny_cell(precision="64"), tmp_path / "straight")
    interrupt_run(folder, step=4, precision="64", accumulate=2)
    fit(dataclasses.replace(tiny_cell(precision="64", accumulate=3, log_every=2), arm=ArmTitle("renamed")), folder)
    torch.testing.assert_close(last_weights(folder), last_weights(tmp_path / "straight"))


def truncate_file(file):
    file.write_bytes(file.read_bytes()[:-500])


def flip_bits(file):
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    # 128 bytes, because up to 63 may be padding
    content[middle : middle + 128] = bytes(byte ^ 255 for byte in content[middle : middle + 128])
    file.write_bytes(content)


def empty_file(file):
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate_file, flip_bits, empty_file])
def test_a_corrupt_checkpoint_is_detected_and_the_previous_one_used(folder, tmp_path, damage, caplog):
    straight = fit(tiny_cell(), tmp_path / "straight")
    interrupt_run(folder)  # checkpoints at 8 and 10
    damage(folder / "last.ckpt")
    log = MetricsLog()
    outcome = fit(tiny_cell(), folder, log)
    assert log[0][0] == 9
    assert outcome.message.startswith("last.ckpt could not be read") and outcome.metrics == straight.metrics
    assert equal_weights(last_weights(folder), last_weights(tmp_path / "straight"))
    assert [record.name for record in caplog.records] == ["hqlt_lab.train.checkpoints.resume_point"] * 2
    assert "previous.ckpt" in caplog.messages[1]


@pytest.mark.parametrize(
    "cell", ["", "[" * 100_000, "[]", '{"task": {}}', None], ids=["", "deep", "list", "part", "None"]
)
def test_a_checkpoint_whose_cell_is_damaged_is_set_aside(tmp_path, cell):
    intact = {
        "trainer_state": dataclasses.asdict(TrainerState()),
        "cell": json.dumps(tiny_cell().to_dict()),
        "global_step": 3,
    }
    write_checkpoint(intact | {"cell": cell}, tmp_path / "last.ckpt")
    write_checkpoint(intact, tmp_path / "previous.ckpt")
    resume_point = find_resume_point(tmp_path, tiny_cell())
    assert resume_point.checkpoint == tmp_path / "previous.ckpt" and resume_point.step == 3
    assert "last.ckpt" in resume_point.trainer_state.notes[0] and (tmp_path / "last.damaged").exists()


def test_with_both_checkpoints_corrupt_training_starts_again(folder):
    interrupt_run(folder)
    truncate_file(folder / "last.ckpt")
    empty_file(folder / "previous.ckpt")
    log = MetricsLog()
    message = fit(tiny_cell(), folder, log).message
    assert log[0][0] == 1 and "last.ckpt" in message and "previous.ckpt" in message
    assert message.endswith("The run starts from the beginning.")


def test_a_flipped_bit_is_detected_anywhere_in_the_file(folder):
    """The archive's own checksums do not cover its directory, so torch would read wrong data."""
    interrupt_run(folder)
    original, corrupt, rng = (folder / "last.ckpt").read_bytes(), folder / "flipped.ckpt", random.Random(0)
    end = len(original) - 10  # the last bytes are the length of the checksum, which is harmless, and the checksum
    for offset in [*(rng.randrange(end) for _ in range(40)), *(rng.randrange(end - 5000, end) for _ in range(80))]:
        content = bytearray(original)
        content[offset] ^= 1 << rng.randrange(8)
        corrupt.write_bytes(content)
        with pytest.raises(CORRUPTION_ERRORS):
            read_checkpoint(corrupt)


def test_with_corrupt_best_weights_training_starts_again(folder, tmp_path):
    best = {"report": "best_valid", "keep": "best"}
    straight = fit(tiny_cell(**best), tmp_path / "straight")
    interrupt_run(folder, **best)
    flip_bits(folder / "best.ckpt")
    log = MetricsLog()
    outcome = fit(tiny_cell(**best), folder, log)
    assert log[0][0] == 1 and outcome.metrics == straight.metrics
    assert outcome.message.startswith("best.ckpt could not be read (BadZipFile) and was set aside.")


class CrashingLog(MetricsLog):
    """Raises an error at a step, which ends the run."""

    def __call__(self, step, metrics):
        if step == self.stop_at:
            raise RuntimeError("killed")
        self.append((step, metrics))


def test_a_run_that_started_again_and_was_killed_does_not_resume_from_the_old_checkpoint(folder, tmp_path):
    """A run resumed from the old checkpoint would have best.ckpt of the new run and the best metrics of the old one."""
    best = {"report": "best_valid", "keep": "best", "valid_every": 2, "checkpoint_every": 8}
    straight = fit(tiny_cell(**best), tmp_path / "straight")
    interrupt_run(folder, **best)
    flip_bits(folder / "best.ckpt")
    with pytest.raises(RuntimeError, match="killed"):
        fit(tiny_cell(**best), folder, CrashingLog(stop_at=4))
    assert (folder / "best.ckpt").exists() and not (folder / "last.ckpt").exists()
    log = MetricsLog()
    assert fit(tiny_cell(**best), folder, log).metrics == straight.metrics
    assert log[0][0] == 1 and equal_weights(best_weights(folder), best_weights(tmp_path / "straight"))


def best_weights(folder):
    return torch.load(folder / "best.ckpt", weights_only=True)["state_dict"]


def test_checkpoints_are_loadable_with_weights_only_and_contain_their_cell(folder):
    interrupt_run(folder)
    checkpoint = torch.load(folder / "last.ckpt", weights_only=True)
    assert cell_from_dict(json.loads(checkpoint["cell"])).to_dict() == json.loads(json.dumps(tiny_cell().to_dict()))
    assert checkpoint["global_step"] == 10
    assert not list(folder.glob("*.writing"))


@pytest.mark.parametrize(
    ("keep", "expected"), [("last", ["last.ckpt"]), ("best", ["best.ckpt"]), ("none", [])], ids=["last", "best", "none"]
)
def test_only_the_configured_checkpoint_is_kept(folder, keep, expected):
    fit(tiny_cell(keep=keep), folder)
    assert [file.name for file in sorted(folder.glob("*.ckpt"))] == expected
    for name in expected:
        weights = torch.load(folder / name, weights_only=True)["state_dict"]
        assert all(parameter.startswith("model.") for parameter in weights)


def test_an_outcome_is_read_as_written_and_replaced_atomically(folder):
    folder.mkdir()
    outcome = Outcome(
        status="done", step=3, metrics={"a": 0.1 + 0.2}, seconds=1.5, tokens_per_second=2.0, parameters=7, message="hm."
    )
    assert read_outcome(folder) is None
    outcome.write(folder)
    assert read_outcome(folder) == outcome
    (folder / "outcome.json.1.writing").write_text("{")  # left by a crash while writing
    assert read_outcome(folder) == outcome


def test_errors_of_the_disk_or_memory_do_not_count_as_corruption(folder):
    interrupt_run(folder)
    assert is_transient_error(OSError(errno.EIO, "the disk"))
    assert is_transient_error(RuntimeError("can't allocate memory: 9 bytes"))
    assert not is_transient_error(RuntimeError("failed finding central directory"))
    assert not is_transient_error(OSError(errno.EINVAL, ""))
    (folder / "last.ckpt").rename(folder / "kept")
    (folder / "last.ckpt").mkdir()  # unreadable, as if a network disk were unavailable
    with pytest.raises(OSError):
        fit(tiny_cell(), folder)
    assert (folder / "last.ckpt").exists()


@pytest.mark.parametrize("name", ["cell.json", "outcome.json"])
def test_a_corrupt_json_file_is_named_in_the_error(folder, name):
    fit(tiny_cell(), folder)
    (folder / name).write_text('{"half": ')
    with pytest.raises(
        StoreError, match=(f"{name}: the file is damaged .* Remove the file; its content is computed again")
    ):
        fit(tiny_cell(), folder)
