"""Options of attention, sinks and meta tokens at their default change neither cell keys nor weights nor outputs."""

import hashlib

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.api import load_experiment
from hqlt_lab.experiment.expand_cells import expand_plan

# as they were before models had an attention component
KEYS = {
    "{mixer: sum}": "6b3411966a016a81",
    "{mixer: fw_only, update_rule: gated_delta}": "8640d0ebfd536f2e",
    "{mixer: kv_only, timing: {name: synchronous, window: null}}": "9c152b9aff012423",
    "{timing: {name: delayed_chunk, window: 8}}": "b01844057700600a",
    "{timing: {name: delayed_stream, window: 8, gates: own}, positions: none}": "856b2d0aa4752707",
    "{layers: 4, mixer: [vector, kv_only], update_rule: {name: delta, max_beta: 2}}": "df62aa2c8d754e97",
}
MODELS = [
    ({}, "6abf9e58f90e8fba", -1.6856268817595323),
    ({"timing": {"name": "delayed_chunk", "window": 4}}, "6abf9e58f90e8fba", -3.098739026670736),
    (
        {"timing": {"name": "synchronous", "window": None}, "mixer": "kv_only", "positions": "none"},
        "24565337e8db8531",
        -2.239334562808679,
    ),
    (
        {
            "timing": {"name": "delayed_stream", "window": 4},
            "update_rule": "gated_delta",
            "mixer": "sum",
            "layers": 4,
        },
        "b082a352dad8cc09",
        -1.7615534299805236,
    ),
]
DEFAULTS = {"attention": {"name": "softmax", "qk_norm": False, "gate": "none", "logit_scale": "none"}}


def first_key(change: str, tmp_path) -> str:
    file = tmp_path / "experiment.yaml"
    file.write_text(f"question: Which?\ntask: parity\nmodel: {change}\nseeds: 1\n")
    return expand_plan(load_experiment(file))[0].key


@pytest.mark.parametrize("change", KEYS)
def test_keys_are_those_from_before(change, tmp_path):
    assert first_key(change, tmp_path) == KEYS[change]


def test_defaults_may_be_written_out_and_other_values_change_the_key(tmp_path):
    plain = first_key("{mixer: sum}", tmp_path)
    assert first_key("{mixer: sum, attention: softmax}", tmp_path) == plain
    assert first_key("{mixer: sum, attention: {name: softmax, gate: none, qk_norm: false}}", tmp_path) == plain
    assert first_key("{mixer: sum, timing: {name: synchronous, sinks: 0}, meta_tokens: 0}", tmp_path) == plain
    others = [
        "{mixer: sum, attention: forgetting}",
        "{mixer: sum, attention: {name: softmax, gate: head}}",
        "{mixer: sum, timing: {name: synchronous, sinks: 4}}",
        "{mixer: sum, meta_tokens: 4}",
    ]
    assert len({plain, *(first_key(other, tmp_path) for other in others)}) == 5


def test_sizes_equal_to_the_shared_ones_are_not_in_the_key_and_others_are(tmp_path):
    base = "width: 64, heads: 4, mixer: sum"
    plain = first_key(f"{{{base}}}", tmp_path)
    equal = "head_dim: 16, fw: {heads: 4, key_dim: null}, kv: {groups: 4, value_dim: 16}, projections: shared"
    assert first_key(f"{{{base}, {equal}}}", tmp_path) == plain
    others = ["head_dim: 8", "kv: {groups: 2}", "projections: separate"]
    others += [f"projections: separate, {size}" for size in ("fw: {key_dim: 8}", "kv: {key_dim: 8}", "fw: {heads: 2}")]
    assert len({plain, *(first_key(f"{{{base}, {other}}}", tmp_path) for other in others)}) == 7


def test_sizes_of_a_memory_that_no_layer_reads_are_not_in_the_key(tmp_path):
    sizes = "kv: {groups: 1}, projections: separate"
    assert first_key(f"{{mixer: fw_only, {sizes}}}", tmp_path) == first_key("{mixer: fw_only}", tmp_path)
    assert first_key(f"{{mixer: kv_only, {sizes}}}", tmp_path) != first_key("{mixer: kv_only}", tmp_path)


def test_attention_of_a_model_without_softmax_is_not_in_the_key(tmp_path):
    assert first_key("{mixer: fw_only, attention: forgetting}", tmp_path) == first_key("{mixer: fw_only}", tmp_path)


@pytest.mark.parametrize(("settings", "digest", "total"), MODELS, ids=str)
def test_initial_weights_and_outputs_are_those_from_before(settings, digest, total):
    sizes = {"vocabulary": 11, "width": 16, "heads": 2, "layers": 2, "mlp_width": 24}
    model = lab.build_model(**sizes | DEFAULTS | settings).double()
    digests = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digests.update(name.encode())
        digests.update(parameter.detach().numpy().tobytes())
    assert digests.hexdigest()[:16] == digest
    output, _ = model(torch.arange(60).view(2, 30) * 7 % 11)
    assert output.sum().item() == pytest.approx(total, rel=1e-12)
