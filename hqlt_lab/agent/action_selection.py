"""Choose actions step by step, carrying the memory's state, so that actions depend on all past observations.

In training, actions are sampled from the policy with dropout active, as in the updates; in evaluation the most probable
action is taken.  In the code of the HQLT paper, fast-weight models lost their state during training and acted on the
current observation only.
"""

import torch

from hqlt_lab.agent.networks import Agent
from hqlt_lab.model.state import State
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._environment import UInt8Array


class PolicyActor:
    """Acts with the policy of an agent in episodes that start at the same time."""

    def __init__(self, agent: Agent, greedy: bool) -> None:
        self.agent, self.greedy = agent, greedy
        self.state: State | None = None

    @torch.no_grad()
    def __call__(self, observations: UInt8Array) -> IntArray:
        """Return the next action of each episode and update the memory's state."""
        h, self.state = self.agent(torch.from_numpy(observations)[:, None].to(self.agent.device), self.state)
        logits = self.agent.policy(h[:, 0])  # [N, actions]
        actions = logits.argmax(-1) if self.greedy else torch.multinomial(logits.softmax(-1), 1)[:, 0]
        return actions.cpu().numpy()


class RandomActor:
    """Acts uniformly at random.  The actions of episode i of a run are always the same."""

    def __init__(self, rng: CounterRng, num_actions: int, max_steps: int) -> None:
        # the name of the stream seeds the draws: another name would change the results of every agent
        self.planned_actions = rng.integers("wandering", 0, num_actions - 1, max_steps)  # [N, max_steps]
        self.elapsed_steps = 0

    def __call__(self, observations: UInt8Array) -> IntArray:
        self.elapsed_steps += 1
        return self.planned_actions[:, self.elapsed_steps - 1]
