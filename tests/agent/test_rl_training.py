"""Training runs of agents: their output files, and bit-identical results after interruption and resumption."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch

from hqlt_lab.errors import ConfigError, TrainingError
from hqlt_lab.registry import build
from hqlt_lab.rundir.cell_file import write_cell
from hqlt_lab.rundir.outcome import read_outcome
from hqlt_lab.train.divergence import DivergenceError
from hqlt_lab.train.fit import fit
from hqlt_lab.train.interrupt import RunInterrupted
from hqlt_lab.train.rl.sac_trainer import SacTrainer, set_up_agent_device
from tests.agent.conftest import MATCH, make_cell
from tests.issues import list_codes
from tests.train.conftest import equal_weights, last_weights

CASES = {
    "maze": {},
    "room, dropout": {"task": MATCH, "model": {"dropout": 0.1}},
    "64 bits": {"trainer": {"precision": "64"}},
    "late memory": {"memories": {"fw": {"start_step": 45, "lr_scale": 0.5}, "kv": {"start_step": 15}}},
}


class MetricsRecorder(list):
    """Records logged metrics and calls a function once a metric is logged at or after a step."""

    def __init__(self, at=None, name="train/loss", action=lambda: os.kill(os.getpid(), signal.SIGTERM)):
        super().__init__()
        self.at, self.name, self.action = at, name, action

    def __call__(self, step, metrics):
        self.append((step, metrics))
        if self.at is not None and step >= self.at and self.name in metrics:
            self.at = None
            self.action()

    def curves(self):
        """Return the recorded metrics without speeds."""
        return [(step, {k: v for k, v in metrics.items() if not k.startswith("speed/")}) for step, metrics in self]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A function from the name of a case to the folder, recorder and outcome of its uninterrupted run."""
    runs = {}

    def get_run(name):
        if name not in runs:
            folder, recorder = tmp_path_factory.mktemp("uninterrupted"), MetricsRecorder()
            runs[name] = folder, recorder, fit(make_cell(**CASES[name]), folder, recorder)
        return runs[name]

    return get_run


class SimulatedCrash(Exception):
    """Stands for the death of the process."""


def crash(*_):
    raise SimulatedCrash


def test_run_logs_metrics_and_writes_its_outcome(tmp_path):
    recorder = MetricsRecorder()
    outcome = fit(make_cell(), tmp_path, recorder)
    assert outcome.status == "done" and 60 <= outcome.step < 60 + 2 * 7 and outcome == read_outcome(tmp_path)
    validated = [step for step, metrics in recorder if "valid/return" in metrics]
    assert validated[0] == 0 and 30 <= validated[1] < 44 and validated[-1] == outcome.step and len(validated) == 3
    updates = [metrics for _, metrics in recorder if "train/loss" in metrics]
    assert {"train/critic_loss", "train/actor_loss", "train/entropy", "train/lr"} <= set(updates[-1])
    assert "speed/steps_per_second" in updates[-1]
    assert {"test/return", "test/success", "test/normalized_success", "test/length"} <= set(outcome.metrics)
    assert set(outcome.errors) == {"test/return", "test/success", "test/normalized_success", "test/length"}
    assert outcome.repeatable is True and outcome.parameters > 0 and outcome.tokens_per_second > 0
    files = {file.name for file in tmp_path.iterdir()}
    assert {"episode.gif", "last.ckpt", "ops.json", "determinism.json"} <= files
    assert not {"replay.bin", "previous.ckpt"} & files
    assert fit(make_cell(), tmp_path, crash) == outcome


def test_a_memory_of_an_agent_is_silent_and_frozen_until_it_starts(tmp_path):
    cell = make_cell(memories={"fw": {"start_step": 20, "lr_scale": 0.5}}, weight_decay=1.0)
    trainer = SacTrainer(cell, build("task", cell.task), tmp_path)
    weight = trainer.agent.memory.memories[0].update_rule.to_beta.weight
    initial = weight.detach().clone()
    while trainer.counters.steps < 20:
        trainer.collect_episodes()
        assert trainer.agent.memory.memories[0].silent == ("fw",)
        if trainer.counters.updates < trainer.num_updates_due and trainer.counters.steps < 20:
            trainer.update_weights()
            assert torch.equal(weight, initial)
    trainer.collect_episodes()
    trainer.update_weights()
    assert trainer.agent.memory.memories[0].silent == () and not torch.equal(weight, initial)
    *_, group = trainer.optimizer.param_groups
    assert group["lr"] == pytest.approx(0.5 * trainer.update_metrics["train/lr"])


def test_number_of_updates_is_proportional_to_the_steps(tmp_path):
    cell = make_cell(agent={"updates_per_step": 0.25, "warmup_episodes": 3})
    trainer = SacTrainer(cell, build("task", cell.task), tmp_path)
    trainer.collect_episodes()
    assert trainer.counters.episodes == 2 and trainer.num_updates_due == 0
    trainer.collect_episodes()
    assert trainer.counters.episodes == 3 and trainer.num_updates_due == trainer.counters.steps // 4
    trainer.collect_episodes()
    assert trainer.counters.episodes == 5 and trainer.num_updates_due == trainer.counters.steps // 4


