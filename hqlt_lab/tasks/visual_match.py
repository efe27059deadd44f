"""Visual match: remember a colour, collect apples for a while, then go to the cell of that colour.

    phase 1    the agent is walled in, and one of the cells around it has the colour to remember
    phase 2    a room with apples: each gives a reward, and is back after a while
    phase 3    cells of several colours: the one that was shown gives a large reward, and any of them ends the episode

The passive form: nothing has to be done to see the colour.  Only the 5 x 5 cells around the agent are seen, as an
image.  The step that ends a phase shows the first view of the next one.

    task: {name: visual_match, phases: [15, 750, 15]}

Defaults are the HQLT paper's text; where it is silent, its code.  What that code did otherwise: `contact_ends: false`,
`regrow: 21`, `order: split`.  Hung et al. 2019, arXiv:1810.06721; Ni et al. 2023, arXiv:2307.03864.
"""

from dataclasses import dataclass
from typing import Literal

from hqlt_lab.errors import ConfigError, did_you_mean, listed
from hqlt_lab.registry import register
from hqlt_lab.tasks._base import Split
from hqlt_lab.tasks._counter import Draws, Ints
from hqlt_lab.tasks._match_scene import CELLS, COLOURS, MatchScene
from hqlt_lab.tasks._world import World

FEWEST, MOST = 2, 3  # colours: the room of phase 3 has three cells for them


@register("task", "visual_match")
@dataclass(frozen=True, kw_only=True)
class VisualMatch(World):
    phases: tuple[int, int, int] = (15, 750, 15)
    """Steps of each phase; the second may have none."""
    apples: int = 10
    """Apples in phase 2, each at another of 22 cells, which are drawn anew for every episode."""
    regrow: int | None = 20
    """Steps after which an apple that was eaten is back; null: never."""
    regrow_at: Literal["same", "random"] = "same"
    """Whether it is back at its old cell, or at one that is free and drawn."""
    apple_reward: float = 1.0
    """For every apple."""
    match_reward: float = 100.0
    """For reaching the colour that was shown."""
    colours: tuple[str, ...] = ("red", "green", "blue")
    """Two or three, of red, green, blue, yellow, magenta and cyan."""
    order: Literal["fixed", "episode", "split"] = "fixed"
    """Which colour is where: one order for all, one per episode, or one for train and another for valid and test."""
    contact_ends: bool = True
    """Whether touching a colour ends the episode; if not, all colours vanish and the clock runs on."""

    def __post_init__(self) -> None:
        wrong = self.too_small({"apples": 0, "regrow": 1, "eval_size": 1})
        if len(self.phases) != 3 or min(self.phases) < 0 or not (self.phases[0] and self.phases[2]):
            wrong.append(f"phases: the steps of three phases are needed, as [15, 750, 15]; got {list(self.phases)}.")
        if self.apples > len(CELLS):
            wrong.append(f"apples: there is room for {len(CELLS)}, got {self.apples}.")
        wrong += [
            f"colours: there is no {colour!r}.{did_you_mean(colour, COLOURS)} Colours: {listed(COLOURS)}."
            for colour in self.colours
            if colour not in COLOURS
        ]
        if not FEWEST <= len(set(self.colours)) == len(self.colours) <= MOST:
            wrong.append(f"colours: two or three different ones are needed, got {list(self.colours)}.")
        if wrong:
            raise ConfigError("\n".join(wrong))

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, 5, 5)

    @property
    def horizon(self) -> int:
        return sum(self.phases)

    @property
    def chance(self) -> float:
        return 100 / len(self.colours)

    def begin(self, split: Split, seed: int, first: int, count: int) -> MatchScene:
        draws = self.draws(split, seed, first, count)
        return MatchScene(self, draws, self.layout(split, seed, draws))

    def layout(self, split: Split, seed: int, draws: Draws) -> Ints:
        """The colour at each place of phase 3, in every episode [N, colours]."""
        if self.order == "episode":
            return draws.orders("order", len(self.colours))
        where = "all" if self.order == "fixed" else "train" if split == "train" else "evaluation"
        chosen = seed if where == "train" else self.data_seed
        one = Draws(f"VisualMatch/order/{where}/{chosen}", 0, 1).orders("order", len(self.colours))
        return one.repeat(len(draws.examples), 0)
