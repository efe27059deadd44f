"""Speed of tokenizing text, and of reading batches of tokens.

    prepare    megabytes of text per second, from files to an index, including process start and checksums
    windows    milliseconds per batch of 16 windows of 2,048 tokens, read in shuffled order as in training

The best of several rounds counts.  The text is the Python standard library, repeated, in files of one megabyte.

    python benchmarks/data_speed.py [tokenizer ...]
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from hqlt_lab.data.corpus_reader import Corpus, open_corpus
from hqlt_lab.data.prepare import prepare_data
from hqlt_lab.data.prepare_options import PrepareRequest
from hqlt_lab.data.sources.source_by_name import open_source
from hqlt_lab.process_settings import disable_malloc_trim

ROUNDS, SIZES, WORKERS = 3, {"bytes": 200_000_000}, 2
DEFAULT_BYTES = 10_000_000  # for tokenizers other than "bytes", which are slower


def write_text(folder: Path, size: int) -> None:
    """Write this many bytes of the standard library, repeated, to files of one megabyte."""
    library = b"\n".join(
        text for text in open_source(PrepareRequest(source="python")).iterate_documents() if isinstance(text, bytes)
    )
    folder.mkdir()
    content = library * (size // len(library) + 1)
    for number, first in enumerate(range(0, size, 1_000_000)):
        text = content[first : first + 1_000_000].decode(errors="ignore")
        (folder / f"{number:05}.txt").write_bytes(text.encode())


def measure_prepare(text: Path, folder: Path, tokenizer: str) -> float:
    """Return the seconds for preparing a text."""
    start = time.perf_counter()
    prepare_data(PrepareRequest(source=str(text), tokenizer=tokenizer), folder, WORKERS)
    return time.perf_counter() - start


def measure_batch(corpus: Corpus, batches: int = 200) -> float:
    """Return the seconds per batch."""
    start = time.perf_counter()
    for step in range(batches):
        corpus.read_windows("train", 0, 16 * step, 16, 2048)
    return (time.perf_counter() - start) / batches


def measure_tokenizer(tokenizer: str) -> None:
    size = SIZES.get(tokenizer, DEFAULT_BYTES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "text", size)
        seconds = min(measure_prepare(folder / "text", folder / f"data{i}", tokenizer) for i in range(ROUNDS))
        corpus = open_corpus(folder / "data0")
        batch_seconds = min(measure_batch(corpus) for _ in range(ROUNDS))
    speed = {"megabytes_per_second": round(size / 1e6 / seconds, 1), "batch_ms": round(1000 * batch_seconds, 3)}
    print(json.dumps({"tokenizer": tokenizer, "workers": WORKERS, "megabytes": size // 10**6, **speed}))


if __name__ == "__main__":
    disable_malloc_trim()
    for tokenizer in sys.argv[1:] or ["bytes", "bpe", "mistral"]:
        measure_tokenizer(tokenizer)
