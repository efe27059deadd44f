"""SLURM executor on a real cluster: jobs are submitted once, monitored, and resubmitted when they are gone."""

from pathlib import Path

import pytest

from hqlt_lab.errors import TrainingError
from hqlt_lab.study.executors import slurm_executor
from hqlt_lab.study.executors.launch_context import LaunchContext
from hqlt_lab.study.executors.slurm_executor import SlurmExecutor, list_queued_jobs
from tests.issues import raises_issue

from .slurm_cluster import cluster, wait_for  # noqa: F401

pytestmark = pytest.mark.slow
PRINTING = '#!/bin/bash\n#SBATCH --output={}\n#SBATCH --export=ALL\necho "$MLFLOW_TRACKING_URI"\nsleep 600\n'
SLEEPING = "#!/bin/bash\n#SBATCH --array=1-2\n#SBATCH --output=/dev/null\nsleep 600\n"
FAILING = "#!/bin/bash\n#SBATCH --output=/dev/null\nexit 1\n"


@pytest.fixture
def make_executor(cluster, tmp_path, monkeypatch, caplog):  # noqa: F811
    """Function that creates an executor for a job script."""
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    monkeypatch.setenv("SBATCH_JOB_NAME", "another_name")
    monkeypatch.setattr(slurm_executor, "POLL_INTERVAL", 0.2)

    def create(script: str, **env: str) -> SlurmExecutor:
        caplog.set_level("INFO", "hqlt_lab")  # here and not in the fixture: pytest resets the level after the setup
        context = LaunchContext(
            file=Path("a.yaml"), overrides=(), only=(), runs=tmp_path, study_folder=tmp_path, is_shared=True,
            env=env,
        )  # fmt: skip
        return SlurmExecutor(2, f"hqlt-{tmp_path.name}", script, context)

    yield create
    cluster.run_command("scancel", "--me")


def test_second_executor_attaches_to_the_jobs_and_says_on_exit_how_to_cancel_them(make_executor, tmp_path, caplog):
    first = make_executor(SLEEPING)
    assert list(first.poll_events(0)) == [] and not first.can_start(None)
    array_id = (tmp_path / "slurm/job.id").read_text().strip()
    assert caplog.messages == [f"Submitted to SLURM: array {array_id} of 2 jobs. Their output: {tmp_path / 'slurm'}"]
    caplog.clear()
    second = make_executor(SLEEPING)
    list(second.poll_events(0))
    assert "This study already has jobs in SLURM: 2 " in caplog.messages[0]
    assert {job.array_id for job in list_queued_jobs(first.job_name)} == {array_id}
    second.interrupt_all()
    second.close()
    assert caplog.messages[1].endswith(f"Cancel them with\n    scancel {array_id}")
    assert len(list_queued_jobs(first.job_name)) == 2
    first.close()  # prints nothing without an interrupt


def test_jobs_that_ended_too_early_are_reported_and_submitted_again(make_executor, tmp_path):
    executor = make_executor(FAILING)
    with pytest.raises(
        TrainingError, match=("All jobs of this study have ended, but some cells are not finished")
    ) as error:
        wait_for(lambda: list(executor.poll_events(0.3)), 60, "an error")
    assert str(tmp_path / "slurm") in str(error.value)
    first_id = (tmp_path / "slurm/job.id").read_text()
    second = make_executor(FAILING)
    list(second.poll_events(0))
    assert (tmp_path / "slurm/job.id").read_text() != first_id


def test_study_continues_while_slurm_does_not_answer(make_executor, monkeypatch, tmp_path, caplog):
    executor = make_executor(SLEEPING)
    list(executor.poll_events(0))
    (tmp_path / "slurm.conf").write_text("nonsense")
    with monkeypatch.context() as outage:
        outage.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
        for _ in range(3):
            list(executor.poll_events(0.3))
    assert [message.split(";")[0] for message in caplog.messages[1:]] == ["SLURM is unavailable"]
    list(executor.poll_events(0.3))
    assert len(executor.jobs) == 2


def test_jobs_get_the_tracking_uri_from_their_environment_and_not_from_the_script(make_executor, tmp_path):
    output = tmp_path / "output.txt"
    executor = make_executor(PRINTING.format(output), MLFLOW_TRACKING_URI="http://ada:s3cret@mlflow.example.org")
    list(executor.poll_events(0))
    wait_for(lambda: output.exists() and output.read_text(), 60, "output of the job")
    assert output.read_text() == "http://ada:s3cret@mlflow.example.org\n"
    assert "s3cret" not in (tmp_path / "slurm/job.sh").read_text()


def test_missing_slurm_controller_is_reported_in_one_line(make_executor, monkeypatch, tmp_path):
    (tmp_path / "slurm.conf").write_text("nonsense")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    executor = make_executor(SLEEPING)
    with pytest.raises(TrainingError, match=r"nothing was submitted\. squeue: .* when `sinfo` works") as error:
        list(executor.poll_events(0))
    assert "\n" not in str(error.value)


def test_machine_without_slurm_is_reported(make_executor, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    executor = make_executor(SLEEPING)
    with raises_issue("launcher", "slurm_not_found"):
        list(executor.poll_events(0))
