"""What is around a life: loading, evaluating, lesions, films, figures, and an agent that learns a maze."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from hqlt_lab.agent.film import FILE
from hqlt_lab.agent.networks import Agent
from hqlt_lab.cli.app import app
from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.experiment import load
from hqlt_lab.report.figures.in_the_world import in_the_world, mean
from hqlt_lab.report.figures.material import Material
from hqlt_lab.report.figures.style import styled
from hqlt_lab.report.rows import rows_of
from hqlt_lab.study.record import Record
from hqlt_lab.track.folder import KEPT
from hqlt_lab.train.evaluate import Examination
from hqlt_lab.train.fit import fit
from hqlt_lab.train.load import load_cell
from hqlt_lab.train.measured import run_turns
from tests.agent.conftest import tiny

QUESTION = """question: Which memory?
task: {name: t_maze, length: 3}
model: {width: 16, heads: 2}
measure: {select: valid/success, report: [test/success, test/return]}
arms: {hybrid: {}, memoryless: {model.mixer: kv_only, model.timing.window: 1}}
seeds: 3
"""


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lived")
    return folder, fit(tiny(), folder)


def test_a_trained_agent_is_loaded_and_scores_what_it_scored(lived):
    folder, outcome = lived
    agent, world = load_cell(folder)
    assert isinstance(agent, Agent) and world.is_world and not agent.training
    asked = Examination(folder)
    assert asked.score("test") == {name: outcome.metrics[name] for name in asked.score("test")}
    assert {f"valid/{name}" for name in world.measures} == set(asked.score("valid"))


def test_an_agent_can_lose_a_memory_and_is_not_probed(lived):
    folder, _ = lived
    asked = Examination(folder)
    asked.check("fw")
    assert set(asked.score("test", "fw")) == {f"test/{name}" for name in load_cell(folder).task.measures}
    with pytest.raises(TrainingError, match="probes look at examples, and 't_maze' is a world"):
        asked.probe("test")
    with pytest.raises(TrainingError, match="task 't_maze' is a world, and has no short set"):
        asked.score("short")


def test_a_film_of_the_first_test_episode_is_kept_and_sent(lived):
    folder, _ = lived
    with Image.open(folder / FILE) as image:
        assert image.format == "GIF" and image.n_frames > 3 and image.size == (6 * 16, 5 * 16)
    assert FILE in KEPT


@pytest.mark.parametrize("name", ["t_maze", "visual_match"])
def test_show_writes_a_film_of_a_world(name, tmp_path):
    told = CliRunner().invoke(app, ["show", "task", name, "--into", str(tmp_path)])
    assert told.exit_code == 0 and f"{name}.gif" in told.output.replace("\n", "")
    with Image.open(tmp_path / f"{name}.gif") as image:
        assert image.is_animated and image.n_frames <= 151


def test_a_step_is_measured_by_living_and_learning():
    probe = run_turns(tiny())
    assert 0 < probe.step < 10 and probe.memory >= 0


def test_a_mean_has_an_interval_over_seeds():
    band = mean([{0: 1.0, 10: 2.0}, {0: 3.0, 10: 2.0}, {0: 5.0}])
    assert list(band.steps) == [0, 10] and np.allclose(band.middle, [3, 2])
    assert np.allclose(band.high - band.middle, [4.302653 * 2 / np.sqrt(3), 0.0])  # t with 2 degrees of freedom
    assert np.allclose(mean([{0: 1.0}]).high, 1.0)


def test_a_report_draws_what_agents_reached_against_steps_in_the_world(tmp_path):
    file = tmp_path / "question.yaml"
    file.write_text(QUESTION)
    experiment, records = load(file), []
    for number, (arm, seed) in enumerate((arm.title, seed) for arm in experiment.arms for seed in range(3)):
        folder = tmp_path / str(number)
        folder.mkdir()
        told = [{"step": s, "metrics": {"valid/success": s + seed, "valid/return": 1.0 * seed}} for s in (0, 50, 99)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
        metrics = {"valid/success": 50.0, "test/success": 50.0 + seed, "test/return": 0.5}
        records.append(Record(key=str(number), arm=arm, seed=seed, state="done", metrics=metrics, folder=folder))
    with styled():
        picture = in_the_world(Material(experiment, rows_of(experiment, records)))
    success, returned = picture.figure.axes
    assert (success.get_title(loc="left"), returned.get_title(loc="left")) == ("valid/success", "valid/return")
    assert returned.get_xlabel() == "steps in the world" and "95 % intervals" in picture.caption
    assert list(success.lines[0].get_ydata()) == [1, 51, 100]


@pytest.mark.slow
def test_an_agent_with_a_memory_solves_the_maze_and_one_without_turns_by_chance(tmp_path):
    task = {"name": "t_maze", "length": 5, "eval_size": 100}
    settings = {"steps": 4000, "batch_size": 32, "valid_every": 1000, "checkpoint_every": 4000}
    settings |= {"schedule": "constant", "weight_decay": 0.0}
    learning = {"agent": {"hidden": [64], "warmup_episodes": 50, "episodes_at_once": 10, "entropy": 0.01}}
    hybrid = {"width": 32, "mlp_width": 64, "timing": {"name": "synchronous", "window": 4}}
    memoryless = hybrid | {"mixer": "kv_only", "timing": {"name": "synchronous", "window": 1}}
    remembers, forgets = (
        fit(tiny(task=task, model=model, **learning, **settings), tmp_path / name)
        for name, model in (("remembers", hybrid), ("forgets", memoryless))
    )
    assert remembers.metrics["test/success"] == 100
    assert abs(forgets.metrics["test/success"] - 50) < 15
