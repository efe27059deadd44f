"""How fast text becomes tokens, and tokens batches.

    prepare    megabytes of text per second, from files to an index, processes started and checksums taken
    windows    milliseconds per batch of 16 windows of 2,048 tokens, read as training does, in a shuffled order

Of all turns the best counts.  The text is the standard library, some times over, in files of a megabyte.

    python benchmarks/data_speed.py [tokenizer ...]
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from hqlt_lab.data.corpus import Corpus, open_corpus
from hqlt_lab.data.prepare import prepare
from hqlt_lab.data.request import Request
from hqlt_lab.data.sources.choose import open_source
from hqlt_lab.train.heap import keep_freed_memory

TURNS, SIZES, WORKERS = 3, {"bytes": 200_000_000}, 2
OTHERS = 10_000_000  # bytes of text for a tokenizer that looks things up


def write_text(folder: Path, size: int) -> None:
    """So much of the standard library, over and over."""
    library = b"\n".join(text for text in open_source(Request(source="python")).documents() if isinstance(text, bytes))
    folder.mkdir()
    whole = library * (size // len(library) + 1)
    for number, first in enumerate(range(0, size, 1_000_000)):
        text = whole[first : first + 1_000_000].decode(errors="ignore")
        (folder / f"{number:05}.txt").write_bytes(text.encode())


def prepared(text: Path, into: Path, tokenizer: str) -> float:
    """Seconds it takes."""
    before = time.perf_counter()
    prepare(Request(source=str(text), tokenizer=tokenizer), into, WORKERS)
    return time.perf_counter() - before


def batch_time(corpus: Corpus, batches: int = 200) -> float:
    """Seconds per batch."""
    before = time.perf_counter()
    for step in range(batches):
        corpus.windows("train", 0, 16 * step, 16, 2048)
    return (time.perf_counter() - before) / batches


def measure(tokenizer: str) -> None:
    size = SIZES.get(tokenizer, OTHERS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "text", size)
        seconds = min(prepared(folder / "text", folder / f"into{turn}", tokenizer) for turn in range(TURNS))
        corpus = open_corpus(folder / "into0")
        batch = min(batch_time(corpus) for _ in range(TURNS))
    speed = {"megabytes_per_second": round(size / 1e6 / seconds, 1), "batch_ms": round(1000 * batch, 3)}
    print(json.dumps({"tokenizer": tokenizer, "workers": WORKERS, "megabytes": size // 10**6, **speed}))


if __name__ == "__main__":
    keep_freed_memory()
    for tokenizer in sys.argv[1:] or ["bytes", "bpe", "mistral"]:
        measure(tokenizer)
