"""The authors' configurations, built on the meta device, have exactly the published numbers of parameters."""

import pytest
import torch

from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.sequence_model import SequenceModel

MEDIUM = {"vocabulary": 32000, "width": 1024, "heads": 8, "layers": 24}
LARGE = {"vocabulary": 32000, "width": 2048, "heads": 16, "layers": 24}
HYBRID = {"update_rule": {"name": "delta", "max_beta": 2}, "mixer": "vector", "positions": "rope"}
DELTANET = {"update_rule": "delta", "mixer": "fw_only"}
TRANSFORMER = {
    "mixer": "kv_only",
    "timing": {"name": "synchronous", "window": None},
    "value_activation": "none",
    "head_norm": False,
    "residual_init": "normal",
}


def timing_of(name, window=64):
    return {"timing": {"name": name, "window": window}}


CONFIGURATIONS = {
    "delayed-chunk 1B": (LARGE | HYBRID | timing_of("delayed_chunk"), 1_465_750_528),
    "delayed-chunk 340M": (MEDIUM | HYBRID | timing_of("delayed_chunk"), 399_233_024),
    "delayed-stream 1B": (LARGE | HYBRID | timing_of("delayed_stream"), 1_465_750_528),
    "delayed-stream 340M": (MEDIUM | HYBRID | timing_of("delayed_stream"), 399_233_024),
    "sync 1B": (LARGE | HYBRID | timing_of("synchronous"), 1_465_750_528),
    "sync 340M": (MEDIUM | HYBRID | timing_of("synchronous"), 399_233_024),
    "sync window 128": (MEDIUM | HYBRID | timing_of("synchronous", 128), 399_233_024),
    "sync window 256": (MEDIUM | HYBRID | timing_of("synchronous", 256), 399_233_024),
    "sync window 512": (MEDIUM | HYBRID | timing_of("synchronous", 512), 399_233_024),
    "sync window 1024": (MEDIUM | HYBRID | timing_of("synchronous", 1024), 399_233_024),
    "sync scalar": (MEDIUM | HYBRID | timing_of("synchronous") | {"mixer": "scalar"}, 374_460_416),
    "sync sum": (MEDIUM | HYBRID | timing_of("synchronous") | {"mixer": "sum"}, 374_067_200),
    # the authors' count includes 196,608 beta weights that linear attention does not use; they are not built here
    "sync linear attention": (
        MEDIUM | HYBRID | timing_of("synchronous") | {"update_rule": "linear_attention"},
        399_036_416,
    ),
    "sync no positions": (MEDIUM | HYBRID | timing_of("synchronous") | {"positions": "none"}, 399_233_024),
    "sync no positions 1024": (MEDIUM | HYBRID | timing_of("synchronous", 1024) | {"positions": "none"}, 399_233_024),
    "sync no positions 1B": (LARGE | HYBRID | timing_of("synchronous") | {"positions": "none"}, 1_465_750_528),
    "DeltaNet 340M": (MEDIUM | DELTANET, 374_067_200),
    "DeltaNet 1B": (LARGE | DELTANET, 1_365_087_232),
    "DeltaNet 340M with convolution": (MEDIUM | DELTANET | {"short_conv": 4}, 374_362_112),
    "DeltaNet 1B with convolution": (LARGE | DELTANET | {"short_conv": 4}, 1_365_677_056),
    "Transformer++ 340M": (MEDIUM | TRANSFORMER | {"heads": 16}, 373_867_520),
    "Transformer++ 1B": (LARGE | TRANSFORMER | {"heads": 32}, 1_364_297_728),
    # the synthetic tasks and the sequence models of the reinforcement-learning agents
    "parity": (HYBRID | {"vocabulary": 3, "short_conv": 4, "output_gate": True}, 595_392),
    "modular arithmetic": (HYBRID | {"vocabulary": 10, "layers": 3, "short_conv": 4, "output_gate": True}, 894_432),
    "RL hybrid": (HYBRID | {"width": 100, "heads": 2, "layers": 3}, 612_250),
    "RL DeltaNet": (DELTANET | {"width": 100, "heads": 2, "layers": 3}, 582_250),
    "RL Transformer": (
        TRANSFORMER
        | {
            "width": 100,
            "heads": 2,
            "layers": 2,
            "norm": "layer",
            "mlp": "gelu",
            "bias": True,
            "positions": "sinusoidal",
        },
        242_800,
    ),
}


@pytest.mark.parametrize(("settings", "parameters"), CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_number_of_parameters_is_the_published_one(settings, parameters):
    with torch.device("meta"):
        model = SequenceModel(ModelConfig(**settings))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
