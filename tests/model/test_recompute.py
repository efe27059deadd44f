"""Activation recomputation gives the same gradients and saves less memory."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.model.sequence_model import build_model


def make_model(**settings):
    return build_model(**{"vocabulary": 11, "width": 16, "heads": 2, "layers": 3} | settings)


def gradients(model, **arguments):
    torch.manual_seed(0)
    tokens = torch.randint(0, 11, (2, 70))
    losses, _ = model(tokens, labels=tokens, **arguments)
    return torch.autograd.grad(losses.sum(), list(model.parameters()))


def all_equal(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("mixer", ["sum", "kv_only", "fw_only"])
def test_gradients_are_bit_identical(mixer):
    network = make_model(mixer=mixer, short_conv=3)
    layout = Layout(valid_mask=torch.arange(70) < torch.tensor([[70], [41]]))
    assert all_equal(gradients(network, layout=layout), gradients(network.set_recompute(), layout=layout))


def test_dropout_is_the_same_in_the_recomputation():
    network = make_model()
    for block in network.blocks:
        block.memory_norm = torch.nn.Sequential(block.memory_norm, torch.nn.Dropout(0.5))
    assert all_equal(gradients(network), gradients(network.set_recompute()))


def test_block_saves_only_its_input():
    def count_saved_bytes(network):
        sizes = []
        with saved_tensors_hooks(lambda tensor: sizes.append(tensor.nbytes) or tensor, lambda tensor: tensor):
            gradients(network)
        return sum(sizes)

    assert count_saved_bytes(make_model().set_recompute()) < count_saved_bytes(make_model()) / 4


def test_sequence_can_be_continued_from_a_state():
    network, tokens = make_model().double(), torch.randint(0, 11, (2, 9))
    (logits, _), (_, state) = network(tokens), network.set_recompute()(tokens[:, :4])
    torch.testing.assert_close(network(tokens[:, 4:], state)[0], logits[:, 4:])


@pytest.mark.slow
def test_compiled_model_recomputes_too():
    network = make_model().double()
    expected = gradients(network)
    torch.compiler.reset()
    torch.testing.assert_close(gradients(torch.compile(network.set_recompute(), backend="aot_eager")), expected)
    torch.compiler.reset()
