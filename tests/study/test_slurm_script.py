"""The SLURM job script has validated options and quoted values, so an experiment file cannot inject anything."""

import subprocess
from pathlib import Path

import pytest

from hqlt_lab.registry import build
from hqlt_lab.study.executors.launch_context import LaunchContext
from hqlt_lab.study.executors.slurm_executor import (
    SlurmJob,
    array_ids,
    last_error_line,
    parse_squeue,
    render_script,
    summarize_jobs,
)
from hqlt_lab.study.launchers.slurm import make_job_name
from tests.issues import raises_issue

HOSTILE = ["$(touch x)", "`touch x`", "a;touch x", "a\n#SBATCH --uid=0", 'a"b', "a b", "--uid=0", "", "ü"]
ALL_OPTIONS = {
    "name": "slurm", "workers": 3, "partition": "gpu-long,debug", "account": "lab_7", "qos": "high",
    "time": "2-04:00:00", "gpus": 2, "cpus": 4, "memory": "16G", "notice": 30,
}  # fmt: skip


def make_context(folder: Path, **changes) -> LaunchContext:
    defaults = {"file": Path("a.yaml"), "overrides": (), "only": (), "runs": folder, "study_folder": folder}
    return LaunchContext(**defaults | {"is_shared": True} | changes)


@pytest.mark.parametrize("option", ["partition", "account", "qos", "time", "memory"])
@pytest.mark.parametrize("value", HOSTILE)
def test_option_with_special_characters_is_rejected(option, value):
    with raises_issue(f"launcher.{option}", "invalid_slurm_option"):
        build("launcher", {"name": "slurm", option: value})


def test_time_that_yaml_parsed_as_a_number_is_rejected():
    with raises_issue("launcher.time", "invalid_slurm_option"):
        build("launcher", {"name": "slurm", "time": 5400})  # what YAML makes of 1:30:00 without quotes


def test_script_has_all_options_and_is_valid_bash(tmp_path):
    launcher = build("launcher", ALL_OPTIONS, context=make_context(tmp_path))
    script = launcher.make_executor([]).script
    directives = [line for line in script.splitlines() if line.startswith("#SBATCH")]
    assert directives == [
        f'#SBATCH --job-name="{make_job_name(tmp_path)}"',
        '#SBATCH --array="1-3"',
        '#SBATCH --partition="gpu-long,debug"',
        '#SBATCH --account="lab_7"',
        '#SBATCH --qos="high"',
        '#SBATCH --time="2-04:00:00"',
        '#SBATCH --nodes="1"',
        '#SBATCH --ntasks-per-node="1"',
        '#SBATCH --cpus-per-task="4"',
        '#SBATCH --gpus-per-node="2"',
        '#SBATCH --mem="16G"',
        '#SBATCH --export="ALL"',
        "#SBATCH --requeue",
        '#SBATCH --open-mode="append"',
        '#SBATCH --signal="B:USR1@30"',
        f'#SBATCH --output="{tmp_path}/slurm/%A_%a.log"',
    ]
    assert len(script.splitlines()) < 35
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_arguments_of_the_worker_command_are_quoted(tmp_path):
    """Run by bash, with a program that prints its arguments instead of hqlt."""
    overrides = ("train.lr=$(id)", "a='b c'")
    context = make_context(tmp_path, overrides=overrides, only=("seed=0;id",), file=Path("it's.yaml"))
    script = render_script(context, {}).replace("-m hqlt_lab.cli", "-c 'import sys; print(sys.argv[1:])'")
    output = subprocess.run(["bash"], input=script, text=True, capture_output=True, check=True).stdout
    arguments = ["worker", str(Path("it's.yaml").resolve()), "--set", "train.lr=$(id)", "--set", "a='b c'"]
    assert output.strip() == str([*arguments, "--only", "seed=0;id", "--runs", str(tmp_path)])


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "new\nline"])
def test_folder_name_that_a_script_cannot_contain_is_rejected(tmp_path, name):
    launcher = build("launcher", {"name": "slurm"}, context=make_context(tmp_path / name))
    with raises_issue("launcher", "invalid_sbatch_value"):
        launcher.make_executor([])


def test_database_url_is_not_in_the_script(tmp_path, monkeypatch):
    monkeypatch.setenv("HQLT_STORE", "postgresql://lab:secret@db/lab")
    launcher = build("launcher", {"name": "slurm"}, context=make_context(tmp_path))
    assert "secret" not in launcher.make_executor([]).script


def test_study_in_a_journal_cannot_use_slurm(tmp_path):
    launcher = build("launcher", {"name": "slurm"}, context=make_context(tmp_path, is_shared=False))
    with raises_issue("launcher", "shared_store_needed"):
        launcher.make_executor([])


def test_notice_must_be_shorter_than_the_time_limit():
    build("launcher", {"name": "slurm", "time": "1-00:02:00", "notice": 90})
    with raises_issue("launcher.notice", "notice_too_long"):
        build("launcher", {"name": "slurm", "time": "00:01:00"})


def test_limit_is_rejected(tmp_path):
    launcher = build("launcher", {"name": "slurm"}, context=make_context(tmp_path, limit=3))
    with raises_issue("--limit", "limit_with_slurm"):
        launcher.make_executor([])


@pytest.mark.parametrize("output", ["squeue: error: no DNS\nsqueue: fatal: no controller\n\n", "no controller"])
def test_last_line_of_an_error_output_is_reported(output):
    assert last_error_line(output) == "no controller"
    assert last_error_line("\n") == "it failed without a message"


def test_two_studies_of_the_same_name_have_different_job_names():
    first, second = make_job_name(Path("/a/it's, mine")), make_job_name(Path("/b/it's, mine"))
    assert first != second
    assert first.startswith("hqlt-it_s__mine-")


def test_squeue_output_is_parsed_without_finished_jobs():
    jobs = parse_squeue(
        "12|RUNNING|None\n12|PENDING|Resources\n 12|PENDING|Resources\n9|COMPLETING|None\n8|FAILED|x\n\nslurm: hm\n"
    )
    assert jobs == [
        SlurmJob("12", "RUNNING", "None"),
        SlurmJob("12", "PENDING", "Resources"),
        SlurmJob("12", "PENDING", "Resources"),
        SlurmJob("9", "COMPLETING", "None"),
    ]
    assert summarize_jobs(jobs) == "1 running, 2 pending (Resources), 1 completing"
    assert array_ids(jobs) == ["12", "9"]
    assert parse_squeue("") == []
