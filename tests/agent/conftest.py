"""Agents and cells that train for about a second in a T maze or a small visual match."""

from typing import Any

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.run_settings import AgentConfig, MeasureConfig, TrainConfig, TrainerConfig
from hqlt_lab.model.config import model_config
from hqlt_lab.model.initialize import initialize_parameters
from hqlt_lab.registry import build

MAZE = {"name": "t_maze", "length": 3, "eval_size": 6}
MATCH = {"name": "visual_match", "phases": [2, 5, 8], "apples": 4, "eval_size": 4}
MODEL = {
    "width": 16,
    "heads": 2,
    "layers": 1,
    "mlp_width": 16,
    "mixer": {"name": "vector"},
    "update_rule": {"name": "delta", "max_beta": 2},
    "timing": {"name": "synchronous", "window": 3},
    "positions": "none",
}
TRAIN = {"steps": 60, "batch_size": 4, "valid_every": 30, "checkpoint_every": 20, "log_every": 1, "lr": 1e-3}
AGENT = {"hidden": [16], "warmup_episodes": 3, "episodes_at_once": 2, "entropy": 0.02}


def make_cell(
    task: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    agent: dict[str, Any] | None = None,
    trainer: dict[str, Any] | None = None,
    seed: int = 0,
    **train: Any,
) -> Cell:
    """Return a cell of a short training run with these changes."""
    return Cell(
        task=task or MAZE,
        model=MODEL | (model or {}),
        train=TrainConfig(**(TRAIN | train)),
        agent=AgentConfig(**(AGENT | (agent or {}))),
        trainer=TrainerConfig(**({"accelerator": "cpu"} | (trainer or {}))),
        measure=MeasureConfig(select="valid/success", report=["test/success"]),
        seed=seed,
    )


def make_agent(task: dict[str, Any] = MAZE, settings: dict[str, Any] | None = None, **model: Any):
    """Return an untrained agent and its environment."""
    from hqlt_lab.agent.networks import Agent

    environment, config = build("task", task), model_config(MODEL | model)
    agent = Agent(environment, config, AgentConfig(**(AGENT | (settings or {}))))
    initialize_parameters(agent, config, 0)
    return agent, environment
