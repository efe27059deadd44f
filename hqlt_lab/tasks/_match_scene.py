"""The rules of visual match, for many episodes at once: every line is about all of them.

Coordinates are (row, column).  `frame` counts the steps of the current phase.  An apple is there from its frame
`back_at` on.  Within a step: the agent moves unless a wall is in its way, apples return, what is at its cell is taken.
"""

from typing import TYPE_CHECKING

import numpy as np

from hqlt_lab.tasks._boards import SIGHT, Board, around, bordered, dimmed, in_sight
from hqlt_lab.tasks._counter import Draws, Ints
from hqlt_lab.tasks._world import COLUMN_OF, EAST, NORTH, ROW_OF, SOUTH, WEST, Bools, Bytes, Rewards, Scene

if TYPE_CHECKING:
    from hqlt_lab.tasks.visual_match import VisualMatch

SHOWN, GATHERED, CHOSEN = range(3)  # the phases
BOARDS = (
    Board(
        (
            "...........",
            "....###....",
            "....#@#....",
            "....###....",
            "...........",
            "...........",
            "...........",
        )
    ),
    Board(
        (
            "###########",
            "#a.a.a.a.a#",
            "#.a.a.a.a.#",
            "#a.a.a.a.a#",
            "#.a.a.a.a.#",
            "#a.a.@.a.a#",
            "###########",
        )
    ),
    Board(
        (
            "###########",
            "#.c..c..c.#",
            "#.........#",
            "#.........#",
            "####...####",
            "####.@.####",
            "###########",
        )
    ),
)
RING, CELLS, GOALS = BOARDS[SHOWN].places("#"), BOARDS[GATHERED].places("a"), BOARDS[CHOSEN].places("c")
NUMBERS = np.full(BOARDS[GATHERED].walls.shape, -1)  # of the cells that may have an apple
NUMBERS[*CELLS.T] = np.arange(len(CELLS))
LOBBY = 3  # the row of phase 3 from which every goal can be reached without touching another
BACKGROUND, WALL, AGENT, APPLE, FIRST_COLOUR = range(5)  # what a cell may hold; then the colours
PAINT = ((204, 204, 204), (25, 25, 25), (228, 148, 109), (140, 178, 0))
COLOURS = {
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "magenta": (255, 0, 255),
    "cyan": (0, 255, 255),
}
EMPTY = [bordered(board.walls.astype(np.uint8) * WALL) for board in BOARDS]
NEVER = np.iinfo(np.int64).max


