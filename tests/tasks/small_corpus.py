"""A small random text, prepared as data for tests."""

import json
import random
from pathlib import Path

from hqlt_lab.data.prepare import prepare_data
from hqlt_lab.data.prepare_options import PrepareRequest

WORDS = [
    "the",
    "memory",
    "holds",
    "what",
    "a",
    "key",
    "has",
    "written",
    "and",
    "reads",
    "it",
    "back",
    "when",
    "the",
    "same",
    "key",
    "is",
    "asked",
    "for",
    "again",
]


def prepare_small_corpus(folder: Path, documents: int = 300) -> Path:
    """Prepare documents of 5 to 40 random words as bytes, and return the folder."""
    rng, source = random.Random(0), folder.with_suffix(".jsonl")
    folder.parent.mkdir(parents=True, exist_ok=True)
    texts = (" ".join(rng.choices(WORDS, k=rng.randint(5, 40))) for _ in range(documents))
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    prepare_data(PrepareRequest(source=str(source), tokenizer="bytes", valid=0.1, test=0.1), folder, workers=1)
    return folder
