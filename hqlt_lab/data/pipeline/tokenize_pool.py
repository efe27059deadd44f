"""Tokenize chunks in a pool of worker processes, each of which loads the tokenizer once.

Workers exit when the parent process ends, even if it was killed: a thread waits for the parent.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import NamedTuple

from hqlt_lab.data.pipeline.chunks import ChunkStats, chunk_file, load_chunk_stats, save_chunk, tokenize_documents
from hqlt_lab.data.sources._base import Document
from hqlt_lab.data.tokenizers.load_tokenizer import Tokenizer, load_tokenizer
from hqlt_lab.errors import StoreError


class TokenizeJob(NamedTuple):
    """Settings that every worker needs."""

    folder: Path
    tokenizer: str
    valid: float
    test: float


def tokenize_chunks(
    chunks: Iterable[tuple[int, list[Document]]], job: TokenizeJob, workers: int
) -> Iterator[ChunkStats]:
    """Tokenize numbered chunks and yield their statistics in order.

    At most `2 * workers` chunks are queued, which bounds memory use while keeping all workers busy.
    """
    pending: deque[Future[ChunkStats]] = deque()
    # spawn, not fork: the libraries that read documents have threads, which would deadlock after a fork
    with ProcessPoolExecutor(workers, get_context("spawn"), init_worker, (job,)) as pool:
        try:
            for number, documents in chunks:
                pending.append(pool.submit(tokenize_chunk, number, documents))
                if len(pending) > 2 * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool as error:
            raise StoreError(
                f"{job.folder}: a tokenizer process was killed, probably because the machine ran out of memory. Run "
                "the same command again to resume; fewer --workers need less memory."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


worker_context: tuple[TokenizeJob, Tokenizer]  # set in each worker by `init_worker`


def init_worker(job: TokenizeJob) -> None:
    """Initialize a worker process."""
    global worker_context
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    threading.Thread(target=wait_for_parent_then_exit, daemon=True).start()
    worker_context = job, load_tokenizer(job.tokenizer, job.folder / "tokenizer")


def wait_for_parent_then_exit() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)


def tokenize_chunk(number: int, documents: list[Document]) -> ChunkStats:
    """Tokenize and save a chunk, unless its file already exists."""
    job, tokenizer = worker_context
    file = chunk_file(job.folder / "work", number)
    if existing := load_chunk_stats(file):
        return existing
    chunk = tokenize_documents(documents, tokenizer, job.valid, job.test)
    save_chunk(file, chunk)
    return chunk.stats
