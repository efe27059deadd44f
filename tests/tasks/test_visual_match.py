"""The rules of visual match, one by one, as the paper has them and as its code did."""

import numpy as np
import pytest

import hqlt_lab as lab
from hqlt_lab.errors import ConfigError
from hqlt_lab.tasks._world import EAST, NORTH, SOUTH, WEST

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
WALL, GROUND, AGENT, APPLE = (25, 25, 25), (204, 204, 204), (228, 148, 109), (140, 178, 0)
AS_CODED = {"contact_ends": False, "regrow": 21, "order": "split"}


def world(**options):
    return lab.build("task", {"name": "visual_match", **options})


def begun(count=200, seed=0, **options):
    return world(**options).begin("train", seed, 0, count)


def views(scene):
    """[N, 5, 5, 3]"""
    return scene.observe().transpose(0, 2, 3, 1)


def at(scene, *steps):
    """Everyone does the same."""
    return [scene.act(np.full(len(scene.ended), step)) for step in steps]


def colours_of(scene):
    """The colours in sight, per episode."""
    return [{tuple(c) for c in view.reshape(-1, 3).tolist()} & {RED, GREEN, BLUE} for view in views(scene)]


def test_it_is_the_papers_by_default():
    paper = world()
    assert tuple(paper.phases) == (15, 750, 15)
    assert (paper.horizon, paper.apples, paper.regrow, paper.apple_reward, paper.match_reward) == (780, 10, 20, 1, 100)
    assert (paper.shape, paper.chance, paper.contact_ends, paper.eval_size) == ((3, 5, 5), 100 / 3, True, 20)


def test_phase_1_shows_one_colour_in_a_ring_of_walls_and_nobody_can_move():
    scene = begun(phases=[15, 5, 5])
    first = views(scene)
    for step in (NORTH, SOUTH, WEST, EAST):
        at(scene, step)
        assert np.array_equal(views(scene), first)
    for view in first:
        ring = [tuple(view[r, c]) for r in (1, 2, 3) for c in (1, 2, 3) if (r, c) != (2, 2)]
        assert sorted(ring).count(WALL) == 7 and len({*ring} - {WALL}) == 1 and {*ring} - {WALL} <= {RED, GREEN, BLUE}
        assert tuple(view[2, 2]) == AGENT and (view[[0, 4]] == GROUND).all()


def test_colours_and_the_place_where_they_are_shown_are_drawn_evenly():
    scene = begun(6000)
    for drawn, choices in ((scene.colour, 3), (scene.cue @ [10, 1], 8)):
        _, counts = np.unique(drawn, return_counts=True)
        assert len(counts) == choices and (abs(counts / 6000 - 1 / choices) < 0.03).all()


def test_the_step_that_ends_a_phase_shows_the_next_one():
    scene = begun(phases=[3, 2, 2])
    at(scene, EAST, EAST)
    assert all(len(seen) == 1 for seen in colours_of(scene))
    at(scene, EAST)
    assert all(not seen for seen in colours_of(scene)) and (scene.place == [5, 5]).all()
    at(scene, NORTH, NORTH)
    assert (scene.place == [5, 5]).all() and scene.phase == 2
    assert (views(scene)[:, 2, 0] == WALL).all()  # of the alcove


def test_phase_2_is_a_walled_room_of_five_rows_and_nine_columns():
    for way, steps, place in ((SOUTH, 1, [5, 5]), (NORTH, 6, [1, 5]), (WEST, 9, [5, 1]), (EAST, 9, [5, 9])):
        scene = begun(3, phases=[1, 50, 1])
        at(scene, NORTH, *[way] * steps)
        assert (scene.place == place).all()


def test_ten_apples_lie_on_different_cells_of_a_checkerboard_and_never_where_the_agent_begins():
    scene = begun(500, phases=[1, 50, 1])
    at(scene, NORTH)
    boards = scene.board()[:, 2:-2, 2:-2] == 3
    assert (boards.sum((1, 2)) == 10).all() and not boards[:, 5, 5].any()
    used = np.argwhere(boards.any(0))
    assert len(used) == 22 and (used.sum(1) % 2 == 0).all()
    assert 0.4 < boards[:, 1, 1].mean() < 0.51  # 10 of 22


def beside_an_apple(**options):
    """Episodes whose agent has just eaten the apple two cells to its west, and the reward for it."""
    scene = begun(400, phases=[1, 60, 1], **options)
    at(scene, NORTH)
    near = (scene.board()[:, 2:-2, 2:-2] == 3)[:, 5, 3]
    rewards = at(scene, WEST, WEST)
    assert (rewards[0] == 0).all()
    return scene, near, rewards[1]


def test_an_apple_is_worth_one_and_is_gone_when_it_is_eaten():
    scene, near, reward = beside_an_apple()
    assert np.array_equal(reward, near.astype(np.float32)) and near.any() and not near.all()
    at(scene, EAST)
    assert (views(scene)[near][:, 2, 1] == GROUND).all()


@pytest.mark.parametrize(("regrow", "steps"), [(20, 20), (21, 21), (3, 3)])
def test_an_apple_is_back_at_its_cell_after_so_many_steps(regrow, steps):
    scene, near, _ = beside_an_apple(regrow=regrow)
    for step in range(1, steps + 1):
        at(scene, EAST if step == 1 else NORTH if step % 2 else SOUTH)  # east of it, up and down, the cell in sight
        there = (scene.board()[:, 2:-2, 2:-2] == 3)[near, 5, 3]
        assert there.all() if step == steps else not there.any()


