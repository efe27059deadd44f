"""The environment interface, tested for every registered environment."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

import hqlt_lab as lab
from hqlt_lab.registry import find_factory
from hqlt_lab.tasks._to_gymnasium import gym_environment
from tests.issues import raises_issue

ENVIRONMENTS = [name for name in lab.available("task") if find_factory("task", name).is_environment]
SMALL = {"visual_match": {"phases": [2, 30, 12], "order": "episode", "regrow_at": "random"}, "t_maze": {"length": 5}}


@pytest.fixture(params=ENVIRONMENTS)
def environment(request):
    return lab.build("task", {"name": request.param, **SMALL.get(request.param, {})})


def run_episodes(env, choose_actions):
    """Run all episodes to their end; return observations, rewards and done flags by step."""
    observations, rewards, done = [env.observation()], [], []
    while not env.done.all():
        rewards.append(env.step(choose_actions(env)))
        observations.append(env.observation())
        done.append(env.done)
    return np.stack(observations), np.stack(rewards), np.stack(done)


def random_actions(seed, count, actions=4):
    planned = np.random.default_rng(seed).integers(0, actions, (1000, count))
    return lambda env: planned[env.elapsed_steps]


def test_environments_are_registered():
    assert set(ENVIRONMENTS) >= {"visual_match", "t_maze"}


def test_episode_depends_only_on_its_number_and_the_actions(environment):
    eight, two = environment.reset("train", 3, 10, 8), environment.reset("train", 3, 12, 2)
    planned = np.random.default_rng(0).integers(0, 4, (environment.max_episode_steps, 8))
    for actions in planned:
        assert np.array_equal(eight.observation()[2:4], two.observation())
        assert np.array_equal(eight.step(actions)[2:4], two.step(actions[2:4]))


def test_train_depends_on_the_run_seed_and_the_fixed_sets_do_not(environment):
    def collect_observations(split, seed):
        return run_episodes(environment.reset(split, seed, 0, 50), random_actions(0, 50))[0]

    assert not np.array_equal(collect_observations("train", 0), collect_observations("train", 1))
    assert not np.array_equal(collect_observations("valid", 0), collect_observations("test", 0))
    for split in ("valid", "test"):
        assert np.array_equal(collect_observations(split, 0), collect_observations(split, 1))


def test_observations_match_the_declared_shape_and_range(environment):
    observations, rewards, _ = run_episodes(environment.reset("train", 0, 0, 20), random_actions(1, 20))
    assert observations.dtype == np.uint8 and observations.shape[1:] == (20, *environment.observation_shape)
    assert observations.max() <= environment.max_observation
    assert rewards.dtype == np.float32 and len(rewards) <= environment.max_episode_steps
    assert environment.max_episode_steps == environment.sequence_length("train") - 1


def test_time_limit_ends_unfinished_episodes(environment):
    _, _, done = run_episodes(environment.reset("train", 0, 0, 20), lambda env: np.full(20, 2))  # west: reaches no goal
    assert len(done) == environment.max_episode_steps and done[-1].all() and not done[-2].any()


def test_actions_have_no_effect_after_the_end_of_an_episode(environment):
    env = environment.reset("train", 0, 0, 20)
    run_episodes(env, lambda env: env.expert_action())
    success, image = env.success.copy(), env.render()
    assert (env.step(np.zeros(20, int)) == 0).all()
    assert np.array_equal(env.success, success) and np.array_equal(env.render(), image)


def test_expert_always_succeeds_and_guessing_succeeds_at_chance_level(environment):
    solved = environment.reset("test", 0, 0, 100)
    run_episodes(solved, lambda env: env.expert_action())
    assert solved.success.all()
    guessed, other = environment.reset("test", 0, 0, 3000), environment.reset("train", 9, 0, 3000)
    while not guessed.done.all():  # guess by going to the goal of an unrelated episode
        actions = other.expert_action()
        other.step(actions)
        guessed.step(actions)
    assert abs(100 * guessed.success.mean() - environment.chance_level) < 5


def test_metrics_are_means_and_chance_level_normalizes_to_zero(environment):
    chance = environment.chance_level
    metrics = environment.compute_metrics({"scored": 4.0, "return": 10.0, "success": 4 * chance / 100, "length": 8.0})
    assert list(metrics) == environment.metric_names
    assert metrics == pytest.approx({"return": 2.5, "success": chance, "normalized_success": 0.0, "length": 2.0})


def test_rendered_image_is_rgb(environment):
    images = environment.reset("train", 0, 0, 3).render()
    assert images.dtype == np.uint8 and images.shape[0] == 3 and images.shape[-1] == 3


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_gymnasium_env_checker_passes(name):
    kwargs = {"spec": {"name": name, **SMALL.get(name, {})}}
    entry_point = "hqlt_lab.tasks._to_gymnasium:gym_environment"
    spec = EnvSpec(id=f"hqlt_lab/{name}-v0", entry_point=entry_point, kwargs=kwargs)
    check_env(gymnasium.make(spec, render_mode="rgb_array").unwrapped)


def test_gymnasium_env_runs_the_same_episodes_as_the_vector_env(environment):
    name = next(name for name in ENVIRONMENTS if type(environment) is find_factory("task", name))
    gym_env = gym_environment({"name": name, **SMALL[name]})
    for number, seed in ((0, 5), (1, None), (0, 5)):
        vector_env, (observation, _) = environment.reset("train", 5, number, 1), gym_env.reset(seed=seed)
        assert np.array_equal(observation, vector_env.observation()[0])
        terminated = False
        while not terminated:
            action = vector_env.expert_action()
            expected_reward = vector_env.step(action)[0]
            observation, reward, terminated, truncated, info = gym_env.step(action[0])
            assert np.array_equal(observation, vector_env.observation()[0])
            assert reward == expected_reward and not truncated
        assert terminated == vector_env.done[0] and info == {"success": True}


def test_gym_environment_of_a_task_with_examples_is_an_error():
    with raises_issue("task", "not_an_environment"):
        gym_environment("parity")


def test_error_without_gymnasium_names_the_install_command():
    script = "import sys\nsys.modules['gymnasium'] = None\nimport hqlt_lab as lab\nlab.gym_environment('t_maze')"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert process.stderr.splitlines()[-1].endswith("pip install -c constraints.txt -e '.[rl]'")
