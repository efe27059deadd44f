"""Out and back, bit by bit, whatever the model is made of."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.hugging_face.causal_lm import HqltForCausalLM
from hqlt_lab.hugging_face.config import config_of
from hqlt_lab.hugging_face.folder import ENCODER
from hqlt_lab.hugging_face.read import load_export
from hqlt_lab.hugging_face.write import write_model

SMALL = {"vocabulary": 40, "width": 16, "heads": 2, "layers": 2, "mlp_width": 16}
WINDOW = {"timing": {"name": "delayed_stream", "window": 4}}
COMPOSITIONS = [
    *({"timing": {"name": name, "window": 4}} for name in lab.available("timing")),
    *(WINDOW | {"update_rule": name} for name in lab.available("update_rule")),
    *(WINDOW | {"mixer": name} for name in lab.available("mixer")),
    *(WINDOW | {"positions": name} for name in lab.available("positions")),
    WINDOW | {"update_rule": "linear_attention", "feature_map": "elu_plus_one"},
    WINDOW | {"update_rule": "delta", "feature_map": "silu_l2"},
    {"tie_embeddings": True},
    {
        "timing": {"name": "synchronous", "window": None},
        "mixer": "kv_only",
        "mlp": "gelu",
        "norm": "layer",
        "bias": True,
    },
    {"update_rule": {"name": "delta", "max_beta": 2.0}, "short_conv": 3, "output_gate": True, "head_norm": False},
    {"mixer": ["fw_only", "kv_only"], "update_rule": ["delta", "gated_delta"]},
]


def told(settings):
    return "-".join(part["name"] if isinstance(part, dict) else str(part) for part in settings.values())


def handed_on(model, folder):
    config = config_of(model.config, 39, encoder="bytes", encoder_vocabulary=36, max_position_embeddings=8)
    folder.mkdir()
    write_model(model, config, folder)
    (folder / ENCODER).mkdir()
    return folder


@pytest.mark.parametrize("settings", COMPOSITIONS, ids=told)
def test_every_composition_comes_back_as_it_was_in_our_class_and_in_theirs(settings, tmp_path):
    model = lab.build_model(3, **(SMALL | settings)).eval()
    folder = handed_on(model, tmp_path / "export")
    tokens = torch.randint(0, 40, (2, 11))
    with torch.no_grad():
        expected, _ = model(tokens)
        ours = load_export(folder).model
        assert ours.config == model.config
        assert torch.equal(ours(tokens)[0], expected)
        theirs = HqltForCausalLM.from_pretrained(folder).eval()
        assert torch.equal(theirs(tokens).logits, expected)
    assert not any(parameter.is_meta for parameter in ours.parameters())


def test_tied_embeddings_are_stored_once_and_tied_again(tmp_path):
    from safetensors.torch import load_file

    folder = handed_on(lab.build_model(3, **SMALL, tie_embeddings=True), tmp_path / "export")
    stored = load_file(folder / "model.safetensors")
    assert ("model.embed.weight" in stored) + ("model.head.weight" in stored) == 1
    ours, theirs = load_export(folder).model, HqltForCausalLM.from_pretrained(folder)
    assert ours.head.weight is ours.embed.weight and theirs.model.head.weight is theirs.model.embed.weight


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_precision_is_the_one_asked_for_and_answers_stay_near(dtype, text_cell, tmp_path):
    lab.export(text_cell, tmp_path / "export", dtype)
    ours = lab.load_export(tmp_path / "export").model
    assert {parameter.dtype for parameter in ours.parameters()} == {getattr(torch, dtype)}
    tokens = torch.randint(0, 257, (1, 20))
    with torch.no_grad():
        expected, found = lab.load(text_cell).model(tokens)[0], ours(tokens)[0]
    assert (found.float() - expected).abs().max() <= {"float32": 0.0}.get(dtype, 0.05)


def test_a_model_of_theirs_can_be_made_anew_and_is_drawn_as_ours_is():
    model = lab.build_model(0, **SMALL)
    theirs = HqltForCausalLM(config_of(model.config, 39))
    for name, weight in model.state_dict().items():
        assert torch.equal(theirs.model.state_dict()[name], weight)