class MatchScene(Scene):
    """Episodes of one world; `layout` [N, colours] says which colour stands at each goal."""

    def __init__(self, world: "VisualMatch", draws: Draws, layout: Ints) -> None:
        self.world, self.draws, self.layout, self.rows = world, draws, layout, np.arange(len(layout))
        self.palette = np.array([*PAINT, *(COLOURS[name] for name in world.colours)], dtype=np.uint8)
        self.colour = draws.integers("colour", 0, len(world.colours) - 1)[:, 0]  # the one to remember
        self.cue = RING[draws.integers("cue", 0, len(RING) - 1)[:, 0]]  # [N, 2]
        self.cells = draws.distinct("apples", 0, len(CELLS) - 1, world.apples)  # [N, apples] numbers of cells
        self.back_at = np.zeros_like(self.cells)
        # of two colours, the outer goals
        self.goals = GOALS if len(world.colours) == len(GOALS) else GOALS[[0, -1]]
        self.time, self.touched = 0, np.zeros(len(layout), bool)
        self.ended, self.success = self.touched.copy(), self.touched.copy()
        self.enter(SHOWN)

    def enter(self, phase: int) -> None:
        """Begin a phase."""
        self.phase, self.frame = phase, 0
        self.place = np.repeat(BOARDS[phase].start[None], len(self.layout), 0)  # [N, 2]

    def act(self, actions: Ints) -> Rewards:
        acting = ~self.ended
        self.time, self.frame = self.time + 1, self.frame + 1
        self.move(actions, acting)
        rewards = np.zeros(len(actions), np.float32)
        if self.phase == GATHERED:
            rewards = self.gather(acting)
        elif self.phase == CHOSEN:
            rewards = self.choose(acting)
        while self.phase < CHOSEN and self.frame == self.world.phases[self.phase]:
            self.enter(self.phase + 1)
        self.ended = self.ended | (self.time == self.world.horizon)
        return rewards

    def move(self, actions: Ints, acting: Bools) -> None:
        """One cell, unless a wall is there."""
        goal = self.place + np.stack([ROW_OF[actions], COLUMN_OF[actions]], 1)
        free = acting & ~BOARDS[self.phase].walls[goal[:, 0], goal[:, 1]]
        self.place = np.where(free[:, None], goal, self.place)

    def gather(self, acting: Bools) -> Rewards:
        """Eat the apple at the agent's cell."""
        if self.world.regrow_at == "random":
            self.scatter()
        here = self.cells == NUMBERS[*self.place.T][:, None]  # [N, apples]
        eaten = here & (self.back_at <= self.frame) & acting[:, None]
        self.back_at[eaten] = NEVER if self.world.regrow is None else self.frame + self.world.regrow
        return (eaten.sum(1) * self.world.apple_reward).astype(np.float32)

    def scatter(self) -> None:
        """Give each apple that is back in this frame a cell that no other has."""
        rows, apples = np.nonzero(self.back_at == self.frame)
        if not len(rows):
            return
        taken = np.zeros((len(self.rows), len(CELLS)), bool)
        taken[self.rows[:, None], self.cells] = True
        taken[rows, self.cells[rows, apples]] = False
        orders = self.draws.orders(f"regrow {self.frame}", len(CELLS))[rows]  # [K, cells]
        for row, apple, order in zip(
            rows, apples, orders, strict=True
        ):  # one after the other: two may be back in one row
            self.cells[row, apple] = order[~taken[row, order]][0]
            taken[row, self.cells[row, apple]] = True

    def choose(self, acting: Bools) -> Rewards:
        """See whether a colour was touched, and whether it is the right one."""
        here = (self.goals[None] == self.place[:, None]).all(2) & (acting & ~self.touched)[:, None]  # [N, colours]
        right = (here & (self.layout == self.colour[:, None])).any(1)
        self.touched = self.touched | here.any(1)
        self.success = self.success | right
        if self.world.contact_ends:
            self.ended = self.ended | self.touched
        return (right * self.world.match_reward).astype(np.float32)

    def board(self) -> Bytes:
        """What every cell holds, [N, rows, columns], with a border."""
        cells = np.repeat(EMPTY[self.phase][None], len(self.layout), 0)
        inside = cells[:, SIGHT:-SIGHT, SIGHT:-SIGHT]
        if self.phase == SHOWN:
            inside[self.rows, *self.cue.T] = FIRST_COLOUR + self.colour
        elif self.phase == GATHERED:
            there = CELLS[self.cells]  # [N, apples, 2]
            held = np.where(self.back_at <= self.frame, APPLE, BACKGROUND)
            inside[self.rows[:, None], there[..., 0], there[..., 1]] = held
        else:
            held = np.where(self.touched[:, None], BACKGROUND, FIRST_COLOUR + self.layout)
            inside[:, *self.goals.T] = held
        return cells

    def observe(self) -> Bytes:
        seen = around(self.board(), self.place)
        seen[:, SIGHT, SIGHT] = AGENT
        return np.ascontiguousarray(self.palette.take(seen, 0).transpose(0, 3, 1, 2))

    def picture(self) -> Bytes:
        cells = self.board()[:, SIGHT:-SIGHT, SIGHT:-SIGHT]
        cells[self.rows, *self.place.T] = AGENT
        return dimmed(self.palette[cells], in_sight(cells.shape[1:], self.place))

    def guide(self) -> Ints:
        """The nearest apple; then up into the room, sideways below the goal, and up again."""
        if self.phase == CHOSEN:
            column = self.goals[(self.layout == self.colour[:, None]).argmax(1), 1]
            aside = column - self.place[:, 1]
            return np.where((self.place[:, 0] > LOBBY) | (aside == 0), NORTH, np.where(aside > 0, EAST, WEST))
        if not self.world.apples:
            return np.full(len(self.layout), EAST)
        way = CELLS[self.cells] - self.place[:, None]  # [N, apples, 2]
        far = np.abs(way).sum(2) + 100 * (self.back_at > self.frame)
        down, right = way[self.rows, far.argmin(1)].T
        return np.where(down, np.where(down > 0, SOUTH, NORTH), np.where(right >= 0, EAST, WEST))
