"""Processes know their place among others, start others free of it, and hear a request to stop once."""

import signal

import pytest

from hqlt_lab.experiment.settings import TrainerConfig
from hqlt_lab.train import interrupt
from hqlt_lab.train.interrupt import Interrupted, Interruption
from hqlt_lab.train.started import first, srun, without_a_place
from hqlt_lab.train.trainer import plugins, quiet

JOB = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "4", "SLURM_NNODES": "2", "SLURM_PROCID": "0"}


def test_several_machines_of_a_job_are_started_by_srun_and_nothing_else_is(monkeypatch):
    two = TrainerConfig(nodes=2, devices=4)
    assert srun(two) == []
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    assert srun(TrainerConfig(devices=4)) == []
    assert srun(two) == [
        "srun", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=3", "--input=0",
        "--kill-on-bad-exit=1",
    ]  # fmt: skip


def test_a_run_of_its_own_has_no_place_among_ours():
    ours = {"RANK": "1", "MASTER_PORT": "9", "TORCHELASTIC_RUN_ID": "x", "PATH": "/bin", **JOB}
    assert without_a_place(ours, slurm=False) == {"PATH": "/bin"}
    assert without_a_place(ours, slurm=True) == {"PATH": "/bin"} | {k: v for k, v in JOB.items() if k != "SLURM_PROCID"}


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"])
def test_whoever_has_another_number_is_not_the_first(monkeypatch, name):
    monkeypatch.setenv(name, "0")
    assert first()
    monkeypatch.setenv(name, "1")
    assert not first()


@quiet()
def test_a_process_that_is_alone_may_be_part_of_a_job_with_several_tasks(monkeypatch, tmp_path):
    from lightning.pytorch import Trainer

    for name in ("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_PROCID"):
        monkeypatch.setenv(name, JOB[name])
    usual = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_checkpointing": False}
    with pytest.raises(RuntimeError, match="--ntasks=4"):  # what Lightning does by itself
        Trainer(**usual, default_root_dir=tmp_path)
    alone = Trainer(**usual, default_root_dir=tmp_path, plugins=plugins(TrainerConfig(accelerator="cpu")))
    assert alone.world_size == 1


def test_a_job_that_is_ended_tells_each_process_more_than_once_which_is_one_request(monkeypatch):
    with Interruption() as asked:
        asked.learning = True
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert asked.asked
        monkeypatch.setattr(interrupt, "ONE_REQUEST", 0.0)  # as if time had passed
        with pytest.raises(Interrupted, match="at once"):
            signal.raise_signal(signal.SIGTERM)
