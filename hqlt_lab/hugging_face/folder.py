"""What an export is: a folder with these files; nothing heavy is needed to know one.

config.json             the composition, and where it comes from
model.safetensors       the weights
generation_config.json  what transformers' generate begins and ends with
tokenizer.json, ...     for AutoTokenizer
encoder/                the same tokenizer as the lab keeps it, for the lab
README.md               what it is
"""

import json
from pathlib import Path
from typing import Any

from hqlt_lab.errors import StoreError, listed

MODEL_TYPE = "hqlt"
CONFIG, WEIGHTS, ENCODER = "config.json", "model.safetensors", "encoder"
NEEDED = {
    "composition": dict,
    "encoder": str,
    "encoder_vocabulary": int,
    "bos_token_id": int,
    "max_position_embeddings": int,
}


def is_export(folder: Path | str) -> bool:
    """Whether this is a folder of a model of ours for transformers; it may yet be damaged."""
    try:
        return json.loads((Path(folder) / CONFIG).read_text()).get("model_type") == MODEL_TYPE
    except (OSError, ValueError, AttributeError):
        return False


def read_config(folder: Path) -> dict[str, Any]:
    """What `config.json` says, of a folder that has all that is needed."""
    if not is_export(folder):
        raise StoreError(f"{folder}: this is no export; there is no {CONFIG} with the model_type {MODEL_TYPE!r}.")
    told = json.loads((folder / CONFIG).read_text())
    wrong = [name for name, kind in NEEDED.items() if not isinstance(told.get(name), kind)]
    if wrong:
        raise StoreError(f"{folder / CONFIG}: it does not say {listed(wrong)}. Export the model again.")
    if not (folder / WEIGHTS).is_file():
        pickled = listed(sorted(file.name for file in folder.glob("*.bin")))
        told_of = "" if pickled == "none" else f" There is {pickled}, which may run code when it is read, so it is not."
        raise StoreError(f"{folder}: there is no {WEIGHTS}.{told_of} Export the model again.")
    return told
