"""Parts of a training run of an agent: random numbers follow from the seed, gradients are clipped, splits differ."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hqlt_lab.hashing import derive_seed
from hqlt_lab.registry import build
from hqlt_lab.train.fit import fit
from hqlt_lab.train.load_trained_model import load_cell
from hqlt_lab.train.rl.evaluate_agent import score_agent
from hqlt_lab.train.rl.sac_trainer import ACTING_STREAM, UPDATE_STREAM, SacTrainer
from tests.agent.conftest import MATCH, make_agent, make_cell

WARMUP = {"warmup_episodes": 8, "episodes_at_once": 8}


def make_trainer(folder, seed=0, **train):
    cell = make_cell(task=MATCH, agent=WARMUP, seed=seed, **train)
    return SacTrainer(cell, build("task", cell.task), folder)


def seed_of_generator():
    return torch.default_generator.initial_seed()


def test_initial_weights_depend_on_the_seed(tmp_path):
    first, again, other = (dict(make_trainer(tmp_path, seed).agent.named_parameters()) for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    changed = {name for name in first if not torch.equal(first[name], other[name])}
    assert {name.partition(".")[0] for name in changed} == {name.partition(".")[0] for name in first}


@pytest.mark.parametrize("seed", [0, 1])
def test_episodes_and_random_actions_are_those_of_the_seed(seed, tmp_path):
    trainer = make_trainer(tmp_path, seed)
    episodes, task = trainer.collect_episodes(), trainer.environment
    observations = [task.reset("train", each, 0, 8).observation() for each in (0, 1)]
    assert np.array_equal(episodes.observations[:, 0], observations[seed])
    assert not np.array_equal(*observations)
    actions = [make_trainer(tmp_path, each).make_random_actor(0, 8).planned_actions for each in (0, 1)]
    assert (episodes.actions == actions[seed])[np.arange(task.max_episode_steps) < episodes.lengths[:, None]].all()
    assert not np.array_equal(*actions)


def test_batches_depend_on_the_seed_and_the_update(tmp_path):
    trainer, losses = make_trainer(tmp_path), {}
    trainer.collect_episodes()
    for seed, update in ((0, 0), (1, 0), (0, 1), (0, 0)):
        trainer.cell, trainer.counters.updates = replace(trainer.cell, seed=seed), update
        loss = trainer.compute_losses().total.item()
        assert losses.setdefault((seed, update), loss) == loss
    assert len(set(losses.values())) == 3


def test_dropout_and_sampled_actions_depend_on_the_seed_and_counters(tmp_path):
    trainer = make_trainer(tmp_path, seed=3)
    trainer.collect_episodes()
    trainer.counters.updates = 5
    trainer.compute_losses()
    assert seed_of_generator() == derive_seed(repr((3, UPDATE_STREAM, 5)))
    trainer.collect_episodes()
    assert seed_of_generator() == derive_seed(repr((3, ACTING_STREAM, 8)))


def test_clipped_gradients_have_exactly_the_configured_norm(tmp_path):
    """With a large eps and no momentum or decay, one Adam step is lr * gradient / eps."""
    settings = {"lr": 1.0, "warmup": 0, "schedule": "constant", "betas": [0.0, 0.0], "adam_eps": 1e3}
    trainer = make_trainer(tmp_path, clip=1e-3, weight_decay=0.0, **settings)
    trainer.agent.double()
    trainer.target_critics.double()
    trainer.collect_episodes()
    start = torch.cat([value.detach().flatten() for value in trainer.agent.parameters()])
    trainer.update_weights()
    step = torch.cat([value.detach().flatten() for value in trainer.agent.parameters()]) - start
    assert trainer.update_metrics["train/gradient_norm"] > 0.01
    assert step.norm().item() * 1e3 == pytest.approx(1e-3, rel=1e-3)


def test_agent_is_scored_without_dropout_greedily_and_on_the_requested_split():
    agent, environment = make_agent(MATCH | {"eval_size": 32}, dropout=0.5)
    scores = {split: score_agent(agent.train(), environment, split, 8).metrics for split in ("valid", "test")}
    assert agent.training and scores["valid"] != scores["test"]
    agent_without_dropout, _ = make_agent(MATCH | {"eval_size": 32})
    for split, metrics in scores.items():
        assert score_agent(agent_without_dropout, environment, split, 32).metrics == pytest.approx(metrics)


def test_final_scores_are_those_of_the_test_split(tmp_path):
    cell = make_cell(task=MATCH | {"eval_size": 32}, keep="last")
    outcome, environment = fit(cell, tmp_path), build("task", cell.task)
    agent = load_cell(tmp_path).model
    scores = {split: score_agent(agent, environment, split, 32).metrics for split in ("valid", "test")}
    assert scores["valid"] != scores["test"]
    for split, metrics in scores.items():
        assert {name: outcome.metrics[f"{split}/{name}"] for name in metrics} == pytest.approx(metrics)
