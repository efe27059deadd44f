"""Parse settings dataclasses from mappings and check their types and values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, TypeVar, get_type_hints

from hqlt_lab.errors import ConfigError, ConfigIssue, did_you_mean, format_names, join_sentences
from hqlt_lab.registry.options import format_type, matches_type, suggest_integer

Settings = TypeVar("Settings")
# the name of a setting or option -> what other libraries call it
NAMES_ELSEWHERE = {
    "lr": ("learning_rate", "max_lr"),
    "batch_size": ("batch", "bs", "train_batch_size", "per_device_train_batch_size"),
    "accumulate": ("gradient_accumulation_steps", "accumulate_grad_batches"),
    "steps": ("max_steps", "num_steps", "total_steps", "iterations", "max_iters"),
    "warmup": ("warmup_steps", "num_warmup_steps"),
    "schedule": ("lr_schedule", "lr_scheduler", "lr_scheduler_type"),
    "betas": ("beta1", "beta2", "adam_beta1", "adam_beta2"),
    "weight_decay": ("wd",),
    "clip": ("grad_clip", "gradient_clip_val", "max_grad_norm"),
    "layers": ("num_layers", "n_layers", "n_layer", "num_hidden_layers", "depth"),
    "heads": ("num_heads", "n_heads", "n_head", "num_attention_heads"),
    "width": ("hidden_size", "hidden_dim", "d_model", "dim", "n_embd", "embed_dim"),
    "mlp_width": ("d_ff", "ffn_dim", "intermediate_size"),
    "dropout": ("dropout_p", "dropout_rate", "p_dropout"),
    "short_conv": ("conv_size", "d_conv", "use_short_conv"),
    "window": ("window_size", "sliding_window"),
    "vocabulary": ("vocab_size",),
    "vocabulary_size": ("vocab_size",),
    "devices": ("gpus", "num_gpus"),
    "nodes": ("num_nodes",),
}


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Return "Did you mean '...'?" with the one of these names that means the same or is closest, or ""."""
    valid_names = list(names)
    synonyms = [valid for valid in valid_names if str(name).lower() in NAMES_ELSEWHERE.get(valid, ())]
    return f"Did you mean '{synonyms[0]}'?" if synonyms else did_you_mean(name, valid_names)


class SettingsError(ConfigError):
    """Invalid settings. `independent_issues` are those that do not depend on other settings."""

    independent_issues: tuple[ConfigIssue, ...] = ()


def raise_if_invalid(independent_issues: Sequence[ConfigIssue], combined_issues: Sequence[ConfigIssue] = ()) -> None:
    """Raise SettingsError if there are issues of single settings, or of settings in combination with others."""
    if independent_issues or combined_issues:
        error = SettingsError(*independent_issues, *combined_issues)
        error.independent_issues = tuple(independent_issues)
        raise error


def parse_settings(settings_type: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Build the dataclass from a mapping. Report unknown names, wrong types and invalid values in one ConfigError."""
    types = field_types(settings_type)  # type: ignore[arg-type]  # a class has a hash
    issues = [
        ConfigIssue(
            name,
            "unknown_setting",
            "there is no such setting.",
            join_sentences(suggest_name(name, types), f"Settings: {format_names(types)}."),
        )
        for name in values
        if name not in types
    ]
    well_typed = {name: value for name, value in values.items() if name in types and matches_type(value, types[name])}
    issues += [
        ConfigIssue(
            name,
            "setting_of_wrong_type",
            f"{format_type(types[name])} is needed, got {value!r}.",
            suggest_integer(value, types[name]),
        )
        for name, value in values.items()
        if name in types and name not in well_typed
    ]
    if issues:
        raise ConfigError(*issues, *find_value_issues(settings_type, well_typed))
    return settings_type(**values)


def required_settings(settings_type: type) -> list[str]:
    """Return the names of the settings without a default."""
    return [field.name for field in fields(settings_type) if field.default is MISSING]


def parse_nested(
    settings_type: type[Settings], settings: Any, location: str
) -> tuple[Settings | None, list[ConfigIssue]]:
    """Return settings inside of a section, None if they are invalid, and their issues."""
    if not isinstance(settings, Mapping):
        message = f"a mapping of settings is needed, got {settings!r}."
        return None, [ConfigIssue(location, "not_a_mapping_of_settings", message)]
    missing = [name for name in required_settings(settings_type) if name not in settings]
    if missing:
        return None, [ConfigIssue(location, "missing_setting", f"{format_names(missing)} must be set.")]
    try:
        return parse_settings(settings_type, settings), []
    except ConfigError as error:
        return None, [issue.under(location) for issue in error.issues]


def find_value_issues(settings_type: Callable[..., Any], valid_values: Mapping[str, Any]) -> Sequence[ConfigIssue]:
    """Return the issues of these values that hold whatever the values of the omitted settings are."""
    try:
        settings_type(**valid_values)
    except SettingsError as error:
        return error.independent_issues
    except ConfigError as error:
        return error.issues
    except TypeError:  # a required setting is missing
        return []
    return []


@cache
def field_types(settings_type: Any) -> Mapping[str, Any]:
    """Return the types of the fields of a settings class. Cached."""
    return get_type_hints(settings_type)


def check_maximums(settings: Any, maximums: Mapping[str, int]) -> list[ConfigIssue]:
    """Return one issue for each setting above its maximum."""
    return [
        ConfigIssue(name, "above_maximum", f"at most {maximum:,} is allowed, got {getattr(settings, name):,}.")
        for name, maximum in maximums.items()
        if getattr(settings, name) is not None and getattr(settings, name) > maximum
    ]


def check_minimums(settings: Any, minimums: Mapping[str, float]) -> list[ConfigIssue]:
    """Return one issue for each setting below its minimum."""
    return [
        ConfigIssue(name, "below_minimum", f"at least {minimum} is needed, got {getattr(settings, name)}.")
        for name, minimum in minimums.items()
        if getattr(settings, name) is not None and getattr(settings, name) < minimum
    ]
