"""The rules of visual match, according to the paper's text and as implemented in its code."""

import numpy as np
import pytest

import hqlt_lab as lab
from hqlt_lab.tasks._environment import EAST, NORTH, SOUTH, WEST
from tests.issues import raises_issue

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
WALL, GROUND, AGENT, APPLE = (25, 25, 25), (204, 204, 204), (228, 148, 109), (140, 178, 0)
PAPER_CODE = {"contact_ends": False, "regrow": 21, "order": "split"}


def make_environment(**options):
    return lab.build("task", {"name": "visual_match", **options})


def reset_environment(count=200, seed=0, **options):
    return make_environment(**options).reset("train", seed, 0, count)


def views(env):
    """Return the observations as images [N, 5, 5, 3]."""
    return env.observation().transpose(0, 2, 3, 1)


def take_steps(env, *actions):
    """Take the same actions in all episodes and return the rewards of each step."""
    return [env.step(np.full(len(env.done), action)) for action in actions]


def visible_colors(env):
    """Return the set of visible goal colors of each episode."""
    return [{tuple(c) for c in view.reshape(-1, 3).tolist()} & {RED, GREEN, BLUE} for view in views(env)]


def test_defaults_are_those_of_the_paper():
    paper = make_environment()
    assert tuple(paper.phases) == (15, 750, 15)
    assert (paper.max_episode_steps, paper.apples, paper.regrow, paper.apple_reward, paper.match_reward) == (
        780,
        10,
        20,
        1,
        100,
    )
    assert (paper.observation_shape, paper.chance_level, paper.contact_ends, paper.eval_size) == (
        (3, 5, 5),
        100 / 3,
        True,
        20,
    )


def test_phase_1_shows_one_color_in_a_ring_of_walls_and_agents_cannot_move():
    env = reset_environment(phases=[15, 5, 5])
    first = views(env)
    for action in (NORTH, SOUTH, WEST, EAST):
        take_steps(env, action)
        assert np.array_equal(views(env), first)
    for view in first:
        ring = [tuple(view[r, c]) for r in (1, 2, 3) for c in (1, 2, 3) if (r, c) != (2, 2)]
        assert sorted(ring).count(WALL) == 7 and len({*ring} - {WALL}) == 1 and {*ring} - {WALL} <= {RED, GREEN, BLUE}
        assert tuple(view[2, 2]) == AGENT and (view[[0, 4]] == GROUND).all()


def test_colors_and_cue_positions_are_uniform():
    env = reset_environment(6000)
    for drawn, choices in ((env.target_color, 3), (env.cue_position @ [10, 1], 8)):
        _, counts = np.unique(drawn, return_counts=True)
        assert len(counts) == choices and (abs(counts / 6000 - 1 / choices) < 0.03).all()


def test_step_that_ends_a_phase_returns_the_view_of_the_next_one():
    env = reset_environment(phases=[3, 2, 2])
    take_steps(env, EAST, EAST)
    assert all(len(colors) == 1 for colors in visible_colors(env))
    take_steps(env, EAST)
    assert not any(visible_colors(env)) and (env.position == [5, 5]).all()
    take_steps(env, NORTH, NORTH)
    assert (env.position == [5, 5]).all() and env.phase == 2
    assert (views(env)[:, 2, 0] == WALL).all()  # the wall of the alcove


def test_phase_2_is_a_walled_room_of_five_rows_and_nine_columns():
    for action, count, position in ((SOUTH, 1, [5, 5]), (NORTH, 6, [1, 5]), (WEST, 9, [5, 1]), (EAST, 9, [5, 9])):
        env = reset_environment(3, phases=[1, 50, 1])
        take_steps(env, NORTH, *[action] * count)
        assert (env.position == position).all()


def test_ten_apples_are_on_different_cells_of_a_checkerboard_and_not_at_the_start():
    env = reset_environment(500, phases=[1, 50, 1])
    take_steps(env, NORTH)
    boards = env.draw_boards()[:, 2:-2, 2:-2] == 3
    assert (boards.sum((1, 2)) == 10).all() and not boards[:, 5, 5].any()
    used = np.argwhere(boards.any(0))
    assert len(used) == 22 and (used.sum(1) % 2 == 0).all()
    assert 0.4 < boards[:, 1, 1].mean() < 0.51  # expected: 10 of 22


def collect_west_apple(**options):
    """Move all agents two cells west; return the environment, where an apple was there, and the rewards."""
    env = reset_environment(400, phases=[1, 60, 1], **options)
    take_steps(env, NORTH)
    had_apple = (env.draw_boards()[:, 2:-2, 2:-2] == 3)[:, 5, 3]
    rewards = take_steps(env, WEST, WEST)
    assert (rewards[0] == 0).all()
    return env, had_apple, rewards[1]


def test_collected_apple_gives_reward_one_and_disappears():
    env, had_apple, reward = collect_west_apple()
    assert np.array_equal(reward, had_apple.astype(np.float32)) and had_apple.any() and not had_apple.all()
    take_steps(env, EAST)
    assert (views(env)[had_apple][:, 2, 1] == GROUND).all()


@pytest.mark.parametrize(("regrow", "steps"), [(20, 20), (21, 21), (3, 3)])
def test_apple_regrows_in_its_cell_after_the_given_steps(regrow, steps):
    env, had_apple, _ = collect_west_apple(regrow=regrow)
    for step in range(1, steps + 1):
        # one cell east, then up and down, so that the cell stays in view
        take_steps(env, EAST if step == 1 else NORTH if step % 2 else SOUTH)
        present = (env.draw_boards()[:, 2:-2, 2:-2] == 3)[had_apple, 5, 3]
        assert present.all() if step == steps else not present.any()


