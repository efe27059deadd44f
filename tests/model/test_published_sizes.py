"""Layers of published hybrids have the sizes of their implementation in transformers, or those of their configuration.

The configurations are the defaults of transformers (Olmo-Hybrid-7B, Qwen3-Next-80B-A3B, Kimi-Linear-48B-A3B), its table
of models (Falcon-H1-0.5B), and config.json of nvidia/Hymba-1.5B-Base.
"""

import pytest
import torch

from hqlt_lab.model.analysis.state_size import state_size
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.sequence_model import SequenceModel

FULL = {"name": "synchronous", "window": None}
SOFTMAX = {"mixer": "kv_only", "timing": FULL, "head_norm": False}
OLMO = {"width": 3840, "heads": 30, "fw": {"key_dim": 96, "value_dim": 192}, "short_conv": 4, "output_gate": True}
OLMO |= {"update_rule": {"name": "gated_delta", "max_beta": 2}, "attention": {"name": "softmax", "qk_norm": True}}
OLMO_NORMS = 2 * (3840 - 128)  # there, RMSNorm of queries and keys is over all heads, here per head
FLOAT = 4  # bytes


def make_layer(**settings):
    with torch.device("meta"):
        return HybridMemory(ModelConfig(layers=1, **settings))


def count_parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def count_published(family, class_name, *arguments, **settings):
    """Return the number of parameters of a module of transformers, and its configuration."""
    module = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    config = getattr(module, f"{class_name.partition(':')[0]}Config")(**settings)
    with torch.device("meta"):
        return count_parameters(getattr(module, class_name.replace(":", ""))(config, *arguments)), config


def test_olmo_hybrid():
    delta, config = count_published("olmo_hybrid", "OlmoHybrid:GatedDeltaNet", 0)
    assert count_parameters(make_layer(**OLMO, mixer="fw_only")) == delta
    softmax, _ = count_published("olmo_hybrid", "OlmoHybrid:Attention", 3)
    without = {"short_conv": 0, "output_gate": False}
    assert count_parameters(make_layer(**OLMO | SOFTMAX | without)) == softmax - OLMO_NORMS

    published, _ = count_published("olmo_hybrid", "OlmoHybrid:ForCausalLM")
    layers = {"mixer": {"repeat": [["fw_only", 3], ["kv_only", 1]]}, "timing": FULL, "layers": 32, "mlp_width": 11008}
    with torch.device("meta"):
        model = SequenceModel(ModelConfig(vocabulary=config.vocab_size, **OLMO, **layers))
    # here, layers with softmax have convolutions, a gate and a norm of their output too
    only_here = 3 * 4 * 3840 + 3840**2 + 128
    assert count_parameters(model) == published + 8 * (only_here - OLMO_NORMS) and 7e9 < published < 8e9


def test_softmax_of_qwen3_next():
    published, _ = count_published("qwen3_next", "Qwen3Next:Attention", 3)
    attention = {"name": "softmax", "qk_norm": True, "gate": "channel"}
    layer = make_layer(width=2048, heads=16, head_dim=256, kv={"groups": 2}, attention=attention, **SOFTMAX)
    assert count_parameters(layer) == published
    assert state_size(layer, 1).kv_cache == 2 * (256 + 256) * FLOAT


def test_kimi_delta_attention():
    published, _ = count_published("kimi_linear", "KimiLinear:DeltaAttention", 0)
    layer = make_layer(width=2304, heads=32, head_dim=128, update_rule="kda", mixer="fw_only", short_conv=4)
    gate = 128 * (2304 + 4096)  # low-rank; the output gate here is not
    assert count_parameters(layer) == published - gate


def test_falcon_h1():
    sizes = {"hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64}
    published, _ = count_published("falcon_h1", "FalconH1:Attention", 0, **sizes)
    layer = make_layer(
        width=1024,
        heads=8,
        mixer="sum",
        update_rule="mamba2",
        timing=FULL,
        projections="separate",
        fw={"heads": 12, "key_dim": 128, "value_dim": 128},
        kv={"groups": 2, "key_dim": 64, "value_dim": 64},
    )
    assert sum(count_parameters(module) for module in layer.own_components("kv")) == published
    assert state_size(layer, 1).fw == 24 * 128 * 64 * FLOAT


def test_hymba():
    layer = make_layer(
        width=1600,
        heads=25,
        head_dim=128,
        mixer="normalized",
        update_rule="mamba2",
        timing={"name": "synchronous", "window": 1024, "sinks": 128},
        projections="separate",
        fw={"key_dim": 16},
        kv={"groups": 5, "key_dim": 64},
    )
    size = state_size(layer, 5000)
    assert size.fw == 3200 * 16 * FLOAT
    assert (size.kv_cache, size.sinks) == (1024 * 5 * (64 + 128) * FLOAT, 128 * 5 * (64 + 128) * FLOAT)
    assert layer.to_out.weight.shape == (1600, 3200)
