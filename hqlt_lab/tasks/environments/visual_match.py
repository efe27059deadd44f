"""Visual match: remember a color, collect apples for a while, then go to the cell of that color.

    phase 1    the agent is enclosed by walls, and one of the cells around it has the color to remember
    phase 2    a room with apples: each gives a reward and regrows after a while
    phase 3    cells of several colors: the remembered one gives a large reward, and touching any ends the episode

The passive variant: no action is needed to see the color.  An observation is an image of the 5 x 5 cells around the
agent.  The step that ends a phase returns the first observation of the next one.

    task: {name: visual_match, phases: [15, 750, 15]}

Defaults follow the text of the HQLT paper, or its code where the text does not specify them.  The code differs from the
text in `contact_ends: false`, `regrow: 21`, `order: split`.

Hung et al. 2019, arXiv:1810.06721; Ni et al. 2023, arXiv:2307.03864.
"""

from dataclasses import dataclass
from typing import Literal

from hqlt_lab.errors import ConfigError, ConfigIssue, did_you_mean, format_names, join_sentences
from hqlt_lab.registry import register
from hqlt_lab.tasks._base import Split
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._environment import Environment
from hqlt_lab.tasks.environments._visual_match_env import APPLE_POSITIONS, COLORS, VisualMatchVectorEnv

MIN_COLORS, MAX_COLORS = 2, 3  # the goal phase has three goal cells


@register("task", "visual_match")
@dataclass(frozen=True, kw_only=True)
class VisualMatch(Environment):
    phases: tuple[int, int, int] = (15, 750, 15)
    """Steps of each phase; the second may be 0."""
    apples: int = 10
    """Number of apples in phase 2. Their cells, out of 22, are drawn for every episode."""
    regrow: int | None = 20
    """Steps after which a collected apple regrows; null: never."""
    regrow_at: Literal["same", "random"] = "same"
    """Whether an apple regrows in the same cell or in a random free one."""
    apple_reward: float = 1.0
    """Reward for each apple."""
    match_reward: float = 100.0
    """Reward for reaching the remembered color."""
    colors: tuple[str, ...] = ("red", "green", "blue")
    """Two or three of red, green, blue, yellow, magenta and cyan."""
    order: Literal["fixed", "episode", "split"] = "fixed"
    """Arrangement of the goal colors: one for all, one per episode, or one for train and one for valid and test."""
    contact_ends: bool = True
    """Whether touching a color ends the episode; if not, all colors vanish and the episode continues."""

    def __post_init__(self) -> None:
        issues = self.check_minimums({"apples": 0, "regrow": 1, "eval_size": 1})
        if len(self.phases) != 3 or min(self.phases) < 0 or not (self.phases[0] and self.phases[2]):
            message = f"the steps of three phases are needed, such as [15, 750, 15]; got {list(self.phases)}."
            issues.append(ConfigIssue("phases", "invalid_phases", message))
        if self.apples > len(APPLE_POSITIONS):
            message = f"at most {len(APPLE_POSITIONS)} is allowed, got {self.apples}."
            issues.append(ConfigIssue("apples", "above_maximum", message))
        issues += [
            ConfigIssue(
                "colors",
                "unknown_color",
                f"there is no color {color!r}.",
                join_sentences(did_you_mean(color, COLORS), f"Colors: {format_names(COLORS)}."),
            )
            for color in self.colors
            if color not in COLORS
        ]
        if not MIN_COLORS <= len(set(self.colors)) == len(self.colors) <= MAX_COLORS:
            message = f"two or three different colors are needed, got {list(self.colors)}."
            issues.append(ConfigIssue("colors", "number_of_colors", message))
        if issues:
            raise ConfigError(*issues)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (3, 5, 5)

    @property
    def max_episode_steps(self) -> int:
        return sum(self.phases)

    @property
    def chance_level(self) -> float:
        return 100 / len(self.colors)

    def reset(self, split: Split, seed: int, first: int, count: int) -> VisualMatchVectorEnv:
        rng = self.make_rng(split, seed, first, count)
        return VisualMatchVectorEnv(self, rng, self.draw_goal_colors(split, seed, rng))

    def draw_goal_colors(self, split: Split, seed: int, rng: CounterRng) -> IntArray:
        """Draw the color of each goal cell in every episode, [N, colors]."""
        if self.order == "episode":
            return rng.permutations("order", len(self.colors))
        scope = "all" if self.order == "fixed" else "train" if split == "train" else "evaluation"
        scope_seed = seed if scope == "train" else self.data_seed
        order = CounterRng(f"VisualMatch/order/{scope}/{scope_seed}", 0, 1).permutations("order", len(self.colors))
        return order.repeat(len(rng.example_numbers), 0)
