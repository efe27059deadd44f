"""Padding, packed documents and selected rows: full = any split = token by token = each document alone."""

import random

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.check.alone import each_alone, laid_out, reads_like_each_alone
from hqlt_lab.check.subject import noise, small, tensors
from hqlt_lab.model.layout import Layout
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.model.state import select_rows
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.registry import available

SMALL = {"width": 8, "heads": 2, "mlp_width": 16, "init_std": 0.5}
TIMINGS = [
    *(small("timing", name) for name in available("timing")),
    {"name": "synchronous", "window": None},
    {"name": "delayed_stream", "window": 4, "gates": "travel"},
    {"name": "delayed_chunk", "window": 3, "hold": 7},
    {"name": "delayed_chunk", "window": 5, "hold": 2},
]
MIXED = [
    {"layers": 2, "timing": ["synchronous", {"name": "delayed_chunk", "window": 3}], "short_conv": 4},
    {"layers": 2, "mixer": ["kv_only", "vector"], "timing": [TIMINGS[3], TIMINGS[4]], "positions": "rope"},
    {"layers": 3, "update_rule": ["delta_product", "linear_attention", "bounded_delta"], "timing": TIMINGS[5]},
    {"layers": 2, "update_rule": {"name": "delta_product", "steps": 3}, "timing": TIMINGS[4], "short_conv": 2},
    {"layers": 2, "positions": "sinusoidal", "norm": "layer", "bias": True, "output_gate": True, "timing": TIMINGS[6]},
    {"layers": 2, "timing": {"name": "delayed_chunk", "window": 4}, "update_rule": "gated_delta", "short_conv": 1},
]


def model_of(**settings):
    return build_model(**SMALL | {"layers": 1} | settings).double()


def random_layout(rows, length, seed, tokens=0.7, borders=0.25):
    """Padding anywhere, a last row without tokens, documents of all lengths; `starts` at padding mean nothing."""
    draw = torch.Generator().manual_seed(seed)
    real = torch.rand(rows, length, generator=draw) < tokens
    real[-1] = False
    return Layout(real, torch.rand(rows, length, generator=draw) < borders)


def random_split(length, seed):
    cuts = sorted(random.Random(seed).sample(range(1, length), 3))
    return [b - a for a, b in zip([0, *cuts], [*cuts, length], strict=True)]


@pytest.mark.parametrize("timing", TIMINGS, ids=str)
@pytest.mark.parametrize("rule", available("update_rule"))
@torch.no_grad()
def test_every_rule_and_timing_reads_each_document_as_if_alone(rule, timing):
    for seed, (tokens, borders) in enumerate(((0.6, 0.3), (1.0, 0.1), (0.9, 0.6), (0.7, 0.0))):
        model = model_of(update_rule=rule, timing=timing, positions="rope", short_conv=3 * (seed % 2))
        layout = random_layout(4, 17, seed, tokens, borders)
        splits = [None, random_split(17, seed), [1] * 17]
        reads_like_each_alone(model, f"{seed}: ", noise(4, 17, 8), layout, splits)


@pytest.mark.parametrize("settings", MIXED, ids=str)
@torch.no_grad()
def test_layers_of_different_kinds_read_each_document_as_if_alone(settings):
    model = model_of(**settings)
    for seed in range(6):
        layout = random_layout(3, 31, seed, tokens=(0.5, 1.0)[seed % 2], borders=(0.05, 0.2, 0.5)[seed % 3])
        splits = [None, random_split(31, seed), [1] * 31]
        reads_like_each_alone(model, f"{seed}: ", noise(3, 31, 8), layout, splits)


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(delay=2, hold=3, window=4),
        Schedule(delay=3, hold=2, block=5, gates="travel"),
        Schedule(hold=4),
        Schedule(delay=5, window=3, block=4),
    ],
    ids=str,
)
@torch.no_grad()
def test_any_schedule_reads_each_document_as_if_alone(schedule):
    with lab.temporarily():
        lab.register("timing", "odd")(lambda: schedule)
        model = model_of(update_rule="gated_delta", timing="odd", positions="rope", short_conv=3)
    for seed in range(4):
        layout = random_layout(4, 23, seed, borders=(0.1, 0.3)[seed % 2])
        splits = [None, random_split(23, seed), [1] * 23]
        reads_like_each_alone(model, f"{seed}: ", noise(4, 23, 8), layout, splits)


@pytest.mark.parametrize("timing", TIMINGS, ids=str)
@torch.no_grad()
def test_under_autocast_a_packed_text_is_computed_as_precisely_as_any(timing):
    model, x = model_of(timing=timing, short_conv=3).float(), noise(1, 24, 8).float()
    starts = torch.arange(24)[None] == 9
    with torch.autocast("cpu", torch.bfloat16):
        packed, state = model(x, layout=Layout(starts=starts))
        alone, last = model(x[:, 9:])
    torch.testing.assert_close(packed[:, 9:], alone, rtol=0.05, atol=0.05)
    assert [field.dtype for field in tensors(state)] == [field.dtype for field in tensors(last)]


