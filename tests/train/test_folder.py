"""A folder belongs to one cell, and what is damaged in it is noticed."""

import dataclasses
import errno
import json
import random

import pytest
import torch

from hqlt_lab.errors import StoreError, TrainingError
from hqlt_lab.experiment.cell import cell_from
from hqlt_lab.train.checkpoints import DAMAGED, passing, read
from hqlt_lab.train.fit import fit
from hqlt_lab.train.interrupt import Interrupted
from hqlt_lab.train.outcome import Outcome, read_outcome
from tests.train.conftest import Notebook, same, tiny, weights


def broken_off(folder, step=9, **changes):
    with pytest.raises(Interrupted):
        fit(tiny(**changes), folder, Notebook(stop_at=step))


@pytest.mark.parametrize("stop", [None, 5], ids=["finished", "interrupted"])
def test_the_folder_of_another_cell_is_refused(folder, stop):
    fit(tiny(), folder) if stop is None else broken_off(folder, stop)
    with pytest.raises(TrainingError, match=r"another cell \(train.lr is 0.001 there, 0.01 here\). Use another folder"):
        fit(tiny(lr=0.01), folder)


def test_a_checkpoint_of_another_cell_is_refused(folder, tmp_path):
    broken_off(folder)
    (tmp_path / "other").mkdir()
    (folder / "last.ckpt").rename(tmp_path / "other/last.ckpt")
    with pytest.raises(TrainingError, match="seed is 0 there, 1 here"):
        fit(tiny(seed=1), tmp_path / "other")


def test_a_run_may_go_on_with_another_name_and_other_pieces(folder, tmp_path):
    fit(tiny(precision="64"), tmp_path / "straight")
    broken_off(folder, step=4, precision="64", accumulate=2)
    fit(dataclasses.replace(tiny(precision="64", accumulate=3, log_every=2), arm="renamed"), folder)
    torch.testing.assert_close(weights(folder), weights(tmp_path / "straight"))


def cut(file):
    file.write_bytes(file.read_bytes()[:-500])


def flip(file):
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 128] = bytes(
        byte ^ 255 for byte in content[middle : middle + 128]
    )  # padding is 63 at most
    file.write_bytes(content)


def empty(file):
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, empty])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_taken(folder, tmp_path, damage, capfd):
    straight = fit(tiny(), tmp_path / "straight")
    broken_off(folder)  # checkpoints at 8 and 10
    damage(folder / "last.ckpt")
    notes = Notebook()
    outcome = fit(tiny(), folder, notes)
    assert notes[0][0] == 9
    assert outcome.message.startswith("last.ckpt could not be read") and outcome.metrics == straight.metrics
    assert same(weights(folder), weights(tmp_path / "straight"))
    assert "set aside.\nThe run goes on from previous.ckpt, which is of step 8.\n" in capfd.readouterr().err


def test_with_both_checkpoints_damaged_it_starts_again(folder):
    broken_off(folder)
    cut(folder / "last.ckpt")
    empty(folder / "previous.ckpt")
    notes = Notebook()
    message = fit(tiny(), folder, notes).message
    assert notes[0][0] == 1 and "last.ckpt" in message and "previous.ckpt" in message
    assert message.endswith("The run begins anew.")


def test_a_flipped_bit_is_noticed_wherever_it_is(folder):
    """Also in the archive's table of contents, which its own sums leave out: torch would read noise."""
    broken_off(folder)
    whole, damaged, draw = (folder / "last.ckpt").read_bytes(), folder / "flipped.ckpt", random.Random(0)
    end = len(whole) - 10  # then two bytes that say how long the sum is, which harm nobody, and the sum
    for place in [*(draw.randrange(end) for _ in range(40)), *(draw.randrange(end - 5000, end) for _ in range(80))]:
        content = bytearray(whole)
        content[place] ^= 1 << draw.randrange(8)
        damaged.write_bytes(content)
        with pytest.raises(DAMAGED):
            read(damaged)


