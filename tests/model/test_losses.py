"""A model that is given labels answers with losses."""

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.model.layout import Layout
from hqlt_lab.model.sequence_model import build_model


def example(**settings):
    model = build_model(**{"vocabulary": 11, "width": 16, "heads": 2, "layers": 1} | settings).double()
    words, labels = torch.randint(0, 11, (2, 3, 7))
    labels[0, 4:], labels[2] = -1, -1
    return model, words, labels


@pytest.mark.parametrize("tied", [False, True])
def test_its_losses_and_gradients_are_those_of_its_logits(tied):
    model, words, labels = example(tie_embeddings=tied)
    layout = Layout(real=torch.arange(7) < torch.tensor([[4], [7], [6]]))
    losses, state = model(words, layout=layout, labels=labels)
    logits, same_state = model(words, layout=layout)
    truth = F.cross_entropy(logits.mT, labels, ignore_index=-1, reduction="none")
    torch.testing.assert_close(losses, truth)
    torch.testing.assert_close(state[0].fw, same_state[0].fw)
    grads = (torch.autograd.grad(each.sum(), list(model.parameters())) for each in (losses, truth))
    torch.testing.assert_close(*grads)


def test_a_compiled_model_has_the_same_losses_in_one_graph():
    model, words, labels = example()
    torch.compiler.reset()
    ours, truth = torch.compile(model, backend="aot_eager", fullgraph=True), model
    grads = [
        torch.autograd.grad(each(words, labels=labels)[0].sum(), list(model.parameters())) for each in (ours, truth)
    ]
    torch.testing.assert_close(*grads)
    torch.compiler.reset()


def test_labels_that_do_not_fit_are_refused():
    model, words, labels = example()
    with pytest.raises(ValueError, match=r"labels: \[3, 6\] do not fit tokens \[3, 7\]"):
        model(words, labels=labels[:, 1:])
    vectors, *_ = example(vocabulary=None)
    with pytest.raises(ValueError, match="A model without a vocabulary has no logits"):
        vectors(torch.randn(3, 7, 16, dtype=torch.float64), labels=labels)