def test_an_apple_that_returns_under_the_agent_is_eaten_at_once():
    scene, near, _ = beside_an_apple(regrow=4)
    rewards = at(scene, SOUTH, SOUTH, SOUTH, SOUTH)  # a wall: the agent stays
    assert not any(reward.any() for reward in rewards[:3]) and np.array_equal(rewards[3], near.astype(np.float32))


def test_apples_may_stay_away_or_return_elsewhere():
    scene, near, _ = beside_an_apple(regrow=None)
    at(scene, *[EAST, WEST] * 10)
    assert not (scene.board()[:, 2:-2, 2:-2] == 3)[near, 5, 3].any()
    scene, near, _ = beside_an_apple(regrow=5, regrow_at="random")
    at(scene, *[SOUTH] * 5)
    boards = (scene.board()[:, 2:-2, 2:-2] == 3)[near]
    assert boards[:, 5, 3].mean() < 0.3  # 1 of 13 free cells; if so, it was eaten at once
    assert ((boards.sum((1, 2)) == 10) | boards[:, 5, 3] | (boards.sum((1, 2)) == 9)).all()


def in_phase_3(count=300, **options):
    scene = begun(count, **({"phases": [1, 0, 15]} | options))
    at(scene, NORTH)
    return scene


TO = {0: [NORTH] * 2 + [WEST] * 3 + [NORTH] * 2, 1: [NORTH] * 4, 2: [NORTH] * 2 + [EAST] * 3 + [NORTH] * 2}


@pytest.mark.parametrize("goal", TO)
def test_goals_are_seven_four_and_seven_steps_away_and_the_right_one_gives_a_hundred(goal):
    scene = in_phase_3()
    *before, last = at(scene, *TO[goal])
    right = scene.layout[:, goal] == scene.colour
    assert not any(reward.any() for reward in before)
    assert np.array_equal(last, 100 * right.astype(np.float32)) and np.array_equal(scene.success, right)
    assert 0.2 < right.mean() < 0.47


def test_touching_any_colour_ends_the_episode():
    scene = in_phase_3()
    at(scene, *TO[1][:-1])
    assert not scene.ended.any()
    at(scene, NORTH)
    assert scene.ended.all() and scene.time == 1 + 4


def test_as_coded_contact_ends_nothing_all_colours_vanish_and_no_more_is_given():
    scene = in_phase_3(contact_ends=False)
    at(scene, *TO[1])
    assert not scene.ended.any() and not any(colours_of(scene))
    rewards = at(scene, *[SOUTH, NORTH] * 5)
    assert not any(reward.any() for reward in rewards)
    at(scene, NORTH)
    assert scene.ended.all() and scene.time == 16
    assert np.array_equal(scene.success, scene.layout[:, 1] == scene.colour)


def test_the_alcove_is_three_cells_wide_and_opens_to_the_room():
    for steps, place in (([WEST] * 3, [5, 4]), ([EAST] * 3, [5, 6]), ([NORTH, WEST, WEST], [4, 4])):
        scene = in_phase_3(3)
        at(scene, *steps)
        assert (scene.place == place).all()
    scene = in_phase_3(3)
    at(scene, NORTH, NORTH, *[WEST] * 5)
    assert (scene.place == [3, 1]).all()


def orders_of(split, seed=0, **options):
    return world(**options).begin(split, seed, 0, 100).layout


def test_the_order_of_colours_is_one_for_training_and_evaluation():
    fixed = orders_of("train")
    assert (fixed == fixed[0]).all()
    for split, seed in (("train", 7), ("valid", 0), ("test", 0)):
        assert np.array_equal(orders_of(split, seed), fixed)
    assert any(not np.array_equal(orders_of("train", data_seed=seed), fixed) for seed in range(1, 6))


def test_the_order_may_be_drawn_for_every_episode_or_as_coded_apart_for_training():
    assert len(np.unique(orders_of("test", order="episode"), axis=0)) == 6
    apart = [orders_of("train", seed, **AS_CODED)[0].tolist() for seed in range(30)]
    evaluation = orders_of("valid", **AS_CODED)[0].tolist()
    assert orders_of("test", **AS_CODED)[0].tolist() == evaluation
    assert 0 < apart.count(evaluation) < 15  # one in six


def test_two_colours_stand_at_the_outer_cells():
    scene = in_phase_3(colours=["yellow", "cyan"])
    assert world(colours=["yellow", "cyan"]).chance == 50
    at(scene, *TO[1])
    assert not scene.ended.any()
    scene = in_phase_3(colours=["yellow", "cyan"])
    at(scene, *TO[2])
    assert scene.ended.all() and 0.4 < scene.success.mean() < 0.6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"phases": [15, 750]}, "phases: the steps of three phases are needed"),
        ({"phases": [0, 5, 5]}, "phases: the steps of three phases are needed"),
        ({"apples": 23}, "apples: there is room for 22, got 23."),
        ({"regrow": 0}, "regrow: at least 1 is needed, got 0."),
        ({"colours": ["red", "gren"]}, "colours: there is no 'gren'. Did you mean 'green'?"),
        ({"colours": ["red"]}, "colours: two or three different ones are needed"),
        ({"colours": ["red", "red"]}, "colours: two or three different ones are needed"),
    ],
)
def test_what_makes_no_world_is_told(options, words):
    with pytest.raises(ConfigError) as told:
        world(**options)
    assert words in str(told.value)