@pytest.mark.parametrize("name", CASES)
def test_run_interrupted_by_sigterm_resumes_with_identical_results(tmp_path, uninterrupted, name):
    folder, expected_curves, expected = uninterrupted(name)
    before, after = MetricsRecorder(at=35), MetricsRecorder()
    with pytest.raises(RunInterrupted, match=r"saved at step \d+\. Run the same command again"):
        fit(make_cell(**CASES[name]), tmp_path, before)
    resumed = fit(make_cell(**CASES[name]), tmp_path, after)
    assert equal_weights(last_weights(folder), last_weights(tmp_path))
    assert resumed.metrics == expected.metrics
    assert before.curves() + after.curves() == expected_curves.curves()


def test_run_interrupted_between_updates_of_an_iteration_resumes_with_the_remaining_ones(tmp_path, uninterrupted):
    _, expected_curves, expected = uninterrupted("room, dropout")
    cell = make_cell(**CASES["room, dropout"])
    before, after = MetricsRecorder(at=35, name="train/return"), MetricsRecorder()
    with pytest.raises(RunInterrupted):
        fit(cell, tmp_path, before)
    counts = torch.load(tmp_path / "last.ckpt", weights_only=True)["counts"]
    assert 0 < counts["updates"] < counts["steps"] // 4
    resumed = fit(cell, tmp_path, after)
    assert resumed.metrics == expected.metrics
    assert before.curves() + after.curves() == expected_curves.curves()


def test_checkpoint_restores_the_metrics_of_the_last_update(tmp_path):
    cell = make_cell()
    trainer = SacTrainer(cell, build("task", cell.task), tmp_path)
    trainer.update_metrics = {"train/critic_loss": 0.5}
    resumed = SacTrainer(cell, build("task", cell.task), tmp_path, trainer.state_dict())
    assert resumed.update_metrics == {"train/critic_loss": 0.5}


@pytest.mark.parametrize("at", [10, 35, 55])
def test_crashed_run_repeats_the_steps_since_its_checkpoint(tmp_path, uninterrupted, at):
    folder, expected_curves, expected = uninterrupted("maze")
    after = MetricsRecorder()
    with pytest.raises(SimulatedCrash):
        fit(make_cell(), tmp_path, MetricsRecorder(at=at, action=crash))
    resumed = fit(make_cell(), tmp_path, after)
    assert equal_weights(last_weights(folder), last_weights(tmp_path))
    assert resumed.metrics == expected.metrics
    assert after.curves() == [point for point in expected_curves.curves() if point[0] >= after[0][0]]


def test_run_killed_by_sigkill_resumes_with_identical_results(tmp_path):
    cell = make_cell(steps=150, checkpoint_every=30)
    expected = fit(cell, tmp_path / "uninterrupted")
    folder = tmp_path / "killed"
    write_cell(folder, cell)
    command = [sys.executable, "-m", "hqlt_lab.train.distributed.rank_main", str(folder / "cell.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if json.loads(line)["step"] > 70:
                os.kill(process.pid, signal.SIGKILL)
                break
    assert not (folder / "outcome.json").exists() and (folder / "last.ckpt").exists()
    resumed = fit(cell, folder)
    assert equal_weights(last_weights(tmp_path / "uninterrupted"), last_weights(folder))
    assert resumed.metrics == expected.metrics


def test_same_seed_is_reproducible_and_other_seeds_differ(tmp_path, uninterrupted):
    folder, _, expected = uninterrupted("maze")
    repeated, other_seed = (fit(make_cell(seed=seed), tmp_path / str(seed)) for seed in (0, 1))
    assert repeated.metrics == expected.metrics and repeated.step == expected.step
    assert other_seed.status == "done" and not equal_weights(last_weights(folder), last_weights(tmp_path / "1"))


def test_run_stops_when_solved_and_can_report_the_best_weights(tmp_path):
    outcome = fit(make_cell(stop_at=-1.0), tmp_path / "solved")
    assert outcome.step == 0 and "solved at step 0: valid/success" in outcome.message
    assert (tmp_path / "solved" / "last.ckpt").exists()
    cell = make_cell(report="best_valid", keep="best")
    recorder = MetricsRecorder()
    outcome = fit(cell, tmp_path / "best", recorder)
    best = max(metrics["valid/success"] for _, metrics in recorder if "valid/success" in metrics)
    assert outcome.metrics["valid/success"] == best and (tmp_path / "best" / "best.ckpt").exists()


def test_diverged_run_ends_and_saves_the_failing_batch(tmp_path):
    outcome = fit(make_cell(lr=1e30, clip=None), tmp_path)
    assert outcome.status == "diverged" and "The batch is in diverged.pt" in outcome.message
    saved = torch.load(tmp_path / "diverged.pt", weights_only=True)
    assert {"update", "observations", "actions", "rewards", "lengths", "model"} <= set(saved)
    assert issubclass(DivergenceError, TrainingError)


def test_train_settings_that_do_not_apply_to_environments_are_errors(tmp_path):
    with pytest.raises(ConfigError) as error:
        fit(make_cell(accumulate=2, compile=True), tmp_path)
    code = "not_supported_for_agents"
    assert list_codes(error.value) == [("train.accumulate", code), ("train.compile", code)]


def test_agent_trains_in_a_single_process_inside_a_slurm_job(tmp_path, monkeypatch):
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    cell = make_cell()
    trainer = SacTrainer(cell, build("task", cell.task), tmp_path)  # a warning would be an error here
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}.items():
        monkeypatch.setenv(name, value)
    # Lightning alone would refuse several SLURM tasks
    assert set_up_agent_device(trainer.agent, cell.trainer) is trainer.agent
