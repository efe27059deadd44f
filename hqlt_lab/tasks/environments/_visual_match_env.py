"""The vector environment of visual match: boards, rules and rendering, vectorized over episodes.

Boards are written in letters: `#` wall, `@` start of the agent, `a` possible apple cell, `c` goal cell.  An observation
is the square of cells around the agent, with background beyond the board.

Coordinates are (row, column).  `frame` counts the steps of the current phase.  An apple is present from frame
`regrow_frame` on.  Order within a step: the agent moves unless blocked by a wall, apples regrow, and the agent collects
what is in its cell.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._environment import (
    COLUMN_STEP,
    EAST,
    NORTH,
    ROW_STEP,
    SOUTH,
    WEST,
    BoolArray,
    RewardArray,
    UInt8Array,
    VectorEnv,
)

if TYPE_CHECKING:
    from hqlt_lab.tasks.environments.visual_match import VisualMatch


VIEW_RADIUS = 2  # visible cells in each direction


@dataclass(frozen=True)
class Board:
    """The cells of one phase, as letters."""

    rows: Sequence[str]

    @cached_property
    def wall_mask(self) -> BoolArray:
        """True for walls, [rows, columns]."""
        return np.array([[letter == "#" for letter in row] for row in self.rows])

    def find_letter(self, letter: str) -> IntArray:
        """Return the positions of a letter, row by row, [K, 2]."""
        return np.argwhere(np.array([list(row) for row in self.rows]) == letter)

    @cached_property
    def start_position(self) -> IntArray:
        """Row and column of the agent at the start, [2]."""
        return self.find_letter("@")[0]


def pad_boards(cells: UInt8Array) -> UInt8Array:
    """Add a border of background to boards [..., rows, columns], as wide as the view from their edges."""
    unpadded = [(0, 0)] * (cells.ndim - 2)
    return np.pad(cells, (*unpadded, (VIEW_RADIUS, VIEW_RADIUS), (VIEW_RADIUS, VIEW_RADIUS)))


def crop_views(cells: UInt8Array, positions: IntArray) -> UInt8Array:
    """Crop the views [N, 5, 5] from padded boards [N, rows, columns].  Positions [N, 2] do not count the border."""
    columns, offsets = cells.shape[2], np.arange(2 * VIEW_RADIUS + 1)
    window = (offsets[:, None] * columns + offsets).ravel()  # [25]
    corner = positions[:, :1] * columns + positions[:, 1:]  # [N, 1]
    return np.take_along_axis(cells.reshape(len(cells), -1), corner + window, 1).reshape(-1, len(offsets), len(offsets))


def visible_mask(shape: tuple[int, int], positions: IntArray) -> BoolArray:
    """Return which cells of a board are visible from each position, [N, rows, columns]."""
    rows, columns = (
        np.abs(np.arange(size) - positions[:, axis, None]) <= VIEW_RADIUS for axis, size in enumerate(shape)
    )
    return rows[:, :, None] & columns[:, None, :]


def dim_unseen(image: UInt8Array, visible: BoolArray) -> UInt8Array:
    """Return an image in which only visible cells have their full colors."""
    return np.where(visible[..., None], image, image // 2 + 96)


CUE_PHASE, APPLE_PHASE, GOAL_PHASE = range(3)
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
CUE_POSITIONS, APPLE_POSITIONS, GOAL_POSITIONS = (
    BOARDS[CUE_PHASE].find_letter("#"),
    BOARDS[APPLE_PHASE].find_letter("a"),
    BOARDS[GOAL_PHASE].find_letter("c"),
)
APPLE_CELL_NUMBERS = np.full(BOARDS[APPLE_PHASE].wall_mask.shape, -1)  # -1: cells that never hold an apple
APPLE_CELL_NUMBERS[*APPLE_POSITIONS.T] = np.arange(len(APPLE_POSITIONS))
LOBBY_ROW = 3  # from this row of the goal phase every goal can be reached without touching another
BACKGROUND, WALL, AGENT, APPLE, FIRST_COLOR = range(5)  # content of a cell; further numbers are the other colors
BASE_PALETTE = ((204, 204, 204), (25, 25, 25), (228, 148, 109), (140, 178, 0))
COLORS = {
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "magenta": (255, 0, 255),
    "cyan": (0, 255, 255),
}
EMPTY_BOARDS = [pad_boards(board.wall_mask.astype(np.uint8) * WALL) for board in BOARDS]
NEVER = np.iinfo(np.int64).max


class VisualMatchVectorEnv(VectorEnv):
    """Parallel episodes of visual match; `goal_colors` [N, colors] is the color of each goal cell."""

    def __init__(self, environment: "VisualMatch", rng: CounterRng, goal_colors: IntArray) -> None:
        self.environment, self.rng, self.goal_colors = environment, rng, goal_colors
        self.rows = np.arange(len(goal_colors))
        self.palette = np.array([*BASE_PALETTE, *(COLORS[name] for name in environment.colors)], dtype=np.uint8)
        self.target_color = rng.integers("colour", 0, len(environment.colors) - 1)[:, 0]  # to be remembered
        self.cue_position = CUE_POSITIONS[rng.integers("cue", 0, len(CUE_POSITIONS) - 1)[:, 0]]  # [N, 2]
        # numbers of cells, [N, apples]
        self.apple_cells = rng.distinct_integers("apples", 0, len(APPLE_POSITIONS) - 1, environment.apples)
        self.regrow_frame = np.zeros_like(self.apple_cells)
        # two colors use the outer goals
        self.goal_positions = (
            GOAL_POSITIONS if len(environment.colors) == len(GOAL_POSITIONS) else GOAL_POSITIONS[[0, -1]]
        )
        self.elapsed_steps, self.has_touched = 0, np.zeros(len(goal_colors), bool)
        self.done, self.success = self.has_touched.copy(), self.has_touched.copy()
        self.enter_phase(CUE_PHASE)

    def enter_phase(self, phase: int) -> None:
        """Start a phase: reset its frame counter and move the agents to its start position."""
        self.phase, self.frame = phase, 0
        self.position = np.repeat(BOARDS[phase].start_position[None], len(self.goal_colors), 0)  # [N, 2]

    def step(self, actions: IntArray) -> RewardArray:
        active = ~self.done
        self.elapsed_steps, self.frame = self.elapsed_steps + 1, self.frame + 1
        self.move_agents(actions, active)
        rewards = np.zeros(len(actions), np.float32)
        if self.phase == APPLE_PHASE:
            rewards = self.collect_apples(active)
        elif self.phase == GOAL_PHASE:
            rewards = self.reward_goal_contacts(active)
        while self.phase < GOAL_PHASE and self.frame == self.environment.phases[self.phase]:
            self.enter_phase(self.phase + 1)
        self.done = self.done | (self.elapsed_steps == self.environment.max_episode_steps)
        return rewards

    def move_agents(self, actions: IntArray, active: BoolArray) -> None:
        """Move each active agent by one cell, unless a wall blocks it."""
        destination = self.position + np.stack([ROW_STEP[actions], COLUMN_STEP[actions]], 1)
        free = active & ~BOARDS[self.phase].wall_mask[destination[:, 0], destination[:, 1]]
        self.position = np.where(free[:, None], destination, self.position)

    def collect_apples(self, active: BoolArray) -> RewardArray:
        """Collect the apple in each agent's cell and return the rewards."""
        if self.environment.regrow_at == "random":
            self.relocate_apples()
        at_agent = self.apple_cells == APPLE_CELL_NUMBERS[*self.position.T][:, None]  # [N, apples]
        eaten = at_agent & (self.regrow_frame <= self.frame) & active[:, None]
        self.regrow_frame[eaten] = NEVER if self.environment.regrow is None else self.frame + self.environment.regrow
        return (eaten.sum(1) * self.environment.apple_reward).astype(np.float32)

    def relocate_apples(self) -> None:
        """Move each apple that regrows in this frame to a random cell without another apple."""
        rows, apples = np.nonzero(self.regrow_frame == self.frame)
        if not len(rows):
            return
        is_occupied = np.zeros((len(self.rows), len(APPLE_POSITIONS)), bool)
        is_occupied[self.rows[:, None], self.apple_cells] = True
        is_occupied[rows, self.apple_cells[rows, apples]] = False
        orders = self.rng.permutations(f"regrow {self.frame}", len(APPLE_POSITIONS))[rows]  # [K, cells]
        # sequentially, because two apples may regrow in the same episode
        for row, apple, order in zip(rows, apples, orders, strict=True):
            self.apple_cells[row, apple] = order[~is_occupied[row, order]][0]
            is_occupied[row, self.apple_cells[row, apple]] = True

    def reward_goal_contacts(self, active: BoolArray) -> RewardArray:
        """Return the rewards for touching a goal, and update `has_touched`, `success` and `done`."""
        at_goal = (self.goal_positions[None] == self.position[:, None]).all(2)  # [N, colors]
        touched = at_goal & (active & ~self.has_touched)[:, None]
        correct = (touched & (self.goal_colors == self.target_color[:, None])).any(1)
        self.has_touched = self.has_touched | touched.any(1)
        self.success = self.success | correct
        if self.environment.contact_ends:
            self.done = self.done | self.has_touched
        return (correct * self.environment.match_reward).astype(np.float32)

    def draw_boards(self) -> UInt8Array:
        """Return the content of every cell, with the border, [N, rows, columns]."""
        cells = np.repeat(EMPTY_BOARDS[self.phase][None], len(self.goal_colors), 0)
        inside = cells[:, VIEW_RADIUS:-VIEW_RADIUS, VIEW_RADIUS:-VIEW_RADIUS]
        if self.phase == CUE_PHASE:
            inside[self.rows, *self.cue_position.T] = FIRST_COLOR + self.target_color
        elif self.phase == APPLE_PHASE:
            positions = APPLE_POSITIONS[self.apple_cells]  # [N, apples, 2]
            contents = np.where(self.regrow_frame <= self.frame, APPLE, BACKGROUND)
            inside[self.rows[:, None], positions[..., 0], positions[..., 1]] = contents
        else:
            contents = np.where(self.has_touched[:, None], BACKGROUND, FIRST_COLOR + self.goal_colors)
            inside[:, *self.goal_positions.T] = contents
        return cells

    def observation(self) -> UInt8Array:
        views = crop_views(self.draw_boards(), self.position)
        views[:, VIEW_RADIUS, VIEW_RADIUS] = AGENT
        return np.ascontiguousarray(self.palette.take(views, 0).transpose(0, 3, 1, 2))

    def render(self) -> UInt8Array:
        cells = self.draw_boards()[:, VIEW_RADIUS:-VIEW_RADIUS, VIEW_RADIUS:-VIEW_RADIUS]
        cells[self.rows, *self.position.T] = AGENT
        return dim_unseen(self.palette[cells], visible_mask(cells.shape[1:], self.position))

    def expert_action(self) -> IntArray:
        """Go to the nearest apple; in the goal phase, enter the room, go to the goal's column, then north to it."""
        if self.phase == GOAL_PHASE:
            column = self.goal_positions[(self.goal_colors == self.target_color[:, None]).argmax(1), 1]
            columns_right = column - self.position[:, 1]
            go_north = (self.position[:, 0] > LOBBY_ROW) | (columns_right == 0)
            return np.where(go_north, NORTH, np.where(columns_right > 0, EAST, WEST))
        if not self.environment.apples:
            return np.full(len(self.goal_colors), EAST)
        offsets = APPLE_POSITIONS[self.apple_cells] - self.position[:, None]  # [N, apples, 2]
        distances = np.abs(offsets).sum(2) + 100 * (self.regrow_frame > self.frame)
        down, right = offsets[self.rows, distances.argmin(1)].T
        return np.where(down, np.where(down > 0, SOUTH, NORTH), np.where(right >= 0, EAST, WEST))
