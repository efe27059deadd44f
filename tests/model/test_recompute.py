"""Activations that are computed again backwards are the same, and are not kept in between."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from hqlt_lab.model.layout import Layout
from hqlt_lab.model.sequence_model import build_model


def model(**settings):
    return build_model(**{"vocabulary": 11, "width": 16, "heads": 2, "layers": 3} | settings)


def gradients(model, **given):
    torch.manual_seed(0)
    words = torch.randint(0, 11, (2, 70))
    losses, _ = model(words, labels=words, **given)
    return torch.autograd.grad(losses.sum(), list(model.parameters()))


def equal(some, others):
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


@pytest.mark.parametrize("mixer", ["sum", "kv_only", "fw_only"])
def test_gradients_are_the_same_bit_by_bit(mixer):
    kept, layout = model(mixer=mixer, short_conv=3), Layout(real=torch.arange(70) < torch.tensor([[70], [41]]))
    assert equal(gradients(kept, layout=layout), gradients(kept.recompute(), layout=layout))


def test_dropped_numbers_are_drawn_again():
    kept = model()
    for block in kept.blocks:
        block.memory_norm = torch.nn.Sequential(block.memory_norm, torch.nn.Dropout(0.5))
    assert equal(gradients(kept), gradients(kept.recompute()))


def test_a_block_keeps_its_input_alone():
    def kept(model):
        found = []
        with saved_tensors_hooks(lambda tensor: found.append(tensor.nbytes) or tensor, lambda tensor: tensor):
            gradients(model)
        return sum(found)

    assert kept(model().recompute()) < kept(model()) / 4


def test_a_text_goes_on_from_a_state_as_before():
    kept, words = model().double(), torch.randint(0, 11, (2, 9))
    (logits, _), (_, state) = kept(words), kept.recompute()(words[:, :4])
    torch.testing.assert_close(kept(words[:, 4:], state)[0], logits[:, 4:])


@pytest.mark.slow
def test_a_compiled_model_computes_again_too():
    kept = model().double()
    truth = gradients(kept)
    torch.compiler.reset()
    torch.testing.assert_close(gradients(torch.compile(kept.recompute(), backend="aot_eager")), truth)
    torch.compiler.reset()
