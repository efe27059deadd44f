"""A small text that is made here, prepared as any other."""

import json
import random
from pathlib import Path

from hqlt_lab.data.prepare import prepare
from hqlt_lab.data.request import Request

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


def prepared(folder: Path, documents: int = 300) -> Path:
    """Documents of 5 to 40 words, as bytes."""
    draw, source = random.Random(0), folder.with_suffix(".jsonl")
    folder.parent.mkdir(parents=True, exist_ok=True)
    texts = (" ".join(draw.choices(WORDS, k=draw.randint(5, 40))) for _ in range(documents))
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    prepare(Request(source=str(source), tokenizer="bytes", valid=0.1, test=0.1), folder, workers=1)
    return folder
