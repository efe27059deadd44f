"""Finds a target by its name, `package.module:Name`, and the adapter that can call it."""

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from hqlt_lab.check.modules.adapter_interface import Adapter
from hqlt_lab.check.modules.call_options import CallOptions
from hqlt_lab.check.modules.causal_lm_adapter import CausalLMAdapter
from hqlt_lab.check.modules.function_adapter import FunctionAdapter
from hqlt_lab.check.modules.layer_adapter import LayerAdapter
from hqlt_lab.errors import ConfigError, did_you_mean


def make_adapter(target: str | Callable[..., Any], settings: Mapping[str, Any], options: CallOptions) -> Adapter:
    """Return the adapter for a class or a function, given as an object or as package.module:Name."""
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    found = import_object(target, "target") if isinstance(target, str) else target
    if not callable(found) or isinstance(found, nn.Module):
        message = f"{name} is a {type(found).__name__}, but a class or a function is needed."
        raise ConfigError.at("target", "target_not_callable", message)
    try:
        inspect.signature(found)
    except ValueError as error:
        hint = "Write a function that calls it."
        raise ConfigError.at("target", "target_without_signature", f"{name} has no signature.", hint) from error
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        return FunctionAdapter(found, name, settings, options)
    is_language_model = hasattr(found, "config_class") and hasattr(found, "from_pretrained")
    return (CausalLMAdapter if is_language_model else LayerAdapter)(found, name, settings, options)


def import_object(name: str, path: str) -> Any:
    """Import package.module:Name; modules in the working directory are found too."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not attribute:
        message = f"{name!r} is not package.module:Name."
        raise ConfigError.at(path, "invalid_target_name", message, "Example: transformers:BambaForCausalLM.")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fla warns that there is no GPU
            module = importlib.import_module(module_name)
            if hasattr(module, attribute):  # transformers imports a model here
                return getattr(module, attribute)
    except ImportError as error:
        raise ConfigError.at(path, "target_not_importable", f"{module_name} cannot be imported: {error}.") from error
    finally:
        sys.path.remove(folder)
    hint = did_you_mean(attribute, [name for name in dir(module) if not name.startswith("_")])
    raise ConfigError.at(path, "target_not_found", f"{module_name} has no {attribute!r}.", hint)
