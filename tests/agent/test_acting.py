"""An agent acts on the same memory that it learns, for every composition, in training as in evaluation."""

import numpy as np
import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.agent.acting import Acting, Wandering
from hqlt_lab.agent.episodes import live
from hqlt_lab.agent.memory_check import check_memory, step_by_step
from hqlt_lab.errors import TrainingError
from hqlt_lab.model.memory import HybridMemory
from tests.agent.conftest import MAZE, ROOM, agent_of

TIMINGS = [{"name": name, "window": 3} for name in lab.available("timing")]
BASELINES = {
    "fw_only": {"mixer": "fw_only"},
    "kv_only": {"mixer": "kv_only"},
    "no window": {"mixer": "kv_only", "timing": {"name": "synchronous", "window": None}},
}
COMPOSITIONS = {**{timing["name"]: {"timing": timing} for timing in TIMINGS}, **BASELINES}


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("model", COMPOSITIONS.values(), ids=COMPOSITIONS)
def test_what_is_acted_on_is_what_a_whole_pass_over_the_episode_gives(model, training):
    agent, world = agent_of(ROOM, **model)
    agent.double().train(training)
    lived = live(world.begin("train", 0, 0, 5), Acting(agent, greedy=True), world.horizon)
    with torch.no_grad():
        h, _ = agent(torch.from_numpy(lived.observations))
        torch.testing.assert_close(step_by_step(agent, torch.from_numpy(lived.observations)), h)
        chosen = agent.policy(h[:, :-1]).argmax(-1).numpy()
    real = np.arange(world.horizon) < lived.lengths[:, None]
    assert (chosen == lived.actions)[real].all() and check_memory(agent, world, 0, exact=True) < 1e-9


def test_a_memory_of_one_step_forgets_and_another_does_not():
    def answers(model):
        agent, _ = agent_of(MAZE, **model)
        seen = torch.zeros(2, 5, 4, dtype=torch.uint8)
        seen[0, 0, 0] = seen[1, 0, 1] = 1  # two signs
        seen[:, 1:, 2] = 1
        with torch.no_grad():
            h = agent.eval()(seen)[0]
        return float((h[0, -1] - h[1, -1]).abs().max())

    assert answers({"mixer": "kv_only", "timing": {"name": "synchronous", "window": 1}}) == 0
    assert answers({}) > 1e-3


def test_a_memory_that_is_lost_between_steps_stops_the_run(monkeypatch):
    agent, world = agent_of(ROOM)
    whole = HybridMemory.forward
    assert check_memory(agent.train(), world, 0, exact=True) < 1e-4

    def forgetful(self, x, state=None, places=None):
        return whole(self, x, None if self.training else state, places)

    monkeypatch.setattr(HybridMemory, "forward", forgetful)
    with pytest.raises(TrainingError, match="answers otherwise step by step than for a whole episode: from step 1 on"):
        check_memory(agent.train(), world, 0, exact=True)


def test_dropout_is_off_for_the_check_and_on_for_acting_in_training():
    agent, world = agent_of(ROOM, dropout=0.5)
    assert check_memory(agent.train(), world, 0, exact=True) < 1e-4
    assert agent.memory.drop.training
    seen = torch.from_numpy(world.begin("train", 0, 0, 3).observe())[:, None]
    with torch.no_grad():
        assert not torch.equal(agent(seen)[0], agent(seen)[0])
        assert torch.equal(agent.eval()(seen)[0], agent(seen)[0])


def test_actions_are_drawn_as_the_policy_says():
    agent, world = agent_of(MAZE)
    with torch.no_grad():
        agent.policy.maps[-1].bias.copy_(torch.tensor([0.0, 1.0, 2.0, -3.0]))
    seen = np.repeat(world.begin("train", 0, 0, 1).observe(), 20_000, 0)
    torch.manual_seed(0)
    drawn = np.bincount(Acting(agent, greedy=False)(seen), minlength=4) / 20_000
    wanted = torch.tensor([0.0, 1.0, 2.0, -3.0]).softmax(-1).numpy()
    assert np.abs(drawn - wanted).max() < 0.02
    assert (Acting(agent, greedy=True)(seen) == 2).all()


def test_lengths_rewards_and_success_are_those_of_the_scene():
    _, world = agent_of({"name": "t_maze", "length": 2})
    draws = world.draws("train", 0, 0, 50)
    lived = live(world.begin("train", 0, 0, 50), Wandering(draws, 4, world.horizon), world.horizon)
    scene, ended = world.begin("train", 0, 0, 50), np.zeros(50, int)
    for time in range(world.horizon):
        ended += ~scene.ended
        reward = scene.act(lived.actions[:, time])
        assert np.array_equal(reward, lived.rewards[:, time])
    assert np.array_equal(ended, lived.lengths) and len(set(ended)) > 2 and np.array_equal(lived.success, scene.success)
    assert lived.steps == ended.sum() and np.allclose(lived.returns, lived.rewards.sum(1))
