"""Trained agents: loading, evaluation, lesions, recordings, figures, and an agent that learns a maze."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from hqlt_lab.agent.episode_gif import GIF_FILE
from hqlt_lab.agent.networks import Agent
from hqlt_lab.cli.app import app
from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.report.arm_rows import build_rows
from hqlt_lab.report.figures.drawn_arms import DrawnArms
from hqlt_lab.report.figures.rl_curves import mean_band, rl_curves
from hqlt_lab.report.figures.style import style_context
from hqlt_lab.study.ledger.cell_record import CellRecord
from hqlt_lab.track.mlflow_content import ARTIFACT_FILES
from hqlt_lab.train.cell_evaluator import CellEvaluator
from hqlt_lab.train.cost.benchmark import time_agent_iterations
from hqlt_lab.train.fit import fit
from hqlt_lab.train.load_trained_model import load_cell
from tests.agent.conftest import make_cell

EXPERIMENT = """question: Which memory?
task: {name: t_maze, length: 3}
model: {width: 16, heads: 2}
measure: {select: valid/success, report: [test/success, test/return]}
arms: {hybrid: {}, memoryless: {model.mixer: kv_only, model.timing.window: 1}}
seeds: 3
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return folder, fit(make_cell(), folder)


def test_loaded_agent_reproduces_its_test_metrics(trained):
    folder, outcome = trained
    agent, environment = load_cell(folder)
    assert isinstance(agent, Agent) and environment.is_environment and not agent.training
    evaluator = CellEvaluator(folder)
    metrics = evaluator.score_split("test")
    assert metrics == {name: outcome.metrics[name] for name in metrics}
    assert {f"valid/{name}" for name in environment.metric_names} == set(evaluator.score_split("valid"))


def test_agent_can_be_evaluated_with_a_lesion_and_not_probed(trained):
    folder, _ = trained
    evaluator = CellEvaluator(folder)
    evaluator.check_lesion("fw")
    assert set(evaluator.score_split("test", "fw")) == {f"test/{name}" for name in load_cell(folder).task.metric_names}
    with pytest.raises(TrainingError, match="probes need examples, but 't_maze' is an environment"):
        evaluator.probe_memories("test")
    with pytest.raises(TrainingError, match="task 't_maze' is an environment, and has no short set"):
        evaluator.score_split("short")


def test_first_test_episode_is_recorded_as_a_gif_artifact(trained):
    folder, _ = trained
    with Image.open(folder / GIF_FILE) as image:
        assert image.format == "GIF" and image.n_frames > 3 and image.size == (6 * 16, 5 * 16)
    assert GIF_FILE in ARTIFACT_FILES


@pytest.mark.parametrize("name", ["t_maze", "visual_match"])
def test_show_writes_a_gif_of_an_environment(name, tmp_path):
    result = CliRunner().invoke(app, ["show", "task", name, "--into", str(tmp_path)])
    assert result.exit_code == 0 and f"{name}.gif" in result.output.replace("\n", "")
    with Image.open(tmp_path / f"{name}.gif") as image:
        assert image.is_animated and image.n_frames <= 151


def test_agent_iterations_can_be_timed():
    timing = time_agent_iterations(make_cell())
    assert 0 < timing.step_seconds < 10 and timing.peak_memory_bytes >= 0


def test_mean_band_is_a_confidence_interval_over_seeds():
    band = mean_band([{0: 1.0, 10: 2.0}, {0: 3.0, 10: 2.0}, {0: 5.0}])
    assert list(band.steps) == [0, 10] and np.allclose(band.middle, [3, 2])
    assert np.allclose(band.high - band.middle, [4.302653 * 2 / np.sqrt(3), 0.0])  # t with 2 degrees of freedom
    assert np.allclose(mean_band([{0: 1.0}]).high, 1.0)


def test_report_plots_validation_metrics_against_environment_steps(tmp_path):
    file = tmp_path / "question.yaml"
    file.write_text(EXPERIMENT)
    experiment, records = load_experiment(file), []
    for number, (arm, seed) in enumerate((arm.title, seed) for arm in experiment.arms for seed in range(3)):
        folder = tmp_path / str(number)
        folder.mkdir()
        curve = [{"step": s, "metrics": {"valid/success": s + seed, "valid/return": 1.0 * seed}} for s in (0, 50, 99)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in curve))
        metrics = {"valid/success": 50.0, "test/success": 50.0 + seed, "test/return": 0.5}
        records.append(CellRecord(key=str(number), arm=arm, seed=seed, state="done", metrics=metrics, folder=folder))
    with style_context():
        figure = rl_curves(DrawnArms(experiment, build_rows(experiment, records)))
    success, returns = figure.figure.axes
    assert (success.get_title(loc="left"), returns.get_title(loc="left")) == ("valid/success", "valid/return")
    assert returns.get_xlabel() == "environment steps" and "95 %" in figure.caption
    assert list(success.lines[0].get_ydata()) == [1, 51, 100]


@pytest.mark.slow
def test_agent_with_memory_solves_the_maze_and_one_without_is_at_chance(tmp_path):
    task = {"name": "t_maze", "length": 5, "eval_size": 100}
    train = {"steps": 4000, "batch_size": 32, "valid_every": 1000, "checkpoint_every": 4000}
    train |= {"schedule": "constant", "weight_decay": 0.0}
    agent = {"hidden": [64], "warmup_episodes": 50, "episodes_at_once": 10, "entropy": 0.01}
    hybrid = {"width": 32, "mlp_width": 64, "timing": {"name": "synchronous", "window": 4}}
    memoryless = hybrid | {"mixer": "kv_only", "timing": {"name": "synchronous", "window": 1}}
    with_memory, without_memory = (
        fit(make_cell(task=task, model=model, agent=agent, **train), tmp_path / name)
        for name, model in (("with_memory", hybrid), ("without_memory", memoryless))
    )
    assert with_memory.metrics["test/success"] == 100
    assert abs(without_memory.metrics["test/success"] - 50) < 15
