"""The file of published hybrids: all arms have one size and the components of the design they are named after."""

from functools import cache

import pytest

from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.load_experiment import load_experiment
from tests.experiment.paper_tables import PAPER, changed_settings, count_parameters

FULL = {"model.timing": {"name": "synchronous", "window": None, "sinks": 0}}
THREE_TO_ONE = FULL | {"model.mixer": [{"name": "fw_only"}] * 3 + [{"name": "kv_only"}]}
QK_NORM = {"name": "softmax", "qk_norm": True, "gate": "none", "logit_scale": "none"}
GATED_DELTA = {"name": "gated_delta", "max_beta": 1}
WINDOW_OR_FULL = [{"name": "synchronous", "window": 1024, "sinks": 128}, FULL["model.timing"]]
MAMBA = {"model.update_rule": {"name": "mamba2"}}
DESIGNS = {
    "delayed_stream": {"model.timing": {"name": "delayed_stream", "window": 64, "gates": "current", "sinks": 0}},
    "delayed_chunk": {"model.timing": {"name": "delayed_chunk", "window": 64, "hold": None, "sinks": 0}},
    "kimi_linear": THREE_TO_ONE | {
        "model.update_rule": {"name": "kda", "max_beta": 1},
        "model.positions": {"name": "none"},
    },
    "qwen3_next": THREE_TO_ONE | {
        "model.update_rule": GATED_DELTA,
        "model.attention": QK_NORM | {"gate": "channel"},
    },
    "olmo_hybrid": THREE_TO_ONE | {
        "model.update_rule": GATED_DELTA | {"max_beta": 2},
        "model.attention": QK_NORM,
        "model.fw": {"key_dim": 96, "value_dim": 192},
    },
    "samba": MAMBA | {
        "model.mixer": [{"name": "fw_only"}, {"name": "kv_only"}],
        "model.timing": {"name": "synchronous", "window": 1024, "sinks": 0},
    },
    "ahn": {
        "model.update_rule": GATED_DELTA,
        "model.timing": {"name": "delayed_stream", "window": 512, "sinks": 128, "gates": "own"},
        "model.mixer": {"name": "sum"},
    },
    "hymba": MAMBA | {
        "model.mixer": {"name": "normalized"},
        "model.timing": [WINDOW_OR_FULL[layer in (0, 11, 23)] for layer in range(24)],
        "model.meta_tokens": 128,
        "model.projections": "separate",
        "model.head_dim": 256,
        "model.fw": {"key_dim": 16},
        "model.kv": {"groups": 2, "key_dim": 128},
    },
    "falcon_h1": FULL | MAMBA | {
        "model.mixer": {"name": "sum"},
        "model.projections": "separate",
        "model.fw": {"heads": 12, "key_dim": 128, "value_dim": 128},
        "model.kv": {"groups": 2, "key_dim": 64, "value_dim": 64},
    },
    "head_wise": FULL | {"model.update_rule": GATED_DELTA, "model.mixer": {"name": "head_split", "fw_heads": 7}},
}  # fmt: skip


@cache
def cells_by_arm():
    plan = expand_plan(load_experiment(PAPER / "hybrids.yaml"))
    return {planned.cell.arm: planned.cell for planned in plan}


def test_every_design_has_an_arm():
    assert [*cells_by_arm()] == ["synchronous", *DESIGNS]


@pytest.mark.parametrize(("arm", "expected"), DESIGNS.items(), ids=DESIGNS)
def test_design_differs_from_the_paper_hybrid_only_in_its_memories(arm, expected):
    changed = changed_settings(cells_by_arm()["synchronous"], cells_by_arm()[arm])
    changed.pop("model.mlp_width", None)  # matched
    assert changed == expected


def test_designs_have_the_size_of_the_paper_hybrid():
    cells = cells_by_arm()
    parameters = {arm: count_parameters(cell) for arm, cell in cells.items()}
    assert parameters["synchronous"] == 399_233_024
    assert all(count == pytest.approx(399_233_024, rel=0.002) for count in parameters.values())
