"""A run in a world: what it leaves behind, and that interrupted and resumed is uninterrupted, bit for bit."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch

from hqlt_lab.errors import ConfigError, TrainingError
from hqlt_lab.registry import build
from hqlt_lab.train.claim import claim
from hqlt_lab.train.fit import fit
from hqlt_lab.train.guard import Diverged
from hqlt_lab.train.interrupt import Interrupted
from hqlt_lab.train.life import Life, in_precision
from hqlt_lab.train.outcome import read_outcome
from tests.agent.conftest import ROOM, tiny
from tests.train.conftest import same, weights

CASES = {
    "maze": {},
    "room, dropout": {"task": ROOM, "model": {"dropout": 0.1}},
    "64 bits": {"trainer": {"precision": "64"}},
}


class Notebook(list):
    """A record that remembers, and does something once some step was told."""

    def __init__(self, at=None, name="train/loss", act=lambda: os.kill(os.getpid(), signal.SIGTERM)):
        super().__init__()
        self.at, self.name, self.act = at, name, act

    def __call__(self, step, metrics):
        self.append((step, metrics))
        if self.at is not None and step >= self.at and self.name in metrics:
            self.at = None
            self.act()

    def curves(self):
        return [(step, {k: v for k, v in told.items() if not k.startswith("speed/")}) for step, told in self]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """By case: where it was trained in one go, what it told and what came of it."""
    known = {}

    def lived(name):
        if name not in known:
            folder, notes = tmp_path_factory.mktemp("straight"), Notebook()
            known[name] = folder, notes, fit(tiny(**CASES[name]), folder, notes)
        return known[name]

    return lived


class PowerCut(Exception):
    """The machine is gone."""


def cut():
    raise PowerCut


def test_a_run_tells_its_curves_and_leaves_its_outcome(tmp_path):
    notes = Notebook()
    outcome = fit(tiny(), tmp_path, notes)
    assert outcome.status == "done" and 60 <= outcome.step < 60 + 2 * 7 and outcome == read_outcome(tmp_path)
    looks = [step for step, told in notes if "valid/return" in told]
    assert looks[0] == 0 and 30 <= looks[1] < 44 and looks[-1] == outcome.step and len(looks) == 3
    learned = [told for _, told in notes if "train/loss" in told]
    assert {"train/critic_loss", "train/actor_loss", "train/entropy", "train/lr", "speed/steps_per_second"} <= {
        *learned[-1]
    }
    assert {"test/return", "test/success", "test/normalised_success", "test/length"} <= set(outcome.metrics)
    assert set(outcome.errors) == {"test/return", "test/success", "test/normalised_success", "test/length"}
    assert outcome.repeatable is True and outcome.parameters > 0 and outcome.tokens_per_second > 0
    kept = {file.name for file in tmp_path.iterdir()}
    assert {"episode.gif", "last.ckpt", "ops.json", "canary.json"} <= kept
    assert not {"replay.bin", "previous.ckpt"} & kept
    assert fit(tiny(), tmp_path, cut) == outcome


def test_updates_are_as_many_as_the_steps_are_worth(tmp_path):
    life = Life(tiny(agent={"updates_per_step": 0.25, "warmup_episodes": 3}), *world_and(tmp_path))
    life.live()
    assert life.counts.episodes == 2 and life.updates_due == 0
    life.live()
    assert life.counts.episodes == 3 and life.updates_due == life.counts.steps // 4
    life.live()
    assert life.counts.episodes == 5 and life.updates_due == life.counts.steps // 4


def world_and(folder):
    return build("task", tiny().task), folder


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_was_asked_to_stop_goes_on_as_if_nothing_happened(tmp_path, undisturbed, name):
    folder, straight, whole = undisturbed(name)
    before, after = Notebook(at=35), Notebook()
    with pytest.raises(Interrupted, match=r"saved at step \d+\. Run the same command again"):
        fit(tiny(**CASES[name]), tmp_path, before)
    rest = fit(tiny(**CASES[name]), tmp_path, after)
    assert same(weights(folder), weights(tmp_path))
    assert whole.metrics == rest.metrics and before.curves() + after.curves() == straight.curves()


def test_a_run_that_is_stopped_between_two_updates_of_a_turn_makes_the_others_first(tmp_path, undisturbed):
    _, straight, whole = undisturbed("room, dropout")
    cell, before, after = tiny(**CASES["room, dropout"]), Notebook(at=35, name="train/return"), Notebook()
    with pytest.raises(Interrupted):
        fit(cell, tmp_path, before)
    counts = torch.load(tmp_path / "last.ckpt", weights_only=True)["counts"]
    assert 0 < counts["updates"] < counts["steps"] // 4
    rest = fit(cell, tmp_path, after)
    assert whole.metrics == rest.metrics and before.curves() + after.curves() == straight.curves()


@pytest.mark.parametrize("at", [10, 35, 55])
def test_a_run_that_dies_repeats_what_it_did_since_its_checkpoint(tmp_path, undisturbed, at):
    folder, straight, whole = undisturbed("maze")
    after = Notebook()
    with pytest.raises(PowerCut):
        fit(tiny(), tmp_path, Notebook(at=at, act=cut))
    rest = fit(tiny(), tmp_path, after)
    assert same(weights(folder), weights(tmp_path))
    assert whole.metrics == rest.metrics
    assert after.curves() == [point for point in straight.curves() if point[0] >= after[0][0]]


def test_killed_at_once_and_run_again_ends_with_the_same_numbers(tmp_path):
    cell = tiny(steps=150, checkpoint_every=30)
    whole = fit(cell, tmp_path / "straight")
    folder = tmp_path / "killed"
    claim(folder, cell)
    command = [sys.executable, "-m", "hqlt_lab.train.cell", str(folder / "cell.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if json.loads(line)["step"] > 70:
                os.kill(process.pid, signal.SIGKILL)
                break
    assert not (folder / "outcome.json").exists() and (folder / "last.ckpt").exists()
    rest = fit(cell, folder)
    assert same(weights(tmp_path / "straight"), weights(folder)) and whole.metrics == rest.metrics


def test_seeds_differ_and_one_seed_repeats(tmp_path, undisturbed):
    folder, _, one = undisturbed("maze")
    again, other = (fit(tiny(seed=seed), tmp_path / str(seed)) for seed in (0, 1))
    assert one.metrics == again.metrics and one.step == again.step
    assert other.status == "done" and not same(weights(folder), weights(tmp_path / "1"))


def test_a_run_stops_where_it_is_solved_and_tests_the_best_weights_if_asked(tmp_path):
    outcome = fit(tiny(stop_at=-1.0), tmp_path / "solved")
    assert outcome.step == 0 and "solved at step 0: valid/success" in outcome.message
    assert (tmp_path / "solved" / "last.ckpt").exists()
    cell = tiny(report="best_valid", keep="best")
    notes = Notebook()
    outcome = fit(cell, tmp_path / "best", notes)
    best = max(told["valid/success"] for _, told in notes if "valid/success" in told)
    assert outcome.metrics["valid/success"] == best and (tmp_path / "best" / "best.ckpt").exists()


def test_a_loss_that_is_no_number_ends_the_run_and_the_batch_is_kept(tmp_path):
    outcome = fit(tiny(lr=1e30, clip=None), tmp_path)
    assert outcome.status == "diverged" and "The batch is in diverged.pt" in outcome.message
    kept = torch.load(tmp_path / "diverged.pt", weights_only=True)
    assert {"update", "observations", "actions", "rewards", "lengths", "model"} <= set(kept)
    assert issubclass(Diverged, TrainingError)


def test_what_does_not_apply_to_a_world_is_told(tmp_path):
    with pytest.raises(ConfigError) as told:
        fit(tiny(accumulate=2, compile=True), tmp_path)
    assert str(told.value).splitlines() == [
        "train.accumulate: task 't_maze' is a world: a batch of episodes is learned from at once. Use 1.",
        "train.compile: task 't_maze' is a world: an agent reads observation by observation. Leave it out.",
    ]


def test_an_agent_is_alone_also_where_slurm_is(tmp_path, monkeypatch):
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    cell = tiny()
    life = Life(cell, build("task", cell.task), tmp_path)  # without a warning, which would be an error here
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}.items():
        monkeypatch.setenv(name, value)
    assert in_precision(life.agent, cell.trainer) is life.agent  # Lightning by itself refuses several tasks
