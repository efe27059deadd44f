"""Files of an export folder, and checks that do not import torch or transformers.

config.json             the composition of the model, and the cell and data that it comes from
model.safetensors       the weights
generation_config.json  special tokens for transformers' generate
tokenizer.json, ...     tokenizer for AutoTokenizer
encoder/                the same tokenizer in our own format
README.md               model card
"""

from pathlib import Path
from typing import Any

from hqlt_lab.errors import StoreError, format_names
from hqlt_lab.files import read_json

MODEL_TYPE = "hqlt"
CONFIG_FILE, WEIGHTS_FILE, ENCODER_FOLDER = "config.json", "model.safetensors", "encoder"
REQUIRED_KEYS = {
    "composition": dict,
    "encoder": str,
    "encoder_vocabulary": int,
    "bos_token_id": int,
    "max_position_embeddings": int,
}


def is_export(folder: Path | str) -> bool:
    """Return whether a folder is an export of one of our models; it may still be damaged."""
    try:
        return bool(read_json(Path(folder) / CONFIG_FILE, dict).get("model_type") == MODEL_TYPE)
    except (OSError, StoreError):
        return False


def read_config(folder: Path) -> dict[str, Any]:
    """Return the contents of `config.json`; raise unless the folder has everything that is needed to load the model."""
    if not is_export(folder):
        raise StoreError(
            f"{folder}: this is not an export of hqlt_lab: there is no {CONFIG_FILE} with model_type {MODEL_TYPE!r}."
        )
    config = read_json(folder / CONFIG_FILE, dict)
    missing = [name for name, kind in REQUIRED_KEYS.items() if not isinstance(config.get(name), kind)]
    if missing:
        raise StoreError(f"{folder / CONFIG_FILE}: keys are missing: {format_names(missing)}. Export the model again.")
    if not (folder / WEIGHTS_FILE).is_file():
        pickled = format_names(sorted(file.name for file in folder.glob("*.bin")))
        hint = "" if pickled == "none" else f" {pickled} is not read, because a pickle can run code."
        raise StoreError(f"{folder}: there is no {WEIGHTS_FILE}.{hint} Export the model again.")
    return config
