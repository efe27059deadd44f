"""Padding, packed documents and selected rows: one call = any split = token by token = each document alone."""

import random

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.check.component_under_test import fixed_noise, flatten_tensors, small_spec
from hqlt_lab.check.unpacked_reference import assert_matches_separate_documents, run_each_document, run_with_layout
from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.model.state import select_rows
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.registry import available

SMALL = {"width": 8, "heads": 2, "mlp_width": 16, "init_std": 0.5}
TIMINGS = [
    *(small_spec("timing", name) for name in available("timing")),
    {"name": "synchronous", "window": None},
    {"name": "delayed_stream", "window": 4, "gates": "own"},
    {"name": "delayed_chunk", "window": 3, "hold": 7},
    {"name": "delayed_chunk", "window": 5, "hold": 2},
]
MIXED = [
    {"layers": 2, "timing": ["synchronous", {"name": "delayed_chunk", "window": 3}], "short_conv": 4},
    {"layers": 2, "mixer": ["kv_only", "vector"], "timing": [TIMINGS[3], TIMINGS[4]], "positions": "rope"},
    {"layers": 3, "update_rule": ["delta_product", "linear_attention", "tanh_delta"], "timing": TIMINGS[5]},
    {"layers": 2, "update_rule": {"name": "delta_product", "steps": 3}, "timing": TIMINGS[4], "short_conv": 2},
    {"layers": 2, "positions": "sinusoidal", "norm": "layer", "bias": True, "output_gate": True, "timing": TIMINGS[6]},
    {"layers": 2, "timing": {"name": "delayed_chunk", "window": 4}, "update_rule": "gated_delta", "short_conv": 1},
    {
        "layer_kind": ["gated_conv", "memory"],
        "mlp": "identity",
        "norm": "layer",
        "bias": True,
        "layers": 2,
        "timing": TIMINGS[4],
    },
]


def make_model(**settings):
    return build_model(**SMALL | {"layers": 1} | settings).double()


def random_layout(rows, length, seed, tokens=0.7, borders=0.25):
    """Return random padding and documents; the last row has no tokens, and document starts at padding are ignored."""
    generator = torch.Generator().manual_seed(seed)
    valid_mask = torch.rand(rows, length, generator=generator) < tokens
    valid_mask[-1] = False
    return Layout(valid_mask, torch.rand(rows, length, generator=generator) < borders)


def random_split(length, seed):
    boundaries = sorted(random.Random(seed).sample(range(1, length), 3))
    return [b - a for a, b in zip([0, *boundaries], [*boundaries, length], strict=True)]


@pytest.mark.parametrize("timing", TIMINGS, ids=str)
@pytest.mark.parametrize("rule", available("update_rule"))
@torch.no_grad()
def test_document_output_is_independent_of_the_batch_for_every_rule_and_timing(rule, timing):
    for seed, (tokens, borders) in enumerate(((0.6, 0.3), (1.0, 0.1), (0.9, 0.6), (0.7, 0.0))):
        model = make_model(update_rule=rule, timing=timing, positions="rope", short_conv=3 * (seed % 2))
        layout = random_layout(4, 17, seed, tokens, borders)
        splits = [None, random_split(17, seed), [1] * 17]
        assert_matches_separate_documents(model, f"{seed}: ", fixed_noise(4, 17, 8), layout, splits)


@pytest.mark.parametrize("settings", MIXED, ids=str)
@torch.no_grad()
def test_document_output_is_independent_of_the_batch_for_mixed_layers(settings):
    model = make_model(**settings)
    for seed in range(6):
        layout = random_layout(3, 31, seed, tokens=(0.5, 1.0)[seed % 2], borders=(0.05, 0.2, 0.5)[seed % 3])
        splits = [None, random_split(31, seed), [1] * 31]
        assert_matches_separate_documents(model, f"{seed}: ", fixed_noise(3, 31, 8), layout, splits)


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(delay=2, hold=3, window=4),
        Schedule(delay=3, hold=2, block=5, gates="own"),
        Schedule(hold=4),
        Schedule(delay=5, window=3, block=4),
    ],
    ids=str,
)
@torch.no_grad()
def test_document_output_is_independent_of_the_batch_for_any_schedule(schedule):
    with lab.temporary_components():
        lab.register("timing", "odd")(lambda: schedule)
        model = make_model(update_rule="gated_delta", timing="odd", positions="rope", short_conv=3)
    for seed in range(4):
        layout = random_layout(4, 23, seed, borders=(0.1, 0.3)[seed % 2])
        splits = [None, random_split(23, seed), [1] * 23]
        assert_matches_separate_documents(model, f"{seed}: ", fixed_noise(4, 23, 8), layout, splits)


@pytest.mark.parametrize("timing", TIMINGS, ids=str)
@torch.no_grad()
def test_packed_documents_are_as_precise_as_separate_ones_under_autocast(timing):
    model, x = make_model(timing=timing, short_conv=3).float(), fixed_noise(1, 24, 8).float()
    doc_start = torch.arange(24)[None] == 9
    with torch.autocast("cpu", torch.bfloat16):
        packed, state = model(x, layout=Layout(doc_start=doc_start))
        alone, expected_state = model(x[:, 9:])
    torch.testing.assert_close(packed[:, 9:], alone, rtol=0.05, atol=0.05)
    dtypes, expected_dtypes = ([x.dtype for x in flatten_tensors(tree)] for tree in (state, expected_state))
    assert dtypes == expected_dtypes


