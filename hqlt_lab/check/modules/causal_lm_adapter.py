"""Calls a causal language model of transformers, built from its configuration with random weights and toy sizes.

    hqlt check module transformers:BambaForCausalLM --set hidden_size=32

Settings that are not given have toy values.  On a CPU the PyTorch implementations in the model's file are used, also if
a package with kernels for GPUs is installed.
"""

import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from hqlt_lab.check.modules.adapter_interface import (
    Adapter,
    Inputs,
    NotApplicable,
    RunResult,
    fixed_seed,
    iterate_tensors,
)
from hqlt_lab.check.modules.call_options import CallOptions

# values of settings that are not given; a configuration takes those that it has
TOY_SETTINGS: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 1024,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "num_experts": 0,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "attn_layer_indices": [1],
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 8,
    "mamba_d_ssm": 64,
    "mamba_n_groups": 2,
    "mamba_chunk_size": 64,
    "num_heads": 8,
    "state_size": 8,
    "n_groups": 2,
    "chunk_size": 64,
}
LINEAR_AND_FULL_LAYER = ["linear_attention", "full_attention"]


class CausalLMAdapter(Adapter):
    """Calls a causal language model of transformers."""

    logits_may_be_float32 = True
    pads_prompts_left = True  # transformers' `generate` warns about padding on the right

    def __init__(self, model_class: Any, name: str, settings: Mapping[str, Any], options: CallOptions) -> None:
        super().__init__(name, settings, options)
        self.model_class = model_class
        self.arguments = inspect.signature(model_class.forward).parameters
        self.cache_argument = "cache_params" if "cache_params" in self.arguments else "past_key_values"

    def make_config(self) -> Any:
        """Return the configuration with the given settings, and toy values for others that it has."""
        config_class = self.model_class.config_class
        known = set(vars(config_class())) | set(inspect.signature(config_class).parameters)
        toy_settings = {name: value for name, value in TOY_SETTINGS.items() if name in known}
        if "linear_num_key_heads" in known:
            toy_settings["layer_types"] = LINEAR_AND_FULL_LAYER
        return config_class(**(toy_settings | self.settings))

    def build(self, seed: int) -> nn.Module:
        with fixed_seed(seed):
            return self.model_class(self.make_config())

    def draw_inputs(self, rows: int, tokens: int, seed: int = 0) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        # numbers of special tokens are not drawn
        return {"input_ids": torch.randint(3, self.make_config().vocab_size, (rows, tokens), generator=generator)}

    def run(
        self,
        module: nn.Module | None,
        inputs: Inputs,
        *,
        cache: Any = None,
        keeps_cache: bool = False,
        mask: Tensor | None = None,
        document_lengths: list[int] | None = None,
    ) -> RunResult:
        assert module is not None
        past, past_mask = cache or (None, None)
        arguments: dict[str, Any] = {"use_cache": keeps_cache or past is not None}
        if past is not None:
            arguments[self.cache_argument] = past
        is_padded = mask is not None or (past_mask is not None and not past_mask.all())
        mask = torch.ones_like(inputs["input_ids"], dtype=torch.bool) if mask is None else mask
        tokens, mask = mask.shape[1], mask if past_mask is None else torch.cat([past_mask, mask], 1)
        if is_padded:
            arguments["attention_mask"] = mask.long()
        if self.options.positions and "position_ids" in self.arguments:
            arguments["position_ids"] = (mask.long().cumsum(1) - 1).clamp(min=0)[:, -tokens:]
        if document_lengths is not None:
            arguments |= self.encode_documents(document_lengths)
        with pytorch_implementations(self.model_class.__module__):
            result = module(**inputs, **arguments)
        return RunResult(result.logits, (getattr(result, self.cache_argument, None), mask))

    def encode_documents(self, lengths: list[int]) -> dict[str, Any]:
        """Return the arguments of transformers' collator for packed documents."""
        arguments: dict[str, Any] = {}
        if "position_ids" in self.arguments:
            arguments["position_ids"] = torch.cat([torch.arange(length) for length in lengths])[None]
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in self.arguments.values()):
            raise NotApplicable("the model takes no boundaries of documents")
        boundaries = torch.tensor([0, *lengths]).cumsum(0).int()
        numbers = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[None].int()
        return arguments | {
            "cu_seq_lens_q": boundaries,
            "cu_seq_lens_k": boundaries,
            "max_length_q": max(lengths),
            "max_length_k": max(lengths),
            "seq_idx": numbers,
        }

    def list_state_tensors(self, cache: Any) -> list[Tensor]:
        """Return the states of recurrences and convolutions; keys and values of attention grow by definition."""
        states: list[Tensor] = []
        for layer in getattr(cache[0], "layers", []):
            for name in ("conv_states", "recurrent_states"):
                states += iterate_tensors(getattr(layer, name, None))
        return states

    def declared_state_bytes(self, module: nn.Module | None) -> int:
        if self.options.state_bytes is None:
            raise NotApplicable("transformers' configurations declare no size; give it with `--call state_bytes=N`")
        return self.options.state_bytes

    def save_and_load(self, module: nn.Module, seed: int) -> nn.Module:
        dtype = next(module.parameters()).dtype
        with tempfile.TemporaryDirectory() as folder, fixed_seed(seed), without_progress_bars():
            module.save_pretrained(folder)  # type: ignore[operator]
            return self.model_class.from_pretrained(folder, dtype=dtype).eval()


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Hide transformers' progress bars inside of a `with` block."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


@contextmanager
def pytorch_implementations(module_name: str) -> Iterator[None]:
    """Use the PyTorch functions of a model's file instead of kernels inside of a `with` block."""
    namespace = vars(sys.modules[module_name])
    originals = {}
    for name, function in list(namespace.items()):
        implementation = getattr(function, "__wrapped__", None)
        if getattr(implementation, "__module__", None) == module_name and inspect.isfunction(implementation):
            originals[name] = function
            namespace[name] = reject_documents(implementation)
    try:
        yield
    finally:
        namespace.update(originals)


def reject_documents(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises NotApplicable if it gets boundaries of documents but has no argument for them."""
    parameters = inspect.signature(function).parameters

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in ("cu_seqlens", "seq_idx"):
            if kwargs.get(name) is not None and name not in parameters:
                raise NotApplicable(f"the PyTorch implementation of {function.__name__} takes no {name}")
        return function(*args, **kwargs)

    return call
