"""Checks that every kind of component must pass: causality, streaming, padding, packing, state size, gradients, ..."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from hqlt_lab.check.component_under_test import (
    SMALL_WINDOW,
    ComponentCase,
    assert_close,
    count_held_bytes,
    fixed_noise,
    flatten_tensors,
    run_in_chunks,
)
from hqlt_lab.check.conformance_report import CheckFailed, CheckResult
from hqlt_lab.check.unpacked_reference import assert_matches_separate_documents
from hqlt_lab.errors import ConfigError, HqltError
from hqlt_lab.model.analysis.state_size import state_size
from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.model.initialize import reset_module
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state import State, select_rows
from hqlt_lab.ops.scan.chunked import CHUNK_SIZE
from hqlt_lab.registry import build

# tokens of a causality check: several chunks of the scan, and a part of one
CAUSALITY_LENGTH = 3 * CHUNK_SIZE + 5
# positions of the first changed token: near both ends, before the border of a chunk, and inside chunks
CHANGE_POSITIONS = (3, CHUNK_SIZE - 1, CHUNK_SIZE + 5, 2 * CHUNK_SIZE + 17, CAUSALITY_LENGTH - 1)


def reads_only_the_past(case: ComponentCase) -> None:
    """Changing later tokens changes no bit of an earlier output, and later inputs get no gradient from it.

    Appending tokens changes earlier outputs by rounding at most: matrix products of other shapes round differently.
    """
    for number, timing in enumerate(case.timing_specs()):
        model, prefix = case.build_model(timing=timing), f"timing {timing['name']}"
        # the dtypes round differently; one timing is enough for those that are not float64
        for dtype in (torch.float64, torch.float32, torch.bfloat16) if number == 0 else (torch.float64,):
            x = fixed_noise(2, CAUSALITY_LENGTH, 8).to(dtype)
            assert_later_tokens_have_no_effect(model.to(dtype), x, f"{prefix}, {dtype}")
        assert_appended_tokens_have_no_effect(case.build_model(timing=timing), prefix)


def assert_later_tokens_have_no_effect(model: SequenceModel, x: Tensor, prefix: str) -> None:
    """Raise CheckFailed if a token changes an earlier output, or gets a gradient from one.

    Not a bit may change, unless the update rule declares that its scan is not bitwise causal.
    """
    rules = [memory.update_rule for memory in model.memories if memory.update_rule is not None]
    is_bitwise = all(rule.scan_is_bitwise_causal for rule in rules)
    tolerance = 0.0 if is_bitwise else 16 * torch.finfo(x.dtype).eps
    x = x.requires_grad_()
    expected, _ = model(x)
    for t in CHANGE_POSITIONS:
        other_tokens = 4 * fixed_noise(len(x), x.shape[1] - t, x.shape[2], seed=t).to(x)
        with torch.no_grad():
            output = model(torch.cat([x[:, :t], other_tokens], 1))[0][:, :t]
        deviation = (output - expected[:, :t]).abs().max().item()
        if not deviation <= tolerance * expected.abs().max():  # NaN included
            hint = " This is in the order of rounding: the arithmetic depends on later tokens." * (deviation < 1e-3)
            raise CheckFailed(f"{prefix}: other tokens from {t} on change the outputs before by {deviation:.1e}.{hint}")
        (gradient,) = torch.autograd.grad(expected[:, :t].square().sum(), x, retain_graph=True)
        if not gradient[:, t:].abs().max() <= tolerance * gradient.abs().max():
            raise CheckFailed(f"{prefix}: outputs before token {t} have a gradient with respect to later tokens.")


@torch.no_grad()
def assert_appended_tokens_have_no_effect(model: SequenceModel, prefix: str) -> None:
    """Raise CheckFailed if appended tokens change the outputs before them by more than rounding."""
    x = fixed_noise(2, CAUSALITY_LENGTH, 8)
    expected, _ = model(x)
    for t in (9, *CHANGE_POSITIONS):
        assert_close(
            f"{prefix}: with {t} tokens instead of {x.shape[1]}, the outputs", model(x[:, :t])[0], expected[:, :t]
        )


def any_split_gives_the_same_result(case: ComponentCase) -> None:
    """Outputs and final state do not depend on how a sequence is split, in training and in evaluation mode."""
    for timing in case.timing_specs():
        for model in (case.build_model(timing=timing, short_conv=3), case.build_model(timing=timing).eval()):
            assert_streaming_equals_one_pass(model, f"timing {timing['name']}, ", ([5, 6], [3, 1, 7], [1] * 11))


def passed_state_is_not_modified(case: ComponentCase) -> None:
    """A state that is passed in is not modified, so that several continuations can start from it."""
    for timing in case.timing_specs():
        model, x = case.build_model(timing=timing), fixed_noise(2, 9, 8)
        _, state = model(x[:, :5])
        copies = [tensor.clone() for tensor in flatten_tensors(state)]
        with torch.no_grad():
            model(x[:, 5:], state)
        for tensor, copy in zip(flatten_tensors(state), copies, strict=True):
            assert_close(f"timing {timing['name']}: the state passed in", tensor, copy, 0.0)


def rows_are_independent(case: ComponentCase) -> None:
    """Each row of a batch has the same output as when it is run alone."""
    for timing in case.timing_specs():
        model, x = case.build_model(timing=timing), fixed_noise(3, 7, 8)
        batch_output, _ = model(x)
        for row in range(3):
            assert_close(
                f"timing {timing['name']}: row {row} alone", model(x[row : row + 1])[0], batch_output[row : row + 1]
            )


def assert_streaming_equals_one_pass(model: SequenceModel, prefix: str, splits: tuple[list[int], ...]) -> None:
    """Raise CheckFailed unless every split of a sequence gives the output and the state of one pass."""
    x = fixed_noise(2, sum(splits[0]), model.config.width)
    expected_output, expected_state = model(x)
    if not expected_output.isfinite().all():
        raise CheckFailed(f"{prefix}the output is not finite.")
    for split in splits:
        output, state = run_in_chunks(model, x, split)
        assert_close(f"{prefix}split into {split}, the output", output, expected_output)
        if len(flatten_tensors(expected_state)) != len(flatten_tensors(state)):
            raise CheckFailed(f"{prefix}split into {split}, the state has different fields.")
        for actual, expected in zip(flatten_tensors(state), flatten_tensors(expected_state), strict=True):
            assert_close(f"{prefix}split into {split}, the state", actual, expected)


def keeps_the_dtype(case: ComponentCase) -> None:
    """The output has the dtype of the input, and the fast weights have at least float32."""
    dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    for dtype, timing in product(dtypes, case.timing_specs()):
        model = case.build_model(timing=timing).to(dtype)
        output, state = model(fixed_noise(2, 5, 8).to(dtype))
        if output.dtype != dtype:
            raise CheckFailed(f"with timing {timing['name']} and {dtype} input, the output is {output.dtype}.")
        if not output.isfinite().all():
            raise CheckFailed(f"with timing {timing['name']} and {dtype} input, the output is not finite.")
        fw = state[0].fw
        if fw is not None and fw.dtype != torch.promote_types(dtype, torch.float32):
            raise CheckFailed(f"with {dtype} the fast weights are {fw.dtype}.")


def every_parameter_gets_a_gradient(case: ComponentCase) -> None:
    """Every parameter of the component gets a gradient that is finite and not zero."""
    model = case.build_model()
    model(fixed_noise(2, 9, 8))[0].square().sum().backward()
    for name, parameter in component_module(model, case).named_parameters():
        if parameter.grad is None or not parameter.grad.abs().max() > 0:
            raise CheckFailed(f"{name} gets no gradient.")
        if not parameter.grad.isfinite().all():
            raise CheckFailed(f"the gradient of {name} is not finite.")


def own_initialization_is_kept(case: ComponentCase) -> None:
    """A model keeps the values that a component sets in reset_parameters; the constructor sets no others."""
    composed_model = case.build_model()
    composed = component_module(composed_model, case)
    component, second_build = (build(case.kind, case.spec, width=8, heads=2) for _ in range(2))
    if not isinstance(component, nn.Module):
        return
    if not hasattr(component, "reset_parameters"):
        assert_no_weights_drawn_in_constructor(component)
    parameters = zip(component.named_parameters(), second_build.parameters(), composed.parameters(), strict=True)
    for (name, value), second_value, composed_value in parameters:
        # equal in two builds: a constant of the constructor, not a random draw
        if torch.equal(value, second_value) and not torch.equal(value.double(), composed_value):
            raise CheckFailed(f"{name} was set by the constructor and is overwritten: set it in reset_parameters().")
    if hasattr(composed, "reset_parameters"):
        composed_values = {name: value.clone() for name, value in composed.named_parameters(recurse=False)}
        reset_module(component, component_path(composed_model, case), seed=0)
        for name, value in component.named_parameters(recurse=False):
            assert_close(f"{name} after composition", composed_values[name], value.double(), 1e-6)


def assert_no_weights_drawn_in_constructor(component: nn.Module) -> None:
    """Raise CheckFailed if a linear layer has weights beyond torch's bound: the constructor drew them itself."""
    for path, module in component.named_modules():
        if isinstance(module, nn.Linear) and module.weight.abs().max() > module.in_features**-0.5:
            raise CheckFailed(f"{path}.weight was drawn by the constructor and is overwritten: use reset_parameters().")


