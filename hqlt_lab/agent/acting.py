"""Acting step by step: the memory's state goes along, so that what is done may depend on all that was seen.

In training actions are drawn from the policy, and dropout is as active as in learning; in evaluation the most probable
action is taken.  The authors' fast-weight models lost their state in training, and so acted on what they saw alone.
"""

import torch

from hqlt_lab.agent.networks import Agent
from hqlt_lab.model.state import State
from hqlt_lab.tasks._counter import Draws, Ints
from hqlt_lab.tasks._world import Bytes


class Acting:
    """An agent in some episodes that begin together."""

    def __init__(self, agent: Agent, greedy: bool) -> None:
        self.agent, self.greedy = agent, greedy
        self.state: State | None = None

    @torch.no_grad()
    def __call__(self, seen: Bytes) -> Ints:
        """What to do now."""
        h, self.state = self.agent(torch.from_numpy(seen)[:, None].to(self.agent.device), self.state)
        scores = self.agent.policy(h[:, 0])  # [N, actions]
        chosen = scores.argmax(-1) if self.greedy else torch.multinomial(scores.softmax(-1), 1)[:, 0]
        return chosen.cpu().numpy()


class Wandering:
    """Every action is as probable as any other; episode number i of a run always wanders the same way."""

    def __init__(self, draws: Draws, actions: int, horizon: int) -> None:
        self.plan = draws.integers("wandering", 0, actions - 1, horizon)  # [N, horizon]
        self.time = 0

    def __call__(self, seen: Bytes) -> Ints:
        self.time += 1
        return self.plan[:, self.time - 1]