def test_apple_that_regrows_under_the_agent_is_collected_at_once():
    env, had_apple, _ = collect_west_apple(regrow=4)
    rewards = take_steps(env, SOUTH, SOUTH, SOUTH, SOUTH)  # the wall keeps the agent in place
    assert not any(reward.any() for reward in rewards[:3]) and np.array_equal(rewards[3], had_apple.astype(np.float32))


def test_apples_can_regrow_never_or_in_another_cell():
    env, had_apple, _ = collect_west_apple(regrow=None)
    take_steps(env, *[EAST, WEST] * 10)
    assert not (env.draw_boards()[:, 2:-2, 2:-2] == 3)[had_apple, 5, 3].any()
    env, had_apple, _ = collect_west_apple(regrow=5, regrow_at="random")
    take_steps(env, *[SOUTH] * 5)
    boards = (env.draw_boards()[:, 2:-2, 2:-2] == 3)[had_apple]
    assert boards[:, 5, 3].mean() < 0.3  # 1 of 13 free cells, and then it was collected at once
    assert ((boards.sum((1, 2)) == 10) | boards[:, 5, 3] | (boards.sum((1, 2)) == 9)).all()


def start_phase_3(count=300, **options):
    env = reset_environment(count, **({"phases": [1, 0, 15]} | options))
    take_steps(env, NORTH)
    return env


PATH_TO_GOAL = {0: [NORTH] * 2 + [WEST] * 3 + [NORTH] * 2, 1: [NORTH] * 4, 2: [NORTH] * 2 + [EAST] * 3 + [NORTH] * 2}


@pytest.mark.parametrize("goal", PATH_TO_GOAL)
def test_goals_are_seven_four_and_seven_steps_away_and_the_correct_one_gives_100(goal):
    env = start_phase_3()
    *before, last = take_steps(env, *PATH_TO_GOAL[goal])
    correct = env.goal_colors[:, goal] == env.target_color
    assert not any(reward.any() for reward in before)
    assert np.array_equal(last, 100 * correct.astype(np.float32)) and np.array_equal(env.success, correct)
    assert 0.2 < correct.mean() < 0.47


def test_touching_any_color_ends_the_episode():
    env = start_phase_3()
    take_steps(env, *PATH_TO_GOAL[1][:-1])
    assert not env.done.any()
    take_steps(env, NORTH)
    assert env.done.all() and env.elapsed_steps == 1 + 4


def test_with_contact_ends_false_colors_vanish_and_the_episode_continues_without_rewards():
    env = start_phase_3(contact_ends=False)
    take_steps(env, *PATH_TO_GOAL[1])
    assert not env.done.any() and not any(visible_colors(env))
    rewards = take_steps(env, *[SOUTH, NORTH] * 5)
    assert not any(reward.any() for reward in rewards)
    take_steps(env, NORTH)
    assert env.done.all() and env.elapsed_steps == 16
    assert np.array_equal(env.success, env.goal_colors[:, 1] == env.target_color)


def test_alcove_is_three_cells_wide_and_opens_to_the_room():
    for actions, position in (([WEST] * 3, [5, 4]), ([EAST] * 3, [5, 6]), ([NORTH, WEST, WEST], [4, 4])):
        env = start_phase_3(3)
        take_steps(env, *actions)
        assert (env.position == position).all()
    env = start_phase_3(3)
    take_steps(env, NORTH, NORTH, *[WEST] * 5)
    assert (env.position == [3, 1]).all()


def goal_colors(split, seed=0, **options):
    return make_environment(**options).reset(split, seed, 0, 100).goal_colors


def test_fixed_color_order_is_the_same_for_training_and_evaluation():
    fixed = goal_colors("train")
    assert (fixed == fixed[0]).all()
    for split, seed in (("train", 7), ("valid", 0), ("test", 0)):
        assert np.array_equal(goal_colors(split, seed), fixed)
    assert any(not np.array_equal(goal_colors("train", data_seed=seed), fixed) for seed in range(1, 6))


def test_color_order_can_be_drawn_per_episode_or_separately_for_training():
    assert len(np.unique(goal_colors("test", order="episode"), axis=0)) == 6
    training = [goal_colors("train", seed, **PAPER_CODE)[0].tolist() for seed in range(30)]
    evaluation = goal_colors("valid", **PAPER_CODE)[0].tolist()
    assert goal_colors("test", **PAPER_CODE)[0].tolist() == evaluation
    assert 0 < training.count(evaluation) < 15  # expected: one in six


def test_two_colors_are_at_the_outer_goal_cells():
    env = start_phase_3(colors=["yellow", "cyan"])
    assert make_environment(colors=["yellow", "cyan"]).chance_level == 50
    take_steps(env, *PATH_TO_GOAL[1])
    assert not env.done.any()
    env = start_phase_3(colors=["yellow", "cyan"])
    take_steps(env, *PATH_TO_GOAL[2])
    assert env.done.all() and 0.4 < env.success.mean() < 0.6


@pytest.mark.parametrize(
    ("options", "path", "code"),
    [
        ({"phases": [15, 750]}, "task.phases", "invalid_phases"),
        ({"phases": [0, 5, 5]}, "task.phases", "invalid_phases"),
        ({"apples": 23}, "task.apples", "above_maximum"),
        ({"regrow": 0}, "task.regrow", "below_minimum"),
        ({"colors": ["red", "gren"]}, "task.colors", "unknown_color"),
        ({"colors": ["red"]}, "task.colors", "number_of_colors"),
        ({"colors": ["red", "red"]}, "task.colors", "number_of_colors"),
    ],
)
def test_invalid_options_are_errors(options, path, code):
    with raises_issue(path, code):
        make_environment(**options)