# two rows: padding between and before the tokens, documents that begin inside a window and inside a chunk
PADDED_AND_PACKED = Layout(
    valid_mask=torch.tensor([[1, 1, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1]]).bool(),
    doc_start=torch.tensor([[0, 0, 0, 1, 0, 0, 0], [0, 0, 1, 0, 0, 0, 1]]).bool(),
)


def combines_with_every_component(case: ComponentCase) -> Iterator[CheckResult]:
    """With every pair of other components the model streams, pads and packs correctly, or is always rejected."""
    reasons: dict[tuple[str, str], str] = {}  # of rejected combinations, by code and path of the first issue
    num_legal = 0
    for other_components, model in case.pairwise_models():
        if isinstance(model, ConfigError):
            issue = model.issues[0]
            reasons.setdefault((issue.code, issue.path), issue.message)
            continue
        prefix = f"with {', '.join(component['name'] for component in other_components.values())}: "
        assert_streaming_equals_one_pass(model, prefix, ([4, 3], [1] * 7))
        with torch.no_grad():
            assert_matches_separate_documents(model, prefix, fixed_noise(2, 7, 8), PADDED_AND_PACKED, [[4, 3]])
        num_legal += 1
    if not num_legal:
        raise CheckFailed(
            f"no combination can be built: {' '.join(reasons.values()) or 'there are no other components.'}"
        )
    detail = f"{num_legal} combinations, which contain every pair of other components"
    yield CheckResult("combines with every component", "passed", detail)
    for reason in reasons.values():
        yield CheckResult("combines with every component", "illegal", reason)


