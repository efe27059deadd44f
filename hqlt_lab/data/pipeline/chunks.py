"""Chunks: a few megabytes of documents, tokenized together and saved.  A kill loses only unfinished chunks.

Chunk boundaries depend only on the source, and a chunk's content only on its documents, so the result is independent
of the number of workers and of restarts.

    NUMBER.chunk    tokens and document starts of each split, and statistics; a numpy archive
"""

import json
import os
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hqlt_lab.data.corpus_index import SPLITS, Split, SplitContents
from hqlt_lab.data.sources._base import Document
from hqlt_lab.data.tokenizers._base import TokenIds, Tokenizer
from hqlt_lab.files import commit_temp, decode_json
from hqlt_lab.hashing import derive_words

CHUNK_BYTES = 4_000_000  # minimum size of the text of a chunk
INVALID_UTF8 = "documents that are not UTF-8"
EMPTY_DOCUMENT = "empty documents"
SEPARATOR_INSIDE = "separators inside documents"


class ChunkStats(NamedTuple):
    """Statistics of a chunk."""

    documents_read: int  # including skipped ones
    splits: dict[Split, SplitContents]
    skipped: dict[str, int]  # counts by reason


class Chunk(NamedTuple):
    """Tokens and document starts of each split, with statistics."""

    stats: ChunkStats
    arrays: dict[str, NDArray[Any]]


def split_into_chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Group documents into chunks of at least `CHUNK_BYTES`."""
    chunk: list[Document] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += len(document)
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def assign_split(text: bytes, valid: float, test: float) -> Split:
    """Assign a UTF-8 document to a split by a hash of its text without white space.

    So copies of a document are in the same split, also if they are wrapped or indented differently.
    """
    without_white_space = "".join(text.decode().split())
    fraction = int.from_bytes(derive_words(without_white_space.encode()), "little") / 2**64
    return "test" if fraction < test else "valid" if fraction < test + valid else "train"


def tokenize_documents(documents: Sequence[Document], tokenizer: Tokenizer, valid: float, test: float) -> Chunk:
    """Tokenize documents and group them by split."""
    skipped: Counter[str] = Counter()
    texts = [text for text in documents if isinstance(text, bytes) and is_text(text, skipped)]
    skipped.update(reason for reason in documents if isinstance(reason, str))
    encoded = strip_separators(tokenizer.separator, tokenizer.encode(texts), skipped)
    assigned = [assign_split(text, valid, test) for text in texts]
    arrays: dict[str, NDArray[Any]] = {}
    contents: dict[Split, SplitContents] = {}
    for split in SPLITS:
        members = [ids for ids, name in zip(encoded, assigned, strict=True) if name == split]
        size = sum(len(text) for text, name in zip(texts, assigned, strict=True) if name == split)
        tokens, starts = concatenate_documents(members, tokenizer)
        arrays |= {f"{split}.tokens": tokens, f"{split}.starts": starts}
        contents[split] = SplitContents(len(members), len(tokens), size)
    return Chunk(ChunkStats(len(documents), contents, dict(sorted(skipped.items()))), arrays)


def is_text(document: bytes, skipped: Counter[str]) -> bool:
    """Return whether a document is nonempty UTF-8 text; otherwise count the reason in `skipped`."""
    try:
        if document.decode().strip():
            return True
        skipped[EMPTY_DOCUMENT] += 1
    except UnicodeDecodeError:
        skipped[INVALID_UTF8] += 1
    return False


def strip_separators(separator: int, encoded: list[TokenIds], skipped: Counter[str]) -> list[TokenIds]:
    """Remove and count separators that the tokenizer produced inside documents: only document starts have them."""
    inside = sum(int(np.count_nonzero(ids == separator)) for ids in encoded)
    if not inside:
        return encoded
    skipped[SEPARATOR_INSIDE] += inside
    return [ids[ids != separator] for ids in encoded]


def concatenate_documents(encoded: Sequence[TokenIds], tokenizer: Tokenizer) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Concatenate documents, each preceded by a separator.  Returns the tokens and the document starts."""
    ends = np.cumsum([len(ids) + 1 for ids in encoded], dtype=np.int64)
    starts = np.concatenate([[0], ends[:-1]]) if encoded else ends
    tokens = np.empty(ends[-1] if encoded else 0, dtype=token_dtype(tokenizer))
    tokens[starts] = tokenizer.separator
    for ids, start, end in zip(encoded, starts.tolist(), ends.tolist(), strict=True):
        tokens[start + 1 : end] = ids
    return tokens, starts


def token_dtype(tokenizer: Tokenizer) -> str:
    return "uint16" if tokenizer.vocabulary <= 1 << 16 else "uint32"


def chunk_file(work: Path, number: int) -> Path:
    return work / f"{number:07}.chunk"


def save_chunk(file: Path, chunk: Chunk) -> None:
    """Write a chunk atomically."""
    # the process id avoids clashes: a worker of a killed parent may still be writing the same chunk
    temp_file = file.with_suffix(f".{os.getpid()}.writing")
    with temp_file.open("wb") as handle:
        arrays: dict[str, Any] = {**chunk.arrays, "stats": np.array(json.dumps(chunk.stats))}
        np.savez(handle, **arrays)
    commit_temp(temp_file, file)


def load_chunk_stats(file: Path) -> ChunkStats | None:
    """Return the statistics of a finished chunk, or None if the file is missing or truncated."""
    try:
        # opened here, because np.load does not close a truncated file
        with file.open("rb") as handle, np.load(handle) as arrays:
            return parse_chunk_stats(decode_json(str(arrays["stats"]), list))
    except (FileNotFoundError, zipfile.BadZipFile, ValueError, KeyError, EOFError):
        return None


def parse_chunk_stats(fields: Sequence[Any]) -> ChunkStats:
    documents_read, splits, skipped = fields
    return ChunkStats(documents_read, {split: SplitContents(*counts) for split, counts in splits.items()}, skipped)
