"""The bound on tokens per second: by hand, at both sides of the ridge, and above what the paper measured."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.errors import ConfigError
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.initialise import Undrawn
from hqlt_lab.model.roofline import CHIPS, Chip, Demand, Roofline, roofline, scores_seen
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.registry import available

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


def on_meta(**settings):
    with torch.device("meta"), Undrawn():
        return SequenceModel(ModelConfig(**settings))


def by_part(bound):
    return {demand.part: demand for demand in bound.demands}


def of_paper(arm):
    """As the paper trained it: each GPU 64 rows of 2240 tokens a step, in 4 pieces."""
    return roofline(on_meta(**PAPER[arm][0]), 2240, 64, 4)


def test_one_linear_map_is_counted_as_by_hand():
    # the head is one map of 8 x 50; a step of 3 rows of 7 tokens in one piece
    head = by_part(roofline(on_meta(vocabulary=50, width=8, heads=2, layers=1), 7, 3))["head"]
    assert head.flops == 6 * 8 * 50
    assert head.bytes == pytest.approx(3 * 2 * (8 + 50) + (2 + 2 + 4 + 4) * 8 * 50 / 21)


def test_every_part_of_a_small_hybrid_moves_what_it_reads_and_writes():
    found = by_part(roofline(on_meta(vocabulary=5, width=8, heads=2, layers=1, mlp_width=16), 7, 1e12))
    numbers = {
        "embedding": 2 * 8,
        "norms": 4 * 2 * 8,  # before both sub-layers and the head, and in the heads
        "projections": 4 * 2 * 8,
        "update_rule": 8 + 2,
        "feature_map": 2 * 2 * 8,
        "positions": 2 * 2 * 8,
        "fast_weights": 4 * 8 + 2,
        "softmax": 4 * 8,
        "mixer": 4 * 8,
        "mlp": 3 * (8 + 16),
        "head": 8 + 5,
        "optimiser": 0,
    }
    moved = {part: demand.bytes for part, demand in found.items()}
    assert moved == pytest.approx({part: 6 * count for part, count in numbers.items()}, abs=1e-6)


def test_a_part_that_hands_on_what_it_got_moves_nothing():
    found = by_part(roofline(on_meta(width=8, heads=2, layers=1, mixer="kv_only", positions="none"), 7, 1e12))
    assert found["mixer"].bytes == found["positions"].bytes == 0 and "fast_weights" not in found


def test_a_part_is_limited_by_its_products_or_by_memory():
    chip = Chip("made up", flops=100.0, bandwidth=10.0)
    product, copy = Demand("product", 300, 20), Demand("copy", 10, 20)
    assert (product.seconds(chip), product.waits(chip)) == (3.0, False)
    assert (copy.seconds(chip), copy.waits(chip)) == (2.0, True)
    bound = Roofline((product, copy))
    assert bound.tokens_per_second(chip) == pytest.approx(1 / 5)  # one after the other
    assert bound.memory_share(chip) == pytest.approx(2 / 5) and bound.slowest(chip) == ("product", pytest.approx(3 / 5))


def test_a_large_batch_is_limited_by_products_and_a_small_one_by_reading_the_weights():
    model = on_meta(vocabulary=1000, width=1024, heads=8, layers=1)
    many, few = (by_part(roofline(model, 64, rows))["mlp"] for rows in (1000, 1))
    assert not many.waits(H100) and few.waits(H100) and many.flops == few.flops


def test_pieces_read_the_weights_again_and_the_optimiser_comes_once():
    model = on_meta(vocabulary=50, width=8, heads=2, layers=1)
    whole, pieces = (by_part(roofline(model, 10, 8, cut)) for cut in (1, 4))
    assert pieces["head"].bytes - whole["head"].bytes == pytest.approx(3 * 12 * 400 / 80)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert pieces["optimiser"].bytes == whole["optimiser"].bytes == pytest.approx(26 * parameters / 80)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(window=5), Schedule(block=4), Schedule(window=3, block=7)])
def test_scores_are_those_that_softmax_sees(schedule):
    assert scores_seen(schedule, 23) == schedule.softmax_sees(23).sum()


@pytest.mark.parametrize("arm", PAPER)
def test_the_paper_stayed_below_the_bound(arm):
    reached = PAPER[arm][1] / (4 * of_paper(arm).tokens_per_second(H100))
    assert 0.35 < reached < 0.45  # docs/speed.md


def test_the_bounds_are_ordered_as_the_flops_and_bytes_of_the_arms_are():
    bounds = {arm: of_paper(arm).tokens_per_second(H100) for arm in PAPER}
    assert bounds["DeltaNet"] > bounds["Transformer++"] > bounds["synchronous"]
    # softmax over a window of 64 waits for memory, so what else it sees does not matter
    assert bounds["synchronous"] == pytest.approx(bounds["delayed_stream"]) == pytest.approx(bounds["delayed_chunk"])


PARTS = [(kind, name) for kind in ("update_rule", "timing", "mixer", "positions") for name in available(kind)]


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_every_part_has_a_bound_and_a_model_without_numbers_the_same(kind, name):
    settings = {"vocabulary": 5, "width": 16, "heads": 2, "layers": 2, kind: name}
    settings.setdefault("timing", {"name": "synchronous", "window": 4})
    bound = roofline(on_meta(**settings), 20, 3)
    assert bound == lab.roofline(lab.build_model(**settings), 20, 3)
    assert 0 < bound.memory_share(H100) <= 1 and all(demand.seconds(H100) >= 0 for demand in bound.demands)


def test_a_step_without_rows_is_refused():
    with pytest.raises(ConfigError, match="more than 0 rows"):
        roofline(on_meta(width=8, heads=2, layers=1), 7, 0)
