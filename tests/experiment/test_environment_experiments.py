"""Experiments with environments: the paper's settings and sizes, agent settings in cell keys, and cost estimates."""

import json
from pathlib import Path

import pytest

from hqlt_lab.experiment.cell import cell_from_dict
from hqlt_lab.experiment.cell_key import cell_key
from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.experiment.run_settings import AgentConfig
from hqlt_lab.experiment.validate.arm_checks import build_meta_model
from hqlt_lab.registry import build
from hqlt_lab.train.cost.estimate import estimate_cell_cost

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
PARAMETERS = {"transformer": 242_800, "deltanet": 582_250, "hqlt": 612_250}


@pytest.fixture(scope="module")
def paper():
    return cells_by_arm("paper/visual_match.yaml")


def cells_by_arm(name):
    return {planned.cell.arm: planned.cell for planned in expand_plan(load_experiment(EXPERIMENTS / name))}


def test_agents_have_the_sizes_and_the_budget_of_the_paper(paper):
    for arm, parameters in PARAMETERS.items():
        for name in (arm, f"{arm}_as_coded"):
            assert sum(weight.numel() for weight in build_meta_model(paper[name], None).parameters()) == parameters
            assert paper[name].model == paper[arm].model and paper[name].model["dropout"] == 0.1
    cell = paper["hqlt"]
    assert cell.agent == AgentConfig(), "the file sets the default values"
    assert cell.train.steps == 2575 * 780 and int(cell.train.steps * cell.agent.updates_per_step) == 502_125
    assert (cell.train.batch_size, cell.train.lr, cell.train.clip, cell.train.weight_decay) == (64, 3e-4, None, 0)
    assert cell.train.valid_every == 10 * build("task", cell.task).max_episode_steps and cell.task["eval_size"] == 20


def test_agents_have_the_memories_in_their_names(paper):
    rule, timing = {"name": "delta", "max_beta": 2}, {"name": "synchronous", "window": 64, "sinks": 0}
    hybrid = (rule, timing, {"name": "vector"}, "rope", 0.02, 3)
    deltanet = ({"name": "delta", "max_beta": 1}, timing, {"name": "fw_only"}, "rope", 0.006, 3)
    softmax = (rule, timing | {"window": None}, {"name": "kv_only"}, "sinusoidal", 0.02, 2)
    expected = {
        "hqlt": hybrid,
        "deltanet": deltanet,
        "deltanet_max_beta_2": (rule, *deltanet[1:]),
        "transformer": softmax,
    }

    def memory_settings(model):
        names = ("update_rule", "timing", "mixer", "positions", "init_std", "layers")
        return tuple(model[name]["name"] if name == "positions" else model[name] for name in names)

    assert {arm: memory_settings(paper[arm].model) for arm in expected} == expected
    assert len({repr((cell.train, cell.agent)) for cell in paper.values()}) == 1


def test_as_coded_arms_differ_only_in_the_environment(paper):
    for arm in PARAMETERS:
        written, coded = paper[arm].task, paper[f"{arm}_as_coded"].task
        changed = {name: coded[name] for name in coded if coded[name] != written[name]}
        assert changed == {"contact_ends": False, "regrow": 21, "order": "split"}


def test_every_small_environment_experiment_has_an_arm_without_memory():
    for name in ("t_maze", "visual_match"):
        model = cells_by_arm(f"small/{name}.yaml")["memoryless"].model
        assert model["mixer"]["name"] == "kv_only" and model["timing"]["window"] == 1 and model["short_conv"] == 0


def test_agent_settings_are_in_the_key_of_cells_with_an_agent(paper):
    hqlt = paper["hqlt"]
    stored = hqlt.to_dict()
    assert cell_from_dict(json.loads(json.dumps(stored))) == hqlt
    other = cell_from_dict(stored | {"agent": {**stored["agent"], "entropy": 0.2}})
    assert cell_key(other) != cell_key(hqlt)
    first = expand_plan(load_experiment(EXPERIMENTS / "first_run.yaml"))[0].cell
    assert first.agent is None and cell_from_dict({k: v for k, v in first.to_dict().items() if k != "agent"}) == first


def test_cost_of_an_agent_counts_updates_and_episodes(paper):
    cost = estimate_cell_cost(paper["hqlt"], measure=False)
    assert cost.tokens == 502_125 * 64 * 781
    assert cost.disk_bytes > paper["hqlt"].train.steps * 80
