"""Exporting and loading a model of any composition reproduces its outputs bit by bit."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.hugging_face.configuration_hqlt import make_hqlt_config
from hqlt_lab.hugging_face.export_layout import ENCODER_FOLDER
from hqlt_lab.hugging_face.export_reader import load_export
from hqlt_lab.hugging_face.export_writer import write_model
from hqlt_lab.hugging_face.modeling_hqlt import HqltForCausalLM

SMALL = {"vocabulary": 40, "width": 16, "heads": 2, "layers": 2, "mlp_width": 16}
WINDOW = {"timing": {"name": "delayed_stream", "window": 4}}
COMPOSITIONS = [
    *({"timing": {"name": name, "window": 4}} for name in lab.available("timing")),
    *(WINDOW | {"update_rule": name} for name in lab.available("update_rule")),
    *(WINDOW | {"mixer": name} for name in lab.available("mixer")),
    WINDOW | {"attention": {"name": "forgetting", "qk_norm": True, "gate": "head"}, "meta_tokens": 3},
    *(WINDOW | {"positions": name} for name in lab.available("positions")),
    WINDOW | {"update_rule": "linear_attention", "feature_map": "elu_plus_one"},
    WINDOW | {"update_rule": "delta", "feature_map": "silu_l2"},
    {"tie_embeddings": True},
    {"layer_kind": ["gated_conv", "memory"], "mlp": "identity", "norm": "layer", "bias": True},
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


def composition_id(settings):
    return "-".join(value["name"] if isinstance(value, dict) else str(value) for value in settings.values())


def export_model(model, folder):
    config = make_hqlt_config(model.config, 39, encoder="bytes", encoder_vocabulary=36, max_position_embeddings=8)
    folder.mkdir()
    write_model(model, config, folder)
    (folder / ENCODER_FOLDER).mkdir()
    return folder


@pytest.mark.parametrize("settings", COMPOSITIONS, ids=composition_id)
def test_exported_model_is_identical_when_loaded_by_the_lab_and_by_transformers(settings, tmp_path):
    model = lab.build_model(3, **(SMALL | settings)).eval()
    folder = export_model(model, tmp_path / "export")
    tokens = torch.randint(0, 40, (2, 11))
    with torch.no_grad():
        expected, _ = model(tokens)
        loaded = load_export(folder).model
        assert loaded.config == model.config
        assert torch.equal(loaded(tokens)[0], expected)
        hf_model = HqltForCausalLM.from_pretrained(folder).eval()
        assert torch.equal(hf_model(tokens).logits, expected)
    assert not any(parameter.is_meta for parameter in loaded.parameters())


def test_tied_embeddings_are_stored_once_and_tied_after_loading(tmp_path):
    from safetensors.torch import load_file

    folder = export_model(lab.build_model(3, **SMALL, tie_embeddings=True), tmp_path / "export")
    stored = load_file(folder / "model.safetensors")
    assert ("model.embed.weight" in stored) + ("model.head.weight" in stored) == 1
    for model in (load_export(folder).model, HqltForCausalLM.from_pretrained(folder).model):
        assert model.head.weight is model.embed.weight


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_export_has_the_requested_dtype_and_nearly_the_same_logits(dtype, text_cell, tmp_path):
    lab.export(text_cell, tmp_path / "export", dtype)
    loaded = lab.load_export(tmp_path / "export").model
    assert {parameter.dtype for parameter in loaded.parameters()} == {getattr(torch, dtype)}
    tokens = torch.randint(0, 257, (1, 20))
    with torch.no_grad():
        expected, logits = lab.load(text_cell).model(tokens)[0], loaded(tokens)[0]
    assert (logits.float() - expected).abs().max() <= {"float32": 0.0}.get(dtype, 0.05)


def test_new_transformers_model_has_the_same_initial_weights_as_ours():
    model = lab.build_model(0, **SMALL)
    hf_model = HqltForCausalLM(make_hqlt_config(model.config, 39))
    for name, weight in model.state_dict().items():
        assert torch.equal(hf_model.model.state_dict()[name], weight)
