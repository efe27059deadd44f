"""What every world promises.  A new one is tested by being registered."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

import hqlt_lab as lab
from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import find
from hqlt_lab.tasks._gym import gym_world

WORLDS = [name for name in lab.available("task") if find("task", name).is_world]
SMALL = {"visual_match": {"phases": [2, 30, 12], "order": "episode", "regrow_at": "random"}, "t_maze": {"length": 5}}


@pytest.fixture(params=WORLDS)
def world(request):
    return lab.build("task", {"name": request.param, **SMALL.get(request.param, {})})


def lived(scene, choose):
    """Observations, rewards and ends of whole episodes, by time."""
    seen, rewards, ended = [scene.observe()], [], []
    while not scene.ended.all():
        rewards.append(scene.act(choose(scene)))
        seen.append(scene.observe())
        ended.append(scene.ended)
    return np.stack(seen), np.stack(rewards), np.stack(ended)


def by_chance(seed, count, actions=4):
    draws = np.random.default_rng(seed).integers(0, actions, (1000, count))
    return lambda scene: draws[scene.time]


def test_there_are_worlds():
    assert set(WORLDS) >= {"visual_match", "t_maze"}


def test_an_episode_is_a_function_of_its_number_and_of_what_is_done(world):
    whole, some = world.begin("train", 3, 10, 8), world.begin("train", 3, 12, 2)
    actions = np.random.default_rng(0).integers(0, 4, (world.horizon, 8))
    for step in actions:
        assert np.array_equal(whole.observe()[2:4], some.observe())
        assert np.array_equal(whole.act(step)[2:4], some.act(step[2:4]))


def test_train_varies_with_the_run_and_the_fixed_sets_do_not(world):
    def first_views(split, seed):
        return lived(world.begin(split, seed, 0, 50), by_chance(0, 50))[0]

    assert not np.array_equal(first_views("train", 0), first_views("train", 1))
    assert not np.array_equal(first_views("valid", 0), first_views("test", 0))
    for split in ("valid", "test"):
        assert np.array_equal(first_views(split, 0), first_views(split, 1))


def test_observations_are_as_declared(world):
    seen, rewards, _ = lived(world.begin("train", 0, 0, 20), by_chance(1, 20))
    assert seen.dtype == np.uint8 and seen.shape[1:] == (20, *world.shape) and seen.max() <= world.brightest
    assert rewards.dtype == np.float32 and len(rewards) <= world.horizon == world.tokens_in("train") - 1


def test_the_clock_ends_what_nothing_else_has_ended(world):
    _, _, ended = lived(world.begin("train", 0, 0, 20), lambda scene: np.full(20, 2))  # west, away from every goal
    assert len(ended) == world.horizon and ended[-1].all() and not ended[-2].any()


def test_what_has_ended_stays_as_it_is(world):
    scene = world.begin("train", 0, 0, 20)
    lived(scene, lambda scene: scene.guide())
    success, picture = scene.success.copy(), scene.picture()
    assert (scene.act(np.zeros(20, int)) == 0).all()
    assert np.array_equal(scene.success, success) and np.array_equal(scene.picture(), picture)


def test_whoever_knows_the_goal_reaches_it_and_guessing_does_as_well_as_chance_says(world):
    knowing = world.begin("test", 0, 0, 100)
    lived(knowing, lambda scene: scene.guide())
    assert knowing.success.all()
    guessing, other = world.begin("test", 0, 0, 3000), world.begin("train", 9, 0, 3000)
    while not guessing.ended.all():  # the way to the goal of another episode
        actions = other.guide()
        other.act(actions)
        guessing.act(actions)
    assert abs(100 * guessing.success.mean() - world.chance) < 5


def test_metrics_are_means_and_guessing_is_zero(world):
    told = world.metrics({"scored": 4.0, "return": 10.0, "success": 4 * world.chance / 100, "length": 8.0})
    assert list(told) == world.measures
    assert told == pytest.approx({"return": 2.5, "success": world.chance, "normalised_success": 0.0, "length": 2.0})


def test_a_picture_is_rgb(world):
    scene = world.begin("train", 0, 0, 3)
    assert scene.picture().dtype == np.uint8 and scene.picture().shape[0] == 3 and scene.picture().shape[-1] == 3


@pytest.mark.parametrize("name", WORLDS)
def test_gymnasium_finds_nothing_to_complain_about(name):
    given = {"spec": {"name": name, **SMALL.get(name, {})}}
    spec = EnvSpec(id=f"hqlt_lab/{name}-v0", entry_point="hqlt_lab.tasks._gym:gym_world", kwargs=given)
    check_env(gymnasium.make(spec, render_mode="rgb_array").unwrapped)


def test_gymnasium_lives_the_episodes_of_the_scene(world):
    env = gym_world({"name": next(name for name in WORLDS if type(world) is find("task", name)), **options_of(world)})
    for number, seed in ((0, 5), (1, None), (0, 5)):
        scene, (seen, _) = world.begin("train", 5, number, 1), env.reset(seed=seed)
        assert np.array_equal(seen, scene.observe()[0])
        ended = False
        while not ended:
            action = scene.guide()
            reward = scene.act(action)[0]
            seen, told, ended, cut, facts = env.step(action[0])
            assert np.array_equal(seen, scene.observe()[0]) and told == reward and not cut
        assert ended == scene.ended[0] and facts == {"success": True}


def options_of(world):
    return next(options for name, options in SMALL.items() if find("task", name) is type(world))


def test_only_worlds_can_be_acted_in():
    with pytest.raises(ConfigError, match="has examples, and only a world can be acted in"):
        gym_world("parity")


def test_without_gymnasium_a_sentence_says_what_to_install():
    script = "import sys\nsys.modules['gymnasium'] = None\nimport hqlt_lab as lab\nlab.gym_world('t_maze')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith(
        "gym_world: gymnasium is not installed. In the clone: pip install -c constraints.txt -e '.[rl]'"
    )