@pytest.mark.parametrize("settings", MIXED, ids=str)
def test_rows_are_dropped_and_new_documents_take_their_slots(settings):
    model, x, more = model_of(**settings), noise(4, 13, 8), noise(3, 9, 8, seed=1)
    layout = Layout(torch.ones(4, 13, dtype=torch.bool), random_layout(4, 13, 3).starts)
    rows = torch.tensor([3, 1, 1])
    _, state = laid_out(model, x, layout)
    begins = torch.zeros(3, 9, dtype=torch.bool)
    begins[2, 0] = True  # the third slot gets a new document
    together, _ = model(more, select_rows(state, rows), Layout(starts=begins))
    torch.testing.assert_close(together[2:], model(more[2:])[0])
    for slot in range(2):
        text = torch.cat([x[rows[slot]], more[slot]])[None]
        starts = torch.cat([layout.starts[rows[slot]], begins[slot]])[None]
        whole, _ = each_alone(model, text, Layout(torch.ones_like(starts), starts))
        torch.testing.assert_close(together[slot : slot + 1], whole[:, 13:])


@pytest.mark.parametrize("timing", TIMINGS, ids=str)
@pytest.mark.parametrize("rule", ["gated_delta", "bounded_delta"])
def test_gradients_are_the_sum_of_each_documents_own(rule, timing):
    model = model_of(update_rule=rule, timing=timing, positions="rope", short_conv=3)
    layout, x = random_layout(3, 25, 5, borders=0.08), noise(3, 25, 8).requires_grad_()

    def gradients(answer):
        return torch.autograd.grad((answer * noise(*answer.shape, seed=2)).sum(), [x, *model.parameters()])

    want = gradients(each_alone(model, x, layout)[0])
    for split in (None, [5, 20]):
        hidden = x.masked_fill(~layout.real[..., None], torch.nan)
        got = gradients(laid_out(model, hidden, layout, split)[0])
        torch.testing.assert_close(got, want)
        assert not got[0][~layout.real].any()


def test_padding_need_not_be_a_token():
    model = build_model(vocabulary=11, **SMALL).double()
    words = torch.tensor([[-100, 3, 4, 5], [7, 8, -100, -100]])
    logits, state = model(words, layout=Layout(real=words >= 0))
    assert not logits[words < 0].any()
    torch.testing.assert_close(logits[:1, 1:], model(words[:1, 1:])[0])
    assert state[0].count.tolist() == [3, 2]


def test_a_call_with_nothing_but_padding_leaves_the_state_as_it_was():
    model = model_of(timing={"name": "delayed_chunk", "window": 5}, short_conv=3)
    _, state = model(noise(2, 7, 8))
    answer, after = model(noise(2, 4, 8), state, Layout(real=torch.zeros(2, 4, dtype=torch.bool)))
    assert not answer.any()
    torch.testing.assert_close(tensors(after), tensors(state))


def test_the_answer_without_a_layout_is_the_answer_with_an_empty_one():
    model, x = model_of(timing={"name": "delayed_stream", "window": 4}), noise(2, 9, 8)
    plain = model(x)
    for layout in (Layout(), Layout(real=torch.ones(2, 9).bool()), Layout(starts=torch.zeros(2, 9).bool())):
        torch.testing.assert_close(tensors(model(x, layout=layout)), tensors(plain))


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        (Layout(real=torch.ones(2, 5)), r"layout.real: bool \[2, 5\] is needed, as the text is, got float32 \[2, 5\]."),
        (Layout(starts=torch.ones(5).bool()), r"layout.starts: bool \[2, 5\] is needed.*got bool \[5\]."),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(layout, says):
    with pytest.raises(ValueError, match=says):
        model_of()(noise(2, 5, 8), layout=layout)


def test_what_is_no_layout_or_no_state_of_this_text_is_refused_with_a_sentence():
    model, other = build_model(**SMALL, layers=1), build_model(**SMALL, layers=2)
    x = torch.randn(2, 5, 8)
    _, state = model(x)
    for given, told in (
        ({"layout": (None,)}, "a Layout\\(real, starts\\) is needed, got tuple"),
        ({"layout": Layout(starts=[[True]])}, "layout.starts: bool \\[2, 5\\] is needed, as the text is, got list"),
        ({"state": Layout()}, "state: what the model gave with its last answer is needed, got Layout"),
        ({"state": other(x)[1]}, "of a model with 2 layers, and this one has 1"),
        ({"state": select_rows(state, torch.tensor([0]))}, "of 1 rows, and the text has 2"),
    ):
        with pytest.raises(ValueError, match=told):
            model(x, **given)
    with pytest.raises(ValueError, match="a tensor \\[N\\] of row numbers"):
        select_rows(state, torch.tensor(1))
