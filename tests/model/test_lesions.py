"""A lesioned memory is silent, and nothing else changes."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.check.subject import noise
from hqlt_lab.errors import ConfigError


def model_of(**settings):
    words = {"width": 8, "heads": 2, "layers": 1, "mlp_width": 8, "init_std": 0.5, "mixer": "sum", **settings}
    return lab.build_model(**words, timing={"name": "synchronous", "window": 3}).double()


@pytest.mark.parametrize(("memory", "left"), [("fw", "kv_only"), ("kv", "fw_only")])
def test_without_one_memory_a_sum_is_the_other_alone(memory, left):
    model, alone, x = model_of(), model_of(mixer=left), noise(2, 9, 8)
    with lab.lesion(model, memory):
        lesioned = model(x)[0]
    torch.testing.assert_close(lesioned, alone(x)[0])  # one seed gives both the same weights
    assert not torch.allclose(model(x)[0], lesioned)


def test_the_gates_stay_as_they_are():
    model, x = model_of(mixer="vector"), noise(2, 9, 8)
    with lab.lesion(model, "fw"):
        gates = lab.probe(model, x)
    assert torch.equal(gates["gate_fw"], lab.probe(model, x)["gate_fw"])
    assert gates["work_fw"].max() == 0 and gates["share"].max() == 0


def test_a_layer_of_one_memory_loses_it_too_and_one_of_the_other_does_not():
    model, x = model_of(layers=3, mixer=["sum", "fw_only", "kv_only"]), noise(2, 9, 8)
    with lab.lesion(model, "fw"):
        seen = lab.probe(model, x)
    assert seen["share"][0].max() == 0 and seen["work_fw"].max() == 0
    assert seen["work_kv"][2].min() > 0


def test_a_compiled_model_is_lesioned_too():
    model, x = model_of(), noise(1, 9, 8)
    with lab.lesion(model, "fw"):
        want = model(x)[0]
    model.compile(backend="eager")
    intact = model(x)[0]
    with lab.lesion(model, "fw"):
        assert torch.equal(model(x)[0], want)
    assert torch.equal(model(x)[0], intact)
    torch.compiler.reset()


def test_the_hooks_go_even_if_something_goes_wrong_inside():
    model = model_of()
    with pytest.raises(ZeroDivisionError), lab.lesion(model, "kv"):
        _ = 1 / 0
    assert not model.memories[0].mixer._forward_pre_hooks


def test_a_model_of_one_memory_and_a_memory_that_is_none_are_told():
    with (
        pytest.raises(ConfigError, match="this model has fw alone, so there is nothing to tell apart"),
        lab.lesion(model_of(mixer="fw_only"), "fw"),
    ):
        pass
    with pytest.raises(ConfigError, match="no memory is called 'kw'"), lab.lesion(model_of(), "kw"):
        pass