# sizes of the memories in a model of width 8 with 2 heads: shared keys and values, and memories of different sizes
MEMORY_SIZES: tuple[dict[str, Any], ...] = (
    {"kv": {"groups": 1}},
    {
        "fw": {"key_dim": 6, "value_dim": 5},
        "kv": {"groups": 1, "key_dim": 2, "value_dim": 3},
        "projections": "separate",
    },
)


def memories_may_differ_in_size(case: ComponentCase) -> None:
    """The component fits a memory whose keys and values have other sizes than width / heads."""
    case.build_model()(fixed_noise(2, 7, 8))  # a component that fails at any size fails here, without the hint below
    for sizes in MEMORY_SIZES:
        try:
            output, _ = case.build_model(**sizes)(fixed_noise(2, 7, 8))
            output.sum().backward()
        except (RuntimeError, HqltError) as error:
            hint = "Use the arguments key_dim and value_dim; they may differ from width / heads."
            raise CheckFailed(f"with {sizes}: {error} {hint}") from error
        if not output.isfinite().all():
            raise CheckFailed(f"with {sizes} the output is not finite.")


def compiles(case: ComponentCase) -> None:
    """torch.compile (aot_eager) gives the same output and gradient as eager mode."""
    torch.compiler.reset()
    model, x = case.build_model(), fixed_noise(2, 5, 8)
    eager_output = model(x)[0]
    memory = model.memories[0]
    weight = memory.projections_of(next(iter(memory.sizes))).to_q.weight
    (eager_gradient,) = torch.autograd.grad(eager_output.square().sum(), weight)
    compiled_output = torch.compile(model, backend="aot_eager")(x)[0]
    (compiled_gradient,) = torch.autograd.grad(compiled_output.square().sum(), weight)
    assert_close("the output", compiled_output, eager_output)
    assert_close("the gradient", compiled_gradient, eager_gradient)


def component_module(model: SequenceModel, case: ComponentCase) -> nn.Module:
    """Return the component's module inside the model; an empty module for a timing."""
    return nn.Module() if case.kind == "timing" else model.get_submodule(component_path(model, case))


def component_path(model: SequenceModel, case: ComponentCase) -> str:
    """Return the path of the component's module inside the model; positions may be those of the input."""
    is_input = case.kind == "positions" and model.positions is not None
    return "positions" if is_input else f"blocks.0.memory.{case.kind}"


