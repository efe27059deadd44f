"""Reference for padding and packing: every document of every row is run in a call of its own."""

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor

from hqlt_lab.check.component_under_test import assert_close, flatten_tensors
from hqlt_lab.check.conformance_report import CheckFailed
from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state import State, select_rows, take_last


def document_positions(layout: Layout, row: int) -> list[Tensor]:
    """Return the token positions of each document in a row."""
    valid_mask, doc_start = layout
    assert valid_mask is not None and doc_start is not None
    tokens = valid_mask[row].nonzero()[:, 0]
    first_tokens = doc_start[row, tokens].nonzero()[:, 0].tolist()
    boundaries = sorted({0, *first_tokens, len(tokens)})
    return [tokens[a:b] for a, b in pairwise(boundaries)]


def run_each_document(model: SequenceModel, x: Tensor, layout: Layout) -> tuple[Tensor, list[State | None]]:
    """Return the outputs, 0 at padding, and each row's state after its last document (None for an empty row)."""
    size = model.config.vocabulary or model.config.width
    outputs = torch.zeros(*x.shape[:2], size, dtype=next(model.parameters()).dtype)
    states: list[State | None] = []
    for row in range(len(x)):
        state: State | None = None
        for positions in document_positions(layout, row):
            output, state = model(x[row : row + 1, positions])
            outputs[row, positions] = output[0]
        states.append(state)
    return outputs, states


def run_with_layout(
    model: SequenceModel, x: Tensor, layout: Layout, split: Iterable[int] | None = None
) -> tuple[Tensor, State]:
    """Run a model on padded and packed rows, in one call or in chunks of the lengths in `split`."""
    state: State | None = None
    outputs, start = [], 0
    for length in split or [x.shape[1]]:
        chunk = slice(start, start + length)
        chunk_layout = Layout(*(None if field is None else field[:, chunk] for field in layout))
        output, state = model(x[:, chunk], state, chunk_layout)
        outputs.append(output)
        start += length
    assert state is not None and start == x.shape[1]
    return torch.cat(outputs, 1), state


def assert_same_states(prefix: str, model: SequenceModel, state: State, expected_states: list[State | None]) -> None:
    """Raise CheckFailed unless each row has the state of its last document alone, and zeros if it has no document.

    With meta tokens a row without a document is not compared: its state holds them.
    """
    for row, expected_state in enumerate(expected_states):
        if expected_state is None and model.config.meta_tokens:
            continue
        row_state = select_rows(state, torch.tensor([row]))
        for memory, actual, expected in zip(model.layer_memories, row_state, expected_state or row_state, strict=True):
            if len(flatten_tensors(actual)) != len(flatten_tensors(expected)):
                raise CheckFailed(f"{prefix}the state of row {row} has different fields.")
            for actual_field, expected_field in zip(flatten_tensors(actual), flatten_tensors(expected), strict=True):
                has_full_cache = memory is not None and memory.kv_cache_capacity is None
                if has_full_cache and expected_field.dim() > 2:  # padded to the longest row of the batch
                    length = actual_field.shape[2]
                    expected_field = (
                        take_last(expected_field, length) if expected_field.shape[2] <= length else expected_field
                    )
                expected_field = expected_field if expected_state else torch.zeros_like(actual_field)
                assert_close(f"{prefix}the state of row {row}", actual_field, expected_field)


def assert_matches_separate_documents(
    model: SequenceModel, prefix: str, x: Tensor, layout: Layout, splits: Iterable[list[int] | None]
) -> None:
    """Raise CheckFailed unless outputs and states equal the reference in every split; the inputs at padding are nan."""
    expected, states = run_each_document(model, x, layout)
    assert layout.valid_mask is not None
    x = x.masked_fill(~layout.valid_mask[..., None], torch.nan)
    for split in splits:
        label = prefix if split is None else f"{prefix}split into {split}, "
        output, state = run_with_layout(model, x, layout, split)
        assert_close(f"{label}the output", output, expected)
        assert_same_states(label, model, state, states)
