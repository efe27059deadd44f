"""Processes read their rank, start children without it, and debounce stop signals."""

import signal

import pytest

from hqlt_lab.experiment.run_settings import TrainerConfig
from hqlt_lab.train import interrupt
from hqlt_lab.train.distributed.env import is_rank_zero, srun_command, strip_rank_env
from hqlt_lab.train.interrupt import RunInterrupted, StopSignalHandler
from hqlt_lab.train.trainer import lightning_plugins, silence_lightning

SLURM_JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_NTASKS": "4",
    "SLURM_NTASKS_PER_NODE": "4",
    "SLURM_NNODES": "2",
    "SLURM_PROCID": "0",
}


def test_srun_is_used_only_for_several_nodes_of_a_slurm_job(monkeypatch):
    two_nodes = TrainerConfig(nodes=2, devices=4)
    assert srun_command(two_nodes) == []
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    assert srun_command(TrainerConfig(devices=4)) == []
    assert srun_command(two_nodes) == [
        "srun", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=3", "--input=0",
        "--kill-on-bad-exit=1",
    ]  # fmt: skip


def test_the_environment_of_a_child_process_has_no_rank():
    environment = {"RANK": "1", "MASTER_PORT": "9", "TORCHELASTIC_RUN_ID": "x", "PATH": "/bin", **SLURM_JOB}
    assert strip_rank_env(environment, keep_slurm=False) == {"PATH": "/bin"}
    assert strip_rank_env(environment, keep_slurm=True) == {"PATH": "/bin"} | {
        name: value for name, value in SLURM_JOB.items() if name != "SLURM_PROCID"
    }


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"])
def test_a_process_with_a_nonzero_rank_variable_is_not_rank_zero(monkeypatch, name):
    monkeypatch.setenv(name, "0")
    assert is_rank_zero()
    monkeypatch.setenv(name, "1")
    assert not is_rank_zero()


@silence_lightning()
def test_a_single_process_can_run_in_a_slurm_job_with_several_tasks(monkeypatch, tmp_path):
    from lightning.pytorch import Trainer

    for name in ("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_PROCID"):
        monkeypatch.setenv(name, SLURM_JOB[name])
    options = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_checkpointing": False}
    with pytest.raises(RuntimeError, match="--ntasks=4"):  # Lightning's default
        Trainer(**options, default_root_dir=tmp_path)
    trainer = Trainer(**options, default_root_dir=tmp_path, plugins=lightning_plugins(TrainerConfig(accelerator="cpu")))
    assert trainer.world_size == 1


def test_signals_in_quick_succession_are_one_stop_request(monkeypatch):
    with StopSignalHandler() as handler:
        handler.is_training = True
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert handler.stop_requested
        monkeypatch.setattr(interrupt, "DEBOUNCE_SECONDS", 0.0)  # as if the debounce time had passed
        with pytest.raises(RunInterrupted, match="at once"):
            signal.raise_signal(signal.SIGTERM)