@torch.no_grad()
def padding_has_no_effect(case: ComponentCase) -> None:
    """Padding before, behind or between the tokens, or in whole rows, does not change outputs or states."""
    token = torch.arange(9)
    valid_mask = torch.stack([token >= 4, token < 5, (token < 2) | (token > 4), token < 0, token % 3 != 1])
    for timing in timings_with_full_attention(case):
        model = case.build_model(timing=timing, short_conv=3)
        layout = Layout(valid_mask, torch.zeros_like(valid_mask))
        prefix = f"timing {timing}, with padding, "
        x = fixed_noise(*valid_mask.shape, 8)
        assert_matches_separate_documents(model, prefix, x, layout, [None, [5, 4], [1] * 9])


@torch.no_grad()
def packed_documents_are_independent(case: ComponentCase) -> None:
    """Documents packed into a row, shorter and longer than a window and a chunk, give the same result as alone."""
    lengths = [1, 2, SMALL_WINDOW - 1, SMALL_WINDOW, SMALL_WINDOW + 1]
    short = torch.stack([document_starts([*lengths, 2]), document_starts([2, *reversed(lengths)])])
    long = torch.stack([document_starts([4, CHUNK_SIZE + 6, 2]), document_starts([CHUNK_SIZE + 6, 1, 5])])
    for timing in timings_with_full_attention(case):
        model = case.build_model(timing=timing, short_conv=3)
        for starts, splits in ((short, [None, [4, 1, 9], [1] * 14]), (long, [None, [3, CHUNK_SIZE - 2, 11]])):
            layout = Layout(torch.ones_like(starts), starts)
            prefix = f"timing {timing}, with packed documents, "
            assert_matches_separate_documents(model, prefix, fixed_noise(*starts.shape, 8), layout, splits)


@torch.no_grad()
def rows_can_be_selected(case: ComponentCase) -> None:
    """The rows of a state can be reordered, dropped and repeated, and continue as before."""
    rows = torch.tensor([2, 0, 2])
    for timing in timings_with_full_attention(case):
        model, x = case.build_model(timing=timing, short_conv=3), fixed_noise(3, 8, 8)
        _, state = model(x)
        continuation = fixed_noise(3, 5, 8, seed=1)
        output, _ = model(continuation, select_rows(state, rows))
        for n, row in enumerate(rows.tolist()):
            expected, _ = model(torch.cat([x[row], continuation[n]])[None])
            assert_close(
                f"timing {timing}: the continuation of row {row}, moved to {n}", output[n : n + 1], expected[:, 8:]
            )


@torch.no_grad()
def state_is_as_large_as_declared(case: ComponentCase) -> None:
    """The state has exactly the declared number of bytes, in every precision, after any number of tokens."""
    for timing in timings_with_full_attention(case):
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            model = case.build_model(timing=timing, short_conv=3).to(dtype)
            for split in ([2], [40], [7, 1, 30]):
                _, state = run_in_chunks(model, fixed_noise(1, sum(split), 8).to(dtype), split)
                assert_declared_state_size(model, f"timing {timing}, {dtype}, ", state, sum(split))


def assert_declared_state_size(model: SequenceModel, prefix: str, state: State, context: int) -> None:
    """Raise CheckFailed unless the state of one row, after `context` tokens of a document, has its declared size."""
    for memory, memory_state in zip(model.memories, state, strict=True):
        dtype = memory.to_out.weight.dtype
        declared = state_size(memory, context + model.config.meta_tokens, dtype).total
        measured = count_held_bytes(memory_state)
        if measured != declared:
            raise CheckFailed(f"{prefix}{context} tokens: {declared} bytes are declared, but {measured} were measured.")
        for tensor in flatten_tensors(memory_state):
            if tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size():
                raise CheckFailed(
                    f"{prefix}{context} tokens: the state is a view that keeps a larger tensor in memory."
                )


def timings_with_full_attention(case: ComponentCase) -> list[dict[str, Any]]:
    """Return all timings and full attention, or only the timing under test."""
    full_attention = {"name": "synchronous", "window": None}
    return case.timing_specs() + ([] if case.kind == "timing" else [full_attention])


def document_starts(lengths: list[int]) -> Tensor:
    """Return a mask [T] of the first token of each document but the first, which starts with the row."""
    starts = torch.zeros(sum(lengths), dtype=torch.bool)
    starts[torch.tensor(lengths[:-1]).cumsum(0)] = True
    return starts