def test_best_weights_that_are_damaged_are_found_again_from_the_beginning(folder, tmp_path):
    best = {"report": "best_valid", "keep": "best"}
    straight = fit(tiny(**best), tmp_path / "straight")
    broken_off(folder, **best)
    flip(folder / "best.ckpt")
    notes = Notebook()
    outcome = fit(tiny(**best), folder, notes)
    assert notes[0][0] == 1 and outcome.metrics == straight.metrics
    assert outcome.message.startswith("best.ckpt could not be read (BadZipFile) and was set aside.")


class Mortal(Notebook):
    """Dies at a step, with whoever listens to it."""

    def __call__(self, step, metrics):
        if step == self.stop_at:
            raise RuntimeError("killed")
        self.append((step, metrics))


def test_a_run_that_begins_anew_and_is_killed_does_not_go_on_from_what_was_before(folder, tmp_path):
    """The best weights would be of the new run, and what is known of them of the old one."""
    best = {"report": "best_valid", "keep": "best", "valid_every": 2, "checkpoint_every": 8}
    straight = fit(tiny(**best), tmp_path / "straight")
    broken_off(folder, **best)
    flip(folder / "best.ckpt")
    with pytest.raises(RuntimeError, match="killed"):
        fit(tiny(**best), folder, Mortal(stop_at=4))
    assert (folder / "best.ckpt").exists() and not (folder / "last.ckpt").exists()
    notes = Notebook()
    assert fit(tiny(**best), folder, notes).metrics == straight.metrics
    assert notes[0][0] == 1 and same(best_weights(folder), best_weights(tmp_path / "straight"))


def best_weights(folder):
    return torch.load(folder / "best.ckpt", weights_only=True)["state_dict"]


def test_checkpoints_can_be_read_without_trusting_them_and_tell_their_cell(folder):
    broken_off(folder)
    stored = torch.load(folder / "last.ckpt", weights_only=True)
    assert cell_from(json.loads(stored["cell"])).as_dict() == json.loads(json.dumps(tiny().as_dict()))
    assert stored["global_step"] == 10
    assert not list(folder.glob("*.writing"))


@pytest.mark.parametrize(
    ("keep", "left"), [("last", ["last.ckpt"]), ("best", ["best.ckpt"]), ("none", [])], ids=["last", "best", "none"]
)
def test_what_is_asked_for_is_kept(folder, keep, left):
    fit(tiny(keep=keep), folder)
    assert [file.name for file in sorted(folder.glob("*.ckpt"))] == left
    if left:
        assert all(name.startswith("model.") for name in torch.load(folder / left[0], weights_only=True)["state_dict"])


def test_an_outcome_survives_its_file_and_replaces_it_whole(folder):
    folder.mkdir()
    outcome = Outcome(
        status="done", step=3, metrics={"a": 0.1 + 0.2}, seconds=1.5, tokens_per_second=2.0, parameters=7, message="hm."
    )
    assert read_outcome(folder) is None
    outcome.write(folder)
    assert read_outcome(folder) == outcome
    (folder / "outcome.json.1.writing").write_text("{")  # a crash while writing leaves the old one
    assert read_outcome(folder) == outcome


def test_a_disk_or_a_memory_that_fails_is_no_damage(folder):
    broken_off(folder)
    assert passing(OSError(errno.EIO, "the disk")) and passing(RuntimeError("can't allocate memory: 9 bytes"))
    assert not passing(RuntimeError("failed finding central directory")) and not passing(OSError(errno.EINVAL, ""))
    (folder / "last.ckpt").rename(folder / "kept")
    (folder / "last.ckpt").mkdir()  # cannot be read, as when a network disk is away
    with pytest.raises(OSError):
        fit(tiny(), folder)
    assert (folder / "last.ckpt").exists()


@pytest.mark.parametrize("name", ["cell.json", "outcome.json"])
def test_a_damaged_file_of_a_cell_is_named(folder, name):
    fit(tiny(), folder)
    (folder / name).write_text('{"half": ')
    with pytest.raises(StoreError, match=rf"{name}: it is damaged .* Remove it, and what it told is found out again"):
        fit(tiny(), folder)
