"""A model called with labels returns losses."""

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.model.sequence_model import build_model


def make_example(**settings):
    model = build_model(**{"vocabulary": 11, "width": 16, "heads": 2, "layers": 1} | settings).double()
    tokens, labels = torch.randint(0, 11, (2, 3, 7))
    labels[0, 4:], labels[2] = -1, -1
    return model, tokens, labels


@pytest.mark.parametrize("tied", [False, True])
def test_losses_and_gradients_equal_those_of_the_logits(tied):
    model, tokens, labels = make_example(tie_embeddings=tied)
    layout = Layout(valid_mask=torch.arange(7) < torch.tensor([[4], [7], [6]]))
    losses, state = model(tokens, layout=layout, labels=labels)
    logits, same_state = model(tokens, layout=layout)
    expected = F.cross_entropy(logits.mT, labels, ignore_index=-1, reduction="none")
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(state[0].fw, same_state[0].fw)
    grads = (torch.autograd.grad(each_losses.sum(), list(model.parameters())) for each_losses in (losses, expected))
    torch.testing.assert_close(*grads)


def test_compiled_model_has_the_same_gradients_in_one_graph():
    model, tokens, labels = make_example()
    torch.compiler.reset()
    compiled, eager = torch.compile(model, backend="aot_eager", fullgraph=True), model
    grads = [
        torch.autograd.grad(run(tokens, labels=labels)[0].sum(), list(model.parameters())) for run in (compiled, eager)
    ]
    torch.testing.assert_close(*grads)
    torch.compiler.reset()


def test_labels_of_wrong_shape_are_rejected():
    model, tokens, labels = make_example()
    with pytest.raises(ValueError, match=r"labels: \[3, 6\] do not match tokens \[3, 7\]"):
        model(tokens, labels=labels[:, 1:])
    vector_model, *_ = make_example(vocabulary=None)
    with pytest.raises(ValueError, match="A model without a vocabulary has no logits"):
        vector_model(torch.randn(3, 7, 16, dtype=torch.float64), labels=labels)