@pytest.mark.parametrize("settings", MIXED, ids=str)
def test_rows_can_be_dropped_and_their_slots_reused_for_new_documents(settings):
    model, x, more_x = make_model(**settings), fixed_noise(4, 13, 8), fixed_noise(3, 9, 8, seed=1)
    layout = Layout(torch.ones(4, 13, dtype=torch.bool), random_layout(4, 13, 3).doc_start)
    rows = torch.tensor([3, 1, 1])
    _, state = run_with_layout(model, x, layout)
    new_doc_start = torch.zeros(3, 9, dtype=torch.bool)
    new_doc_start[2, 0] = True  # the third slot gets a new document
    batched, _ = model(more_x, select_rows(state, rows), Layout(doc_start=new_doc_start))
    torch.testing.assert_close(batched[2:], model(more_x[2:])[0])
    for slot in range(2):
        sequence = torch.cat([x[rows[slot]], more_x[slot]])[None]
        doc_start = torch.cat([layout.doc_start[rows[slot]], new_doc_start[slot]])[None]
        expected, _ = run_each_document(model, sequence, Layout(torch.ones_like(doc_start), doc_start))
        torch.testing.assert_close(batched[slot : slot + 1], expected[:, 13:])


@pytest.mark.parametrize("timing", TIMINGS, ids=str)
@pytest.mark.parametrize("rule", ["gated_delta", "tanh_delta"])
def test_gradients_are_the_sum_over_separate_documents(rule, timing):
    model = make_model(update_rule=rule, timing=timing, positions="rope", short_conv=3)
    layout, x = random_layout(3, 25, 5, borders=0.08), fixed_noise(3, 25, 8).requires_grad_()

    def gradients(output):
        return torch.autograd.grad((output * fixed_noise(*output.shape, seed=2)).sum(), [x, *model.parameters()])

    expected = gradients(run_each_document(model, x, layout)[0])
    for split in (None, [5, 20]):
        x_with_nan = x.masked_fill(~layout.valid_mask[..., None], torch.nan)
        actual = gradients(run_with_layout(model, x_with_nan, layout, split)[0])
        torch.testing.assert_close(actual, expected)
        assert not actual[0][~layout.valid_mask].any()


def test_padding_need_not_be_a_valid_token():
    model = build_model(vocabulary=11, **SMALL).double()
    tokens = torch.tensor([[-100, 3, 4, 5], [7, 8, -100, -100]])
    logits, state = model(tokens, layout=Layout(valid_mask=tokens >= 0))
    assert not logits[tokens < 0].any()
    torch.testing.assert_close(logits[:1, 1:], model(tokens[:1, 1:])[0])
    assert state[0].document_length.tolist() == [3, 2]


def test_call_with_only_padding_does_not_change_the_state():
    model = make_model(timing={"name": "delayed_chunk", "window": 5}, short_conv=3)
    _, state = model(fixed_noise(2, 7, 8))
    output, after = model(fixed_noise(2, 4, 8), state, Layout(valid_mask=torch.zeros(2, 4, dtype=torch.bool)))
    assert not output.any()
    torch.testing.assert_close(flatten_tensors(after), flatten_tensors(state))


def test_empty_layout_equals_no_layout():
    model, x = make_model(timing={"name": "delayed_stream", "window": 4}), fixed_noise(2, 9, 8)
    plain = model(x)
    for layout in (Layout(), Layout(valid_mask=torch.ones(2, 9).bool()), Layout(doc_start=torch.zeros(2, 9).bool())):
        torch.testing.assert_close(flatten_tensors(model(x, layout=layout)), flatten_tensors(plain))


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (
            Layout(valid_mask=torch.ones(2, 5)),
            r"layout.valid_mask: bool \[2, 5\] is needed, like the input, got float32 \[2, 5\].",
        ),
        (Layout(doc_start=torch.ones(5).bool()), r"layout.doc_start: bool \[2, 5\] is needed.*got bool \[5\]."),
    ],
)
def test_layout_of_wrong_shape_or_dtype_is_rejected(layout, message):
    with pytest.raises(ValueError, match=message):
        make_model()(fixed_noise(2, 5, 8), layout=layout)


def test_invalid_layout_or_state_is_rejected_with_a_message():
    model, other = build_model(**SMALL, layers=1), build_model(**SMALL, layers=2)
    x = torch.randn(2, 5, 8)
    _, state = model(x)
    for arguments, message in (
        ({"layout": (None,)}, "a Layout\\(valid_mask, doc_start\\) is needed, got tuple"),
        (
            {"layout": Layout(doc_start=[[True]])},
            "layout.doc_start: bool \\[2, 5\\] is needed, like the input, got list",
        ),
        ({"state": Layout()}, "state: the state returned by the model is needed, got Layout"),
        ({"state": other(x)[1]}, "a model with 2 layers, but this model has 1"),
        ({"state": select_rows(state, torch.tensor([0]))}, "1 rows, but the input has 2"),
    ):
        with pytest.raises(ValueError, match=message):
            model(x, **arguments)
    with pytest.raises(ValueError, match="a tensor \\[N\\] of row numbers"):
        select_rows(state, torch.tensor(1))
