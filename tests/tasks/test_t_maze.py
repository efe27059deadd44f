"""The rules of the T maze, one by one."""

import numpy as np
import pytest

import hqlt_lab as lab
from hqlt_lab.errors import ConfigError
from hqlt_lab.tasks._world import EAST, NORTH, SOUTH, WEST


def begun(count=400, **options):
    return lab.build("task", {"name": "t_maze", **options}).begin("train", 0, 0, count)


def at(scene, *steps):
    return [scene.act(np.full(len(scene.ended), step)) for step in steps]


def seen(scene):
    """Which of its four signs each episode shows."""
    assert (scene.observe().sum(1) == 1).all()
    return scene.observe().argmax(1)


def test_the_sign_is_seen_once_and_says_where_to_turn():
    scene = begun(length=3)
    sign = seen(scene)
    assert np.array_equal(sign == 1, scene.south) and 0.4 < scene.south.mean() < 0.6
    for _ in range(2):
        at(scene, EAST)
        assert (seen(scene) == 2).all()
    at(scene, EAST)
    assert (seen(scene) == 3).all()
    at(scene, WEST, WEST, WEST)
    assert (seen(scene) == 2).all(), "back at the beginning, the sign is gone"


@pytest.mark.parametrize(("turn", "south"), [(NORTH, False), (SOUTH, True)])
def test_the_way_that_was_shown_gives_the_reward_and_either_ends_the_episode(turn, south):
    scene = begun(length=4)
    *before, last = at(scene, *[EAST] * 4, turn)
    right = scene.south == south
    assert not any(reward.any() for reward in before) and np.array_equal(last, right.astype(np.float32))
    assert scene.ended.all() and np.array_equal(scene.success, right)


def test_a_step_that_does_not_lead_on_costs_a_little():
    scene = begun(length=4)
    for step in (NORTH, SOUTH, WEST):
        assert np.allclose(at(scene, step)[0], -0.25)
    assert (scene.column == 0).all()
    at(scene, *[EAST] * 4)
    assert np.allclose(at(scene, EAST)[0], -0.25) and not scene.ended.any()
    assert np.allclose(at(begun(length=4, delay_reward=-1.0), WEST)[0], -1)


def test_patience_is_how_many_steps_may_be_lost():
    for options, horizon in (({}, 21), ({"patience": 0}, 11), ({"patience": 3}, 14)):
        assert lab.build("task", {"name": "t_maze", "length": 10, **options}).horizon == horizon
    scene = begun(length=2, patience=1)
    at(scene, WEST, EAST, EAST, NORTH)
    assert scene.ended.all() and scene.success.any()
    scene = begun(length=2, patience=1)
    at(scene, WEST, WEST, EAST, EAST)
    assert scene.ended.all() and not scene.success.any()


def test_what_makes_no_maze_is_told():
    with pytest.raises(ConfigError, match="length: at least 1 is needed, got 0"):
        begun(length=0)
