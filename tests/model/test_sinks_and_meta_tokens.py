"""Attention sinks and meta tokens: any split, padding and packing give the same result; 0 of them change nothing."""

import pytest
import torch

from hqlt_lab.check import common_checks
from hqlt_lab.check.component_under_test import ComponentCase, fixed_noise, run_in_chunks, small_spec
from hqlt_lab.check.conformance import check_component
from hqlt_lab.model.analysis.component_sizes import sizes
from hqlt_lab.model.analysis.layer_probes import probe
from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.model.meta_tokens import insert_meta_tokens
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.registry import available, options
from tests.issues import raises_issue

FULL = {"name": "synchronous", "window": None}
TIMINGS = [small_spec("timing", name) for name in available("timing")]
CHECKS = [
    common_checks.reads_only_the_past,
    common_checks.rows_are_independent,
    common_checks.any_split_gives_the_same_result,
    common_checks.passed_state_is_not_modified,
    common_checks.padding_has_no_effect,
    common_checks.packed_documents_are_independent,
    common_checks.rows_can_be_selected,
    common_checks.state_is_as_large_as_declared,
    common_checks.keeps_the_dtype,
    common_checks.compiles,
]


class MetaTokenCase(ComponentCase):
    """A component in models with meta tokens."""

    def model_settings(self, **overrides):
        return super().model_settings(**overrides) | {"meta_tokens": 2}


@pytest.mark.parametrize("timing", available("timing"))
def test_every_timing_has_the_option_sinks(timing):
    assert options("timing", timing)["sinks"].default == 0


@pytest.mark.parametrize("sinks", [1, 4])
@pytest.mark.parametrize("timing", available("timing"))
def test_timings_with_sinks_conform(timing, sinks):
    check_component("timing", {"name": timing, "sinks": sinks}, quick=True).assert_passed()


@pytest.mark.parametrize("timing", TIMINGS, ids=str)
def test_attention_with_forget_gates_conforms_with_sinks(timing):
    case = ComponentCase("attention", "forgetting")
    model, x = case.build_model(timing=timing | {"sinks": 2}, mixer="sum"), fixed_noise(2, 11, 8)
    common_checks.assert_streaming_equals_one_pass(model, f"{timing}, ", ([5, 6], [3, 1, 7], [1] * 11))
    layout = common_checks.PADDED_AND_PACKED
    common_checks.assert_matches_separate_documents(model, "", x[:, :7], layout, [None, [4, 3], [1] * 7])


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("sinks", [0, 3])
@pytest.mark.parametrize("timing", available("timing"))
def test_models_with_meta_tokens_conform(timing, sinks, check):
    check(MetaTokenCase("timing", timing, {"sinks": sinks}))


def test_sinks_are_seen_in_every_window_and_stay_in_the_state():
    settings = {"width": 8, "heads": 2, "layers": 1, "mixer": "kv_only"}
    model = build_model(timing={"name": "synchronous", "window": 3, "sinks": 2}, **settings).double()
    x = fixed_noise(1, 40, 8)
    visible = model.memories[0].schedule.softmax_mask(40)
    assert visible[39].nonzero().flatten().tolist() == [0, 1, 37, 38, 39]
    _, state = run_in_chunks(model, x, [1] * 40)
    k = model.memories[0].project(model.blocks[0].memory_norm(x), None, None)[1]
    torch.testing.assert_close(state[0].attention.sinks.k, k[:, :, :2])
    changed = x.clone()
    changed[0, 1] += 1
    assert (model(changed)[0][0, 39] - model(x)[0][0, 39]).abs().max() > 1e-6


@pytest.mark.parametrize("attention", available("attention"))
@pytest.mark.parametrize("timing", [*TIMINGS, FULL], ids=str)
def test_sinks_as_long_as_the_sequence_are_full_attention(timing, attention):
    settings = {"width": 8, "heads": 2, "layers": 1, "mixer": "kv_only", "attention": attention}
    x = fixed_noise(2, 90, 8)
    with_sinks, full = (build_model(timing=spec, **settings).double()(x)[0] for spec in (timing | {"sinks": 90}, FULL))
    torch.testing.assert_close(with_sinks, full)


