"""Jobs of a real SLURM are submitted once, looked after, left alone and missed."""

from pathlib import Path

import pytest

from hqlt_lab.errors import ConfigError, TrainingError
from hqlt_lab.study.errand import Errand
from hqlt_lab.study.slurm import follower
from hqlt_lab.study.slurm.follower import Follower
from hqlt_lab.study.slurm.jobs import queued

from .slurm import cluster, wait_for  # noqa: F401

pytestmark = pytest.mark.slow
TELLING = '#!/bin/bash\n#SBATCH --output={}\n#SBATCH --export=ALL\necho "$MLFLOW_TRACKING_URI"\nsleep 600\n'
WAITING = "#!/bin/bash\n#SBATCH --array=1-2\n#SBATCH --output=/dev/null\nsleep 600\n"
FAILING = "#!/bin/bash\n#SBATCH --output=/dev/null\nexit 1\n"


@pytest.fixture
def follow(cluster, tmp_path, monkeypatch):  # noqa: F811
    """Makes one who follows jobs of this script; what it tells is in its list."""
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    monkeypatch.setenv("SBATCH_JOB_NAME", "somebody_else's")
    monkeypatch.setattr(follower, "LOOK", 0.2)

    def make(text: str, **environment: str) -> tuple[Follower, list[str]]:
        told: list[str] = []
        errand = Errand(
            file=Path("a.yaml"), change=(), only=(), runs=tmp_path, folder=tmp_path, shared=True, tell=told.append,
            environment=environment,
        )  # fmt: skip
        return Follower(2, f"hqlt-{tmp_path.name}", text, errand), told

    yield make
    cluster.ask("scancel", "--me")


def test_the_second_who_comes_follows_and_who_leaves_says_how_to_end_them(follow, tmp_path):
    first, told = follow(WAITING)
    assert list(first.events(0)) == [] and not first.room_for(None)
    number = (tmp_path / "slurm/job.id").read_text().strip()
    assert told == [f"Submitted to SLURM: array {number} of 2 jobs. What they print: {tmp_path / 'slurm'}"]
    second, told = follow(WAITING)
    list(second.events(0))
    assert "This study has jobs in SLURM already, 2 " in told[0]
    assert {job.array for job in queued(first.name)} == {number}
    second.interrupt()
    second.close()
    assert told[1].endswith(f"End them with\n    scancel {number}")
    assert len(queued(first.name)) == 2
    first.close()  # the study came to its end: nothing is to be told


def test_jobs_that_ended_too_early_are_missed_and_submitted_anew(follow, tmp_path):
    one, _ = follow(FAILING)
    with pytest.raises(TrainingError, match="All jobs of this study have ended, and cells still wait") as missed:
        wait_for(lambda: list(one.events(0.3)), 60, "a complaint")
    assert str(tmp_path / "slurm") in str(missed.value)
    first = (tmp_path / "slurm/job.id").read_text()
    other, _ = follow(FAILING)
    list(other.events(0))
    assert (tmp_path / "slurm/job.id").read_text() != first


def test_a_slurm_that_does_not_answer_is_no_reason_to_leave(follow, monkeypatch, tmp_path):
    one, told = follow(WAITING)
    list(one.events(0))
    (tmp_path / "slurm.conf").write_text("nonsense")
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
        for _ in range(3):
            list(one.events(0.3))
    assert [sentence.split(";")[0] for sentence in told[1:]] == ["SLURM does not answer"]
    list(one.events(0.3))
    assert len(one.jobs) == 2


def test_jobs_are_told_where_mlflow_is_and_the_script_is_not(follow, tmp_path):
    said = tmp_path / "said.txt"
    one, _ = follow(TELLING.format(said), MLFLOW_TRACKING_URI="http://ada:s3cret@mlflow.example.org")
    list(one.events(0))
    wait_for(lambda: said.exists() and said.read_text(), 60, "what the job says")
    assert said.read_text() == "http://ada:s3cret@mlflow.example.org\n"
    assert "s3cret" not in (tmp_path / "slurm/job.sh").read_text()


def test_a_slurm_without_a_controller_is_a_sentence(follow, monkeypatch, tmp_path):
    (tmp_path / "slurm.conf").write_text("nonsense")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    one, _ = follow(WAITING)
    with pytest.raises(TrainingError, match=r"nothing was submitted\. squeue: .* when `sinfo` answers") as told:
        list(one.events(0))
    assert "\n" not in str(told.value)


def test_where_there_is_no_slurm_a_sentence_says_so(follow, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    one, _ = follow(WAITING)
    with pytest.raises(ConfigError, match=r"there is no squeue here\. Run this where jobs are submitted"):
        list(one.events(0))
