"""Roofline: components counted by hand, both limits, and a bound above the measurements of the paper."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.model.analysis.roofline import CHIPS, Chip, ComponentCost, Roofline, count_visible_scores, roofline
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.initialize import SkipInit
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.registry import available
from tests.issues import raises_issue

H100 = CHIPS[1]
LARGE = {"vocabulary": 32000, "width": 2048, "heads": 16, "layers": 24}
HYBRID = {"update_rule": {"name": "delta", "max_beta": 2}, "mixer": "vector"}
TRANSFORMER = {"mixer": "kv_only", "timing": {"name": "synchronous", "window": None}, "heads": 32}
TRANSFORMER |= {"value_activation": "none", "head_norm": False, "residual_init": "normal"}
# arm: (settings, tokens per second on 4 H100 in the paper)
PAPER = {
    "DeltaNet": (LARGE | {"mixer": "fw_only", "update_rule": "delta"}, 170e3),
    "Transformer++": (LARGE | TRANSFORMER, 170e3),
    "synchronous": (LARGE | HYBRID | {"timing": {"name": "synchronous", "window": 64}}, 148e3),
    "delayed_stream": (LARGE | HYBRID | {"timing": {"name": "delayed_stream", "window": 64}}, 148e3),
    "delayed_chunk": (LARGE | HYBRID | {"timing": {"name": "delayed_chunk", "window": 64}}, 148e3),
}


def build_on_meta(**settings):
    with torch.device("meta"), SkipInit():
        return SequenceModel(ModelConfig(**settings))


def costs_by_component(model_roofline):
    return {cost.component: cost for cost in model_roofline.costs}


def paper_roofline(arm):
    """Return the roofline of the training in the paper: per GPU and step 64 rows of 2240 tokens, in 4 micro-batches."""
    return roofline(build_on_meta(**PAPER[arm][0]), 2240, 64, 4)


def test_linear_map_equals_the_count_by_hand():
    # the head is a map of 8 x 50; a step has 3 rows of 7 tokens in one micro-batch
    head = costs_by_component(roofline(build_on_meta(vocabulary=50, width=8, heads=2, layers=1), 7, 3))["head"]
    assert head.flops == 6 * 8 * 50
    assert head.bytes == pytest.approx(3 * 2 * (8 + 50) + (2 + 2 + 4 + 4) * 8 * 50 / 21)


def test_traffic_of_a_small_hybrid_equals_the_count_by_hand():
    costs = costs_by_component(roofline(build_on_meta(vocabulary=5, width=8, heads=2, layers=1, mlp_width=16), 7, 1e12))
    traffic = {
        "embedding": 2 * 8,
        "norms": 4 * 2 * 8,  # before both sub-layers and the head, and the head norm
        "projections": 4 * 2 * 8,
        "update_rule": 8 + 2,
        "feature_map": 2 * 2 * 8,
        "positions": 2 * 2 * 8,
        "fast_weights": 4 * 8 + 2,
        "softmax": 4 * 8,
        "mixer": 4 * 8,
        "mlp": 3 * (8 + 16),
        "head": 8 + 5,
        "optimizer": 0,
    }
    bytes_moved = {component: cost.bytes for component, cost in costs.items()}
    assert bytes_moved == pytest.approx({component: 6 * count for component, count in traffic.items()}, abs=1e-6)


def test_traffic_of_wide_features_and_learned_positions_equals_the_count_by_hand():
    settings = {"width": 8, "heads": 2, "layers": 1, "mixer": "fw_only", "feature_map": {"name": "dpfp", "nu": 2}}
    positions = {"name": "learned", "length": 7}
    costs = costs_by_component(roofline(build_on_meta(**settings, positions=positions, mlp="none"), 7, 1e12))
    features = 2 * (2 * 4 * 2)  # of two heads
    traffic = {
        "feature_map": 2 * (8 + features),  # of queries and keys
        "fast_weights": 2 * features + 2 * 8 + 2,  # queries, keys, values, output and the gates of two heads
        "positions": 3 * 8,
    }
    assert {name: costs[name].bytes / 6 for name in traffic} == pytest.approx(traffic)
    assert "mlp" not in costs


def test_component_that_returns_its_input_moves_nothing():
    costs = costs_by_component(
        roofline(build_on_meta(width=8, heads=2, layers=1, mixer="kv_only", positions="none"), 7, 1e12)
    )
    assert costs["mixer"].bytes == costs["positions"].bytes == 0 and "fast_weights" not in costs


def test_component_is_limited_by_compute_or_by_memory():
    chip = Chip("made up", flops=100.0, bandwidth=10.0)
    compute_bound, memory_bound = ComponentCost("product", 300, 20), ComponentCost("copy", 10, 20)
    assert (compute_bound.compute_seconds(chip), compute_bound.is_memory_bound(chip)) == (3.0, False)
    assert (memory_bound.compute_seconds(chip), memory_bound.is_memory_bound(chip)) == (2.0, True)
    model_roofline = Roofline((compute_bound, memory_bound))
    assert model_roofline.tokens_per_second(chip) == pytest.approx(1 / 5)  # components run one after the other
    assert model_roofline.memory_bound_fraction(chip) == pytest.approx(2 / 5) and model_roofline.slowest_component(
        chip
    ) == (
        "product",
        pytest.approx(3 / 5),
    )


def test_large_batch_is_compute_bound_and_small_batch_is_memory_bound():
    model = build_on_meta(vocabulary=1000, width=1024, heads=8, layers=1)
    large_batch, small_batch = (costs_by_component(roofline(model, 64, rows))["mlp"] for rows in (1000, 1))
    assert not large_batch.is_memory_bound(H100) and small_batch.is_memory_bound(H100)
    assert large_batch.flops == small_batch.flops


def test_weights_are_read_per_micro_batch_and_the_optimizer_runs_once():
    model = build_on_meta(vocabulary=50, width=8, heads=2, layers=1)
    one_batch, four_batches = (costs_by_component(roofline(model, 10, 8, micro_batches)) for micro_batches in (1, 4))
    assert four_batches["head"].bytes - one_batch["head"].bytes == pytest.approx(3 * 12 * 400 / 80)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert four_batches["optimizer"].bytes == one_batch["optimizer"].bytes == pytest.approx(26 * parameters / 80)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(window=5), Schedule(block=4), Schedule(window=3, block=7)])
def test_number_of_visible_scores_equals_the_mask(schedule):
    assert count_visible_scores(schedule, 23) == schedule.softmax_mask(23).sum()


@pytest.mark.parametrize("arm", PAPER)
def test_measured_throughput_of_the_paper_is_below_the_bound(arm):
    fraction = PAPER[arm][1] / (4 * paper_roofline(arm).tokens_per_second(H100))
    assert 0.35 < fraction < 0.45  # docs/speed.md


def test_bounds_are_ordered_by_the_cost_of_the_arms():
    bounds = {arm: paper_roofline(arm).tokens_per_second(H100) for arm in PAPER}
    assert bounds["DeltaNet"] > bounds["Transformer++"] > bounds["synchronous"]
    # softmax over a window of 64 is memory-bound, so the number of its scores does not matter
    assert bounds["synchronous"] == pytest.approx(bounds["delayed_stream"]) == pytest.approx(bounds["delayed_chunk"])


COMPONENTS = [(kind, name) for kind in ("update_rule", "timing", "mixer", "positions") for name in available(kind)]


@pytest.mark.parametrize(("kind", "name"), COMPONENTS)
def test_every_component_has_a_bound_which_is_the_same_on_meta(kind, name):
    settings = {"vocabulary": 5, "width": 16, "heads": 2, "layers": 2, kind: name}
    settings.setdefault("timing", {"name": "synchronous", "window": 4})
    model_roofline = roofline(build_on_meta(**settings), 20, 3)
    assert model_roofline == lab.roofline(lab.build_model(**settings), 20, 3)
    assert 0 < model_roofline.memory_bound_fraction(H100) <= 1
    assert all(cost.compute_seconds(H100) >= 0 for cost in model_roofline.costs)


def test_step_without_rows_is_rejected():
    with raises_issue("rows", "not_positive"):
        roofline(build_on_meta(width=8, heads=2, layers=1), 7, 0)