@pytest.mark.parametrize("timing", [*TIMINGS, FULL], ids=str)
def test_zero_sinks_change_nothing(timing):
    x = fixed_noise(2, 40, 8)
    (plain, plain_state), (zero, zero_state) = (
        build_model(width=8, heads=2, timing=spec).double()(x) for spec in (timing, timing | {"sinks": 0})
    )
    assert torch.equal(plain, zero) and plain_state[0].attention is None and zero_state[0].attention is None


def test_a_negative_number_of_sinks_or_meta_tokens_is_an_error():
    with raises_issue("timing.sinks", "below_minimum"):
        build_model(width=8, heads=2, timing={"name": "synchronous", "sinks": -1})
    with raises_issue("meta_tokens", "below_minimum"):
        build_model(width=8, heads=2, meta_tokens=-1)


@pytest.mark.parametrize("timing", [*TIMINGS, FULL], ids=str)
def test_meta_tokens_equal_vectors_written_into_the_input(timing):
    settings = {"width": 8, "heads": 2, "layers": 2, "timing": timing | {"sinks": 1}}
    model, plain = build_model(meta_tokens=3, **settings).double(), build_model(**settings).double()
    x = fixed_noise(2, 20, 8)
    meta = model.meta_tokens.weight.expand(2, -1, -1)
    torch.testing.assert_close(model(x)[0], plain(torch.cat([meta, x], 1))[0][:, 3:])
    assert model(x)[1][0].document_length.tolist() == [23, 23]


def test_meta_tokens_are_inserted_at_every_document_start():
    x = torch.arange(1.0, 13).view(2, 6, 1)
    meta = torch.tensor([[-1.0], [-2.0]])
    starts = torch.tensor([[0, 0, 1, 0, 0, 0], [1, 0, 0, 1, 1, 0]]).bool()
    valid = torch.tensor([[1] * 6, [1, 1, 1, 1, 0, 0]]).bool()
    inserted = insert_meta_tokens(x, meta, Layout(valid, starts), is_first_call=True)
    assert inserted.x[..., 0].tolist() == [
        [-1, -2, 1, 2, -1, -2, 3, 4, 5, 6],
        [-1, -2, 7, 8, 9, -1, -2, 10, 0, 0],
    ]
    assert inserted.layout.doc_start.nonzero().tolist() == [[0, 4], [1, 0], [1, 5]]
    assert inserted.layout.valid_mask.sum(1).tolist() == [10, 8]
    torch.testing.assert_close(inserted.remove(inserted.x)[valid], x[valid])
    assert insert_meta_tokens(x, meta, None, is_first_call=False) is None
    later = insert_meta_tokens(x, meta, Layout(valid, starts), is_first_call=False)
    assert later.x[..., 0].tolist() == [[1, 2, -1, -2, 3, 4, 5, 6, 0, 0], [-1, -2, 7, 8, 9, -1, -2, 10, 0, 0]]


def test_meta_tokens_get_gradients_and_are_counted_as_parameters():
    model = build_model(vocabulary=5, width=8, heads=2, meta_tokens=4)
    tokens = torch.randint(0, 5, (2, 9))
    losses, _ = model(tokens, labels=tokens)
    assert losses.shape == (2, 9)
    losses.sum().backward()
    assert (model.meta_tokens.weight.grad.abs().sum(1) > 0).all()
    assert sizes(model, 9)["meta_tokens"].parameters == 32


def test_models_with_and_without_meta_tokens_share_all_other_weights():
    plain, meta = (build_model(width=8, heads=2, meta_tokens=count) for count in (0, 4))
    weights = dict(meta.named_parameters())
    assert set(weights) - {name for name, _ in plain.named_parameters()} == {"meta_tokens.weight"}
    assert all(torch.equal(parameter, weights[name]) for name, parameter in plain.named_parameters())


def test_probes_leave_meta_tokens_out():
    settings = {"width": 8, "heads": 2, "layers": 1, "timing": FULL, "mixer": "vector", "init_std": 0.5}
    model, plain = build_model(meta_tokens=3, **settings), build_model(**settings)
    x = fixed_noise(1, 12, 8).float()
    seen = []
    plain.memories[0].mixer.register_forward_hook(lambda mixer, inputs, output: seen.append(mixer.weights(inputs[0])))
    plain(torch.cat([model.meta_tokens.weight[None], x], 1))
    expected = seen[0][0][:, :, 3:].mean((0, 2, 3))
    torch.testing.assert_close(probe(model, x)["gate_fw"][0], expected)
