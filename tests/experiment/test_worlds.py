"""Files about worlds: the paper's to the letter, keys, and that nothing changes where there is none."""

import json
from pathlib import Path

import pytest

from hqlt_lab.experiment.agent import AgentConfig
from hqlt_lab.experiment.cell import cell_from
from hqlt_lab.experiment.composition import on_meta
from hqlt_lab.experiment.experiment import load
from hqlt_lab.experiment.plan import key_of, plan
from hqlt_lab.registry import build
from hqlt_lab.train.cost import cost

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
PARAMETERS = {"transformer": 242_800, "deltanet": 582_250, "hqlt": 612_250}


@pytest.fixture(scope="module")
def paper():
    return {one.cell.arm: one.cell for one in plan(load(EXPERIMENTS / "paper/visual_match.yaml"))}


def test_the_papers_models_have_its_sizes_and_its_budget(paper):
    for arm, parameters in PARAMETERS.items():
        for name in (arm, f"{arm}_as_coded"):
            assert sum(each.numel() for each in on_meta(paper[name], None).parameters()) == parameters
            assert paper[name].model == paper[arm].model and paper[name].model["dropout"] == 0.1
    cell = paper["hqlt"]
    assert cell.agent == AgentConfig(), "what the file says is the default"
    assert cell.train.steps == 2575 * 780 and int(cell.train.steps * cell.agent.updates_per_step) == 502_125
    assert (cell.train.batch_size, cell.train.lr, cell.train.clip, cell.train.weight_decay) == (64, 3e-4, None, 0)
    assert cell.train.valid_every == 10 * build("task", cell.task).horizon and cell.task["eval_size"] == 20


def test_the_papers_agents_have_the_memories_that_they_are_named_by(paper):
    rule, timing = {"name": "delta", "max_beta": 2}, {"name": "synchronous", "window": 64}
    hybrid = (rule, timing, {"name": "vector"}, "rope", 0.02, 3)
    deltanet = ({"name": "delta", "max_beta": 1}, timing, {"name": "fw_only"}, "rope", 0.006, 3)
    softmax = (rule, timing | {"window": None}, {"name": "kv_only"}, "sinusoidal", 0.02, 2)
    told = {"hqlt": hybrid, "deltanet": deltanet, "deltanet_max_beta_2": (rule, *deltanet[1:]), "transformer": softmax}

    def of(model):
        names = ("update_rule", "timing", "mixer", "positions", "init_std", "layers")
        return tuple(model[name]["name"] if name == "positions" else model[name] for name in names)

    assert {arm: of(paper[arm].model) for arm in told} == told
    assert len({repr((cell.train, cell.agent)) for cell in paper.values()}) == 1


def test_as_coded_is_another_world_alone(paper):
    for arm in PARAMETERS:
        written, coded = paper[arm].task, paper[f"{arm}_as_coded"].task
        differs = {name: coded[name] for name in coded if coded[name] != written[name]}
        assert differs == {"contact_ends": False, "regrow": 21, "order": "split"}


def test_every_small_world_has_an_arm_without_memory():
    for name in ("t_maze", "visual_match"):
        cells = {one.cell.arm: one.cell for one in plan(load(EXPERIMENTS / f"small/{name}.yaml"))}
        model = cells["memoryless"].model
        assert model["mixer"]["name"] == "kv_only" and model["timing"]["window"] == 1 and model["short_conv"] == 0


def test_the_agents_settings_are_in_the_key_and_only_where_there_is_an_agent(paper):
    hqlt = paper["hqlt"]
    told = hqlt.as_dict()
    assert cell_from(json.loads(json.dumps(told))) == hqlt
    other = cell_from(told | {"agent": {**told["agent"], "entropy": 0.2}})
    assert key_of(other) != key_of(hqlt)
    first = plan(load(EXPERIMENTS / "first_run.yaml"))[0].cell
    assert first.agent is None and cell_from({k: v for k, v in first.as_dict().items() if k != "agent"}) == first


def test_what_a_life_costs_counts_updates_and_episodes(paper):
    found = cost(paper["hqlt"], measure=False)
    assert found.tokens == 502_125 * 64 * 781
    assert found.disk > paper["hqlt"].train.steps * 80
