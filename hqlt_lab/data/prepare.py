"""Prepare data: tokenize documents into chunks in parallel, concatenate chunks into shards, then write the index.

Every step writes its result atomically and is skipped if the result exists.  The same command therefore resumes after
a kill at any moment, and the final files are byte-identical.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice, takewhile
from pathlib import Path

from hqlt_lab.data.corpus_index import CorpusIndex, read_index
from hqlt_lab.data.pipeline.chunks import (
    ChunkStats,
    assign_split,
    chunk_file,
    is_text,
    load_chunk_stats,
    parse_chunk_stats,
    split_into_chunks,
)
from hqlt_lab.data.pipeline.folder_lock import claim_folder, lock_folder, remove_partial_files
from hqlt_lab.data.pipeline.tokenize_pool import TokenizeJob, tokenize_chunks
from hqlt_lab.data.pipeline.write_shards import sum_split_contents, write_index, write_shards
from hqlt_lab.data.prepare_options import PrepareRequest
from hqlt_lab.data.sources._base import Document, Source
from hqlt_lab.data.sources.source_by_name import open_source
from hqlt_lab.data.tokenizers.load_tokenizer import Tokenizer, create_tokenizer, load_tokenizer
from hqlt_lab.errors import ConfigError
from hqlt_lab.files import read_json, write_atomic

# current step, and the statistics of a chunk that was just finished
ProgressCallback = Callable[[str, ChunkStats | None], None]


def prepare_data(
    request: PrepareRequest, folder: Path, workers: int, on_progress: ProgressCallback = lambda *_: None
) -> CorpusIndex:
    """Prepare the requested data in a folder, or resume an interrupted preparation."""
    source = open_source(request)
    with lock_folder(folder):
        claim_folder(folder, source.description, request.build_options)
        remove_partial_files(folder)
        if not (folder / "index.json").exists():
            on_progress("training the tokenizer", None)
            tokenizer = load_or_create_tokenizer(folder, request, source)
            chunk_stats = tokenize_all_chunks(folder, request, source, workers, on_progress)
            on_progress("writing shards", None)
            write_shards(folder, chunk_stats, request.shard_tokens)
            write_index(folder, request, source, tokenizer, chunk_stats)
        shutil.rmtree(folder / "work", ignore_errors=True)
    return read_index(folder)


def load_or_create_tokenizer(folder: Path, request: PrepareRequest, source: Source) -> Tokenizer:
    """Load the tokenizer saved in the folder, or create and save the requested one."""
    saved, temporary = folder / "tokenizer", folder / "work" / "tokenizer"
    if not saved.exists():
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        create_tokenizer(request.tokenizer, request.vocabulary, training_texts(request, source)).save(temporary)
        temporary.rename(saved)
    return load_tokenizer(request.tokenizer, saved)


def training_texts(request: PrepareRequest, source: Source) -> Iterator[bytes]:
    """Yield the texts of the train split."""
    for document in requested_documents(request, source, 0):
        if isinstance(document, str) or not is_text(document, Counter()):
            continue
        if assign_split(document, request.valid, request.test) == "train":
            yield document


def requested_documents(request: PrepareRequest, source: Source, first: int) -> Iterator[Document]:
    """Iterate over the source from document `first` on, up to the requested limit."""
    remaining = None if request.limit_documents is None else max(0, request.limit_documents - first)
    return islice(source.iterate_documents(first), remaining)


def tokenize_all_chunks(
    folder: Path, request: PrepareRequest, source: Source, workers: int, on_progress: ProgressCallback
) -> list[ChunkStats]:
    """Tokenize the missing chunks and return the statistics of all.  They are saved once the last chunk exists."""
    work, stats_file = folder / "work", folder / "work" / "chunk_stats.json"
    if stats_file.exists():
        return [parse_chunk_stats(fields) for fields in read_json(stats_file, list)]
    chunk_stats = []
    for stats in iterate_chunk_stats(folder, request, source, workers):
        chunk_stats.append(stats)
        on_progress("tokenizing", stats)
    if not sum_split_contents(chunk_stats, "train").documents:
        for unfinished in (folder / "tokenizer", work):  # so that the folder can be used for another source
            shutil.rmtree(unfinished, ignore_errors=True)
        message = f"{request.source} has no document to train on. {describe_skipped(chunk_stats)}"
        raise ConfigError.at("source", "no_documents", message)
    write_atomic(stats_file, json.dumps(chunk_stats))
    return chunk_stats


def iterate_chunk_stats(folder: Path, request: PrepareRequest, source: Source, workers: int) -> Iterator[ChunkStats]:
    """Yield the statistics of the existing chunks, then of the others as they are tokenized.

    Documents of existing chunks are not read again.
    """
    files = (chunk_file(folder / "work", number) for number in count())
    existing: list[ChunkStats] = [stats for stats in takewhile(bool, map(load_chunk_stats, files)) if stats]
    yield from existing
    documents = requested_documents(request, source, sum(stats.documents_read for stats in existing))
    job = TokenizeJob(folder, request.tokenizer, request.valid, request.test)
    yield from tokenize_chunks(enumerate(split_into_chunks(documents), len(existing)), job, workers)


def describe_skipped(chunk_stats: Sequence[ChunkStats]) -> str:
    """Describe how many documents were read, and how many were skipped for which reason."""
    skipped = sum((Counter(stats.skipped) for stats in chunk_stats), Counter())
    reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(skipped.items()))
    documents_read = sum(stats.documents_read for stats in chunk_stats)
    return f"Documents read: {documents_read}. Skipped: {reasons or 'none'}."
