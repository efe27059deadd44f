"""Calls an nn.Module: forward(x) or forward(x, mask=..., cache=..., cu_seqlens=...) -> output or (output, cache, ...).

x is [B, T, width] or token numbers [B, T].  The output is the first tensor that forward returns, the cache is an
element of the same name, or the last element of a tuple.
"""

import inspect
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import torch
from torch import Tensor, nn

from hqlt_lab.check.modules.adapter_interface import Adapter, Inputs, RunResult, fixed_seed
from hqlt_lab.check.modules.call_options import AUTO, CallOptions
from hqlt_lab.errors import ConfigError, format_names

TOKEN_ARGUMENTS = ("input_ids", "tokens", "idx")
MASK_ARGUMENTS = ("attention_mask", "padding_mask", "valid_mask", "mask")
CACHE_ARGUMENTS = ("past_key_values", "past_key_value", "cache_params", "cache", "state")
DOCUMENT_ARGUMENTS = ("cu_seqlens", "seq_idx", "doc_start")
WIDTH_SETTINGS = ("width", "d_model", "hidden_size", "dim", "embed_dim", "n_embd")
VOCABULARY_SETTINGS = ("vocab_size", "vocabulary", "num_tokens")


class LayerAdapter(Adapter):
    """Calls an nn.Module that is built by a class with settings."""

    def __init__(
        self, factory: Callable[..., nn.Module], name: str, settings: Mapping[str, Any], options: CallOptions
    ) -> None:
        super().__init__(name, settings, options)
        self.factory = factory
        forward = getattr(factory, "forward", factory)
        self.arguments = [name for name in inspect.signature(forward).parameters if name != "self"]
        self.cache_argument = self.find_argument("cache", options.cache, CACHE_ARGUMENTS)
        self.mask_argument = self.find_argument("mask", options.mask, MASK_ARGUMENTS)
        self.documents_argument = self.find_argument("documents", options.documents, DOCUMENT_ARGUMENTS)
        if self.documents_argument and self.documents_argument not in DOCUMENT_ARGUMENTS:
            hint = f"Arguments: {format_names(DOCUMENT_ARGUMENTS)}."
            message = f"the meaning of the argument {self.documents_argument!r} is not known."
            raise ConfigError.at("--call documents", "unknown_documents_argument", message, hint)
        reads_tokens = bool(self.arguments) and self.arguments[0] in TOKEN_ARGUMENTS
        self.reads_tokens = reads_tokens if options.input == AUTO else options.input == "tokens"
        if self.reads_tokens:
            self.size = options.vocabulary or self.find_setting("vocabulary", VOCABULARY_SETTINGS)
        else:
            self.size = options.width or self.find_setting("width", WIDTH_SETTINGS)

    def find_argument(self, capability: str, given: str, known_names: tuple[str, ...]) -> str:
        """Return the name of an argument of forward; note why the target has none."""
        detected = next((name for name in known_names if name in self.arguments), "")
        if given not in (AUTO, "") and given not in self.arguments:
            message = f"forward has no argument {given!r}."
            hint = f"Arguments: {format_names(self.arguments)}."
            raise ConfigError.at(f"--call {capability}", "unknown_forward_argument", message, hint)
        argument = detected if given == AUTO else given
        if not argument:
            self.missing[capability] = f"forward has no argument for {capability}"
        return argument

    def find_setting(self, option: str, names: tuple[str, ...]) -> int:
        """Return the first of these settings that was given or has a default."""
        parameters = inspect.signature(self.factory).parameters
        for name in names:
            default = parameters[name].default if name in parameters else None
            if isinstance(value := self.settings.get(name, default), int):
                return value
        message = f"the {option} of the input is not known."
        raise ConfigError.at("--call", "unknown_module_size", message, f"Give it with `--call {option}=N`.")

    def build(self, seed: int) -> nn.Module:
        with fixed_seed(seed):
            return self.factory(**self.settings)

    def draw_inputs(self, rows: int, tokens: int, seed: int = 0) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        if self.reads_tokens:
            return {"x": torch.randint(self.size, (rows, tokens), generator=generator)}
        return {"x": torch.randn(rows, tokens, self.size, generator=generator, dtype=torch.float64)}

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
        arguments: dict[str, Any] = {}
        if self.cache_argument and (keeps_cache or cache is not None):
            arguments[self.cache_argument] = cache if cache is not None else self.make_cache()
            if "use_cache" in self.arguments:
                arguments["use_cache"] = True
        if mask is not None:
            arguments[self.mask_argument] = mask
        if document_lengths is not None:
            arguments[self.documents_argument] = encode_documents(self.documents_argument, document_lengths)
        result = module(inputs["x"], **arguments)
        return RunResult(self.find_output(result), self.find_cache(result))

    def make_cache(self) -> Any:
        """Return an empty cache."""
        if isinstance(self.options.new_cache, str):
            from hqlt_lab.check.modules.target import import_object

            return import_object(self.options.new_cache, "--call new_cache")()
        return self.options.new_cache() if self.options.new_cache else None

    def find_output(self, result: Any) -> Tensor:
        for name in ("logits", "last_hidden_state"):
            if hasattr(result, name):
                return getattr(result, name)
        return result if isinstance(result, Tensor) else result[0]

    def find_cache(self, result: Any) -> Any:
        if not self.cache_argument or isinstance(result, Tensor):
            return None
        if hasattr(result, self.cache_argument):
            return getattr(result, self.cache_argument)
        return result[-1] if isinstance(result, tuple | list) and len(result) > 1 else None

    def list_state_tensors(self, cache: Any) -> list[Tensor]:
        return [] if self.options.cache_grows else super().list_state_tensors(cache)

    def save_and_load(self, module: nn.Module, seed: int) -> nn.Module:
        file = BytesIO()
        torch.save(module.state_dict(), file)
        file.seek(0)
        loaded = self.build(seed).to(next((parameter.dtype for parameter in module.parameters()), torch.float32))
        loaded.load_state_dict(torch.load(file, weights_only=True))
        return loaded.eval()


def encode_documents(argument: str, lengths: list[int]) -> Tensor:
    """Return the boundaries, the numbers or the starts of the documents of one row."""
    numbers = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[None]
    if argument == "cu_seqlens":
        return torch.tensor([0, *lengths]).cumsum(0)
    if argument == "seq_idx":
        return numbers.int()
    return torch.cat([torch.ones_like(numbers[:, :1]), numbers.diff()], 1).bool()
