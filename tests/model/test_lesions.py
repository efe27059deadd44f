"""A lesion sets the output of one memory to zero and changes nothing else."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.check.component_under_test import fixed_noise
from tests.issues import raises_issue


def make_model(**settings):
    defaults = {"width": 8, "heads": 2, "layers": 1, "mlp_width": 8, "init_std": 0.5, "mixer": "sum"}
    return lab.build_model(**defaults | settings, timing={"name": "synchronous", "window": 3}).double()


@pytest.mark.parametrize(("memory", "remaining_mixer"), [("fw", "kv_only"), ("kv", "fw_only")])
def test_sum_without_one_memory_equals_the_other_alone(memory, remaining_mixer):
    model, alone, x = make_model(), make_model(mixer=remaining_mixer), fixed_noise(2, 9, 8)
    with lab.lesion(model, memory):
        lesioned = model(x)[0]
    torch.testing.assert_close(lesioned, alone(x)[0])  # the same seed gives both models the same weights
    assert not torch.allclose(model(x)[0], lesioned)


def test_gates_of_the_mixer_do_not_change():
    model, x = make_model(mixer="vector"), fixed_noise(2, 9, 8)
    with lab.lesion(model, "fw"):
        gates = lab.probe(model, x)
    assert torch.equal(gates["gate_fw"], lab.probe(model, x)["gate_fw"])
    assert gates["work_fw"].max() == 0 and gates["share"].max() == 0


def test_layers_with_one_memory_are_lesioned_only_if_it_is_that_memory():
    model, x = make_model(layers=3, mixer=["sum", "fw_only", "kv_only"]), fixed_noise(2, 9, 8)
    with lab.lesion(model, "fw"):
        probes = lab.probe(model, x)
    assert probes["share"][0].max() == 0 and probes["work_fw"].max() == 0
    assert probes["work_kv"][2].min() > 0


def test_compiled_model_can_be_lesioned():
    model, x = make_model(), fixed_noise(1, 9, 8)
    with lab.lesion(model, "fw"):
        expected = model(x)[0]
    model.compile(backend="eager")
    intact = model(x)[0]
    with lab.lesion(model, "fw"):
        assert torch.equal(model(x)[0], expected)
    assert torch.equal(model(x)[0], intact)
    torch.compiler.reset()


def test_hooks_are_removed_after_an_exception():
    model = make_model()
    with pytest.raises(ZeroDivisionError), lab.lesion(model, "kv"):
        _ = 1 / 0
    assert not model.memories[0].mixer._forward_pre_hooks


def test_model_with_one_memory_and_unknown_memory_are_rejected():
    with (
        raises_issue("lesion", "lesion_of_single_memory"),
        lab.lesion(make_model(mixer="fw_only"), "fw"),
    ):
        pass
    with raises_issue("lesion", "unknown_memory"), lab.lesion(make_model(), "kw"):
        pass
