"""Acting step by step uses the same memory outputs as training on whole episodes, for every composition."""

import numpy as np
import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.agent.action_selection import PolicyActor, RandomActor
from hqlt_lab.agent.rollout import collect_rollout
from hqlt_lab.agent.streaming_check import check_streaming_equivalence, run_stepwise
from hqlt_lab.errors import TrainingError
from hqlt_lab.model.hybrid_memory import HybridMemory
from tests.agent.conftest import MATCH, MAZE, make_agent

TIMINGS = [{"name": name, "window": 3} for name in lab.available("timing")]
BASELINES = {
    "fw_only": {"mixer": "fw_only"},
    "kv_only": {"mixer": "kv_only"},
    "no window": {"mixer": "kv_only", "timing": {"name": "synchronous", "window": None}},
}
COMPOSITIONS = {**{timing["name"]: {"timing": timing} for timing in TIMINGS}, **BASELINES}


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("model", COMPOSITIONS.values(), ids=COMPOSITIONS)
def test_step_by_step_outputs_equal_those_of_a_pass_over_the_episode(model, training):
    agent, environment = make_agent(MATCH, **model)
    agent.double().train(training)
    max_steps = environment.max_episode_steps
    episodes = collect_rollout(environment.reset("train", 0, 0, 5), PolicyActor(agent, greedy=True), max_steps)
    with torch.no_grad():
        h, _ = agent(torch.from_numpy(episodes.observations))
        torch.testing.assert_close(run_stepwise(agent, torch.from_numpy(episodes.observations)), h)
        greedy_actions = agent.policy(h[:, :-1]).argmax(-1).numpy()
    mask = np.arange(max_steps) < episodes.lengths[:, None]
    assert (greedy_actions == episodes.actions)[mask].all()
    assert check_streaming_equivalence(agent, environment, 0, full_precision=True) < 1e-9


def test_output_depends_on_the_first_observation_only_with_a_longer_memory():
    def last_output_difference(model):
        agent, _ = make_agent(MAZE, **model)
        observations = torch.zeros(2, 5, 4, dtype=torch.uint8)
        observations[0, 0, 0] = observations[1, 0, 1] = 1  # two different signs
        observations[:, 1:, 2] = 1
        with torch.no_grad():
            h = agent.eval()(observations)[0]
        return float((h[0, -1] - h[1, -1]).abs().max())

    assert last_output_difference({"mixer": "kv_only", "timing": {"name": "synchronous", "window": 1}}) == 0
    assert last_output_difference({}) > 1e-3


def test_memory_that_loses_its_state_between_steps_is_an_error(monkeypatch):
    agent, environment = make_agent(MATCH)
    original_forward = HybridMemory.forward
    assert check_streaming_equivalence(agent.train(), environment, 0, full_precision=True) < 1e-4

    def forward_without_state(self, x, state=None, positions=None):
        return original_forward(self, x, None if self.training else state, positions)

    monkeypatch.setattr(HybridMemory, "forward", forward_without_state)
    with pytest.raises(TrainingError, match="differ from those for a whole episode, from step 1 on"):
        check_streaming_equivalence(agent.train(), environment, 0, full_precision=True)


def test_dropout_is_off_in_the_memory_check_and_on_when_acting_in_training():
    agent, environment = make_agent(MATCH, dropout=0.5)
    assert check_streaming_equivalence(agent.train(), environment, 0, full_precision=True) < 1e-4
    assert agent.memory.drop.training
    observations = torch.from_numpy(environment.reset("train", 0, 0, 3).observation())[:, None]
    with torch.no_grad():
        assert not torch.equal(agent(observations)[0], agent(observations)[0])
        assert torch.equal(agent.eval()(observations)[0], agent(observations)[0])


def test_actions_are_sampled_from_the_policy():
    agent, environment = make_agent(MAZE)
    with torch.no_grad():
        agent.policy.maps[-1].bias.copy_(torch.tensor([0.0, 1.0, 2.0, -3.0]))
    observations = np.repeat(environment.reset("train", 0, 0, 1).observation(), 20_000, 0)
    torch.manual_seed(0)
    frequencies = np.bincount(PolicyActor(agent, greedy=False)(observations), minlength=4) / 20_000
    expected = torch.tensor([0.0, 1.0, 2.0, -3.0]).softmax(-1).numpy()
    assert np.abs(frequencies - expected).max() < 0.02
    assert (PolicyActor(agent, greedy=True)(observations) == 2).all()


def test_rollout_records_the_lengths_rewards_and_success_of_the_environment():
    _, environment = make_agent({"name": "t_maze", "length": 2})
    max_steps = environment.max_episode_steps
    actor = RandomActor(environment.make_rng("train", 0, 0, 50), 4, max_steps)
    episodes = collect_rollout(environment.reset("train", 0, 0, 50), actor, max_steps)
    env, lengths = environment.reset("train", 0, 0, 50), np.zeros(50, int)
    for t in range(max_steps):
        lengths += ~env.done
        rewards = env.step(episodes.actions[:, t])
        assert np.array_equal(rewards, episodes.rewards[:, t])
    assert np.array_equal(lengths, episodes.lengths) and len(set(lengths)) > 2
    assert np.array_equal(episodes.success, env.success)
    assert episodes.total_steps == lengths.sum() and np.allclose(episodes.returns, episodes.rewards.sum(1))
