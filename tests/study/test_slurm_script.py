"""What SLURM is told: words that were checked, values in quotes, and nothing that a file could smuggle in."""

import subprocess
from pathlib import Path

import pytest

from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import build
from hqlt_lab.study.errand import Errand
from hqlt_lab.study.launchers.slurm import job_name
from hqlt_lab.study.slurm.jobs import Job, arrays, complaint, in_words, listed
from hqlt_lab.study.slurm.script import script

HOSTILE = ["$(touch x)", "`touch x`", "a;touch x", "a\n#SBATCH --uid=0", 'a"b', "a b", "--uid=0", "", "ü"]
EVERYTHING = {
    "name": "slurm", "workers": 3, "partition": "gpu-long,debug", "account": "lab_7", "qos": "high",
    "time": "2-04:00:00", "gpus": 2, "cpus": 4, "memory": "16G", "notice": 30,
}  # fmt: skip


def errand(folder: Path, **told) -> Errand:
    usual = {"file": Path("a.yaml"), "change": (), "only": (), "runs": folder, "folder": folder, "shared": True}
    return Errand(**usual | told, tell=print)


@pytest.mark.parametrize("option", ["partition", "account", "qos", "time", "memory"])
@pytest.mark.parametrize("value", HOSTILE)
def test_an_option_that_is_no_plain_word_is_refused(option, value):
    with pytest.raises(ConfigError, match=rf"launcher\.{option}: .* is not "):
        build("launcher", {"name": "slurm", option: value})


def test_a_time_that_yaml_took_for_a_number_is_refused():
    with pytest.raises(ConfigError, match=r"launcher\.time: 5400 is not a time such as '04:00:00' .*, in quotes"):
        build("launcher", {"name": "slurm", "time": 5400})  # what YAML makes of 1:30:00 without quotes


def test_the_script_says_what_was_asked_and_bash_reads_it(tmp_path):
    launcher = build("launcher", EVERYTHING, errand=errand(tmp_path))
    text = launcher.crew([]).text
    lines = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert lines == [
        f'#SBATCH --job-name="{job_name(tmp_path)}"',
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
    assert len(text.splitlines()) < 35
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_words_of_the_command_stay_words(tmp_path):
    """Run by bash with another program in the place of ours, each word arrives as it was given."""
    told = errand(tmp_path, change=("train.lr=$(id)", "a='b c'"), only=("seed=0;id",), file=Path("it's.yaml"))
    text = script(told, {}).replace("-m hqlt_lab.cli", "-c 'import sys; print(sys.argv[1:])'")
    said = subprocess.run(["bash"], input=text, text=True, capture_output=True, check=True).stdout
    words = ["worker", str(Path("it's.yaml").resolve()), "--set", "train.lr=$(id)", "--set", "a='b c'"]
    assert said.strip() == str([*words, "--only", "seed=0;id", "--runs", str(tmp_path)])


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "new\nline"])
def test_a_folder_that_a_script_cannot_name_is_told(tmp_path, name):
    launcher = build("launcher", {"name": "slurm"}, errand=errand(tmp_path / name))
    with pytest.raises(ConfigError, match="Use a folder of another name"):
        launcher.crew([])


def test_the_address_of_the_database_is_not_in_the_script(tmp_path, monkeypatch):
    monkeypatch.setenv("HQLT_STORE", "postgresql://lab:secret@db/lab")
    assert "secret" not in build("launcher", {"name": "slurm"}, errand=errand(tmp_path)).crew([]).text


def test_a_study_in_a_file_cannot_be_shared(tmp_path):
    launcher = build("launcher", {"name": "slurm"}, errand=errand(tmp_path, shared=False))
    with pytest.raises(ConfigError, match="has to be kept in PostgreSQL: export HQLT_STORE=postgresql://"):
        launcher.crew([])


def test_a_notice_leaves_time_to_work():
    build("launcher", {"name": "slurm", "time": "1-00:02:00", "notice": 90})
    with pytest.raises(ConfigError, match=r"launcher\.notice: 90 seconds before its end, a job of 60 has hardly begun"):
        build("launcher", {"name": "slurm", "time": "00:01:00"})


def test_jobs_know_no_limit(tmp_path):
    launcher = build("launcher", {"name": "slurm"}, errand=errand(tmp_path, limit=3))
    with pytest.raises(ConfigError, match="--limit: jobs of SLURM go on until nothing is left"):
        launcher.crew([])


@pytest.mark.parametrize("said", ["squeue: error: no DNS\nsqueue: fatal: no controller\n\n", "no controller"])
def test_of_many_lines_of_slurm_the_last_is_told(said):
    assert complaint(said) == "no controller"
    assert complaint("\n") == "it failed without a word"


def test_two_studies_of_one_name_have_jobs_of_their_own():
    first, second = job_name(Path("/a/it's, mine")), job_name(Path("/b/it's, mine"))
    assert first != second
    assert first.startswith("hqlt-it_s__mine-")


def test_squeue_is_read_and_jobs_that_are_over_do_not_count():
    jobs = listed(
        "12|RUNNING|None\n12|PENDING|Resources\n 12|PENDING|Resources\n9|COMPLETING|None\n8|FAILED|x\n\nslurm: hm\n"
    )
    assert jobs == [
        Job("12", "RUNNING", "None"),
        Job("12", "PENDING", "Resources"),
        Job("12", "PENDING", "Resources"),
        Job("9", "COMPLETING", "None"),
    ]
    assert in_words(jobs) == "1 running, 2 pending (Resources), 1 completing"
    assert arrays(jobs) == ["12", "9"]
    assert listed("") == []
