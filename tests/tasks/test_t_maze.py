"""The rules of the T maze."""

import numpy as np
import pytest

import hqlt_lab as lab
from hqlt_lab.tasks._environment import EAST, NORTH, SOUTH, WEST
from tests.issues import raises_issue


def reset_maze(count=400, **options):
    return lab.build("task", {"name": "t_maze", **options}).reset("train", 0, 0, count)


def take_steps(env, *actions):
    """Take the same actions in all episodes and return the rewards of each step."""
    return [env.step(np.full(len(env.done), action)) for action in actions]


def observed_index(env):
    """Return the index of the one in each one-hot observation."""
    assert (env.observation().sum(1) == 1).all()
    return env.observation().argmax(1)


def test_sign_is_visible_once_and_shows_the_correct_turn():
    env = reset_maze(length=3)
    sign = observed_index(env)
    assert np.array_equal(sign == 1, env.goal_is_south) and 0.4 < env.goal_is_south.mean() < 0.6
    for _ in range(2):
        take_steps(env, EAST)
        assert (observed_index(env) == 2).all()
    take_steps(env, EAST)
    assert (observed_index(env) == 3).all()
    take_steps(env, WEST, WEST, WEST)
    assert (observed_index(env) == 2).all(), "the sign is no longer visible at the start"


@pytest.mark.parametrize(("turn", "south"), [(NORTH, False), (SOUTH, True)])
def test_correct_turn_gives_the_reward_and_both_turns_end_the_episode(turn, south):
    env = reset_maze(length=4)
    *before, last = take_steps(env, *[EAST] * 4, turn)
    correct = env.goal_is_south == south
    assert not any(reward.any() for reward in before) and np.array_equal(last, correct.astype(np.float32))
    assert env.done.all() and np.array_equal(env.success, correct)


def test_step_without_progress_has_a_cost():
    env = reset_maze(length=4)
    for action in (NORTH, SOUTH, WEST):
        assert np.allclose(take_steps(env, action)[0], -0.25)
    assert (env.column == 0).all()
    take_steps(env, *[EAST] * 4)
    assert np.allclose(take_steps(env, EAST)[0], -0.25) and not env.done.any()
    assert np.allclose(take_steps(reset_maze(length=4, delay_reward=-1.0), WEST)[0], -1)


def test_patience_adds_steps_to_the_time_limit():
    for options, max_steps in (({}, 21), ({"patience": 0}, 11), ({"patience": 3}, 14)):
        assert lab.build("task", {"name": "t_maze", "length": 10, **options}).max_episode_steps == max_steps
    env = reset_maze(length=2, patience=1)
    take_steps(env, WEST, EAST, EAST, NORTH)
    assert env.done.all() and env.success.any()
    env = reset_maze(length=2, patience=1)
    take_steps(env, WEST, WEST, EAST, EAST)
    assert env.done.all() and not env.success.any()


def test_invalid_length_is_an_error():
    with raises_issue("task.length", "below_minimum"):
        reset_maze(length=0)
