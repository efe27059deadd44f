"""Pieces: some megabytes of documents, tokenised in one go and kept; what is not kept yet is what a kill costs.

Where pieces are cut depends on the source alone, and a piece on its documents alone: nobody sees who made it, or when.

    NUMBER.piece    tokens and starts of each split, and a tally of what was read; a numpy archive
"""

import json
import os
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hqlt_lab.data.encoders._base import Encoder, Ids
from hqlt_lab.data.index import SPLITS, Contents, Split
from hqlt_lab.data.sources._base import Document
from hqlt_lab.files import put

PIECE = 4_000_000  # bytes of text
NO_UTF8, EMPTY, INSIDE = "documents that are not UTF-8", "empty documents", "separators inside documents"


class Tally(NamedTuple):
    """What a piece is made of."""

    read: int  # documents, also those that were skipped
    splits: dict[Split, Contents]
    skipped: dict[str, int]


class Piece(NamedTuple):
    """Tokens and starts of each split, and what they are made of."""

    tally: Tally
    arrays: dict[str, NDArray[Any]]


def cut(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Documents in pieces of at least so many bytes."""
    piece: list[Document] = []
    size = 0
    for document in documents:
        piece.append(document)
        size += len(document)
        if size >= PIECE:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def split_of(text: bytes, valid: float, test: float) -> Split:
    """Held out or not: a hash of the text decides, so that copies of a document stand in the same split."""
    drawn = int.from_bytes(blake2b(text, digest_size=8).digest(), "little") / 2**64
    return "test" if drawn < test else "valid" if drawn < test + valid else "train"


def tokenise(documents: Sequence[Document], encoder: Encoder, valid: float, test: float) -> Piece:
    """All that is kept of some documents."""
    skipped: Counter[str] = Counter()
    texts = [text for text in documents if isinstance(text, bytes) and is_text(text, skipped)]
    skipped.update(reason for reason in documents if isinstance(reason, str))
    encoded = without(encoder.separator, encoder.encode(texts), skipped)
    chosen = [split_of(text, valid, test) for text in texts]
    arrays: dict[str, NDArray[Any]] = {}
    contents: dict[Split, Contents] = {}
    for split in SPLITS:
        mine = [ids for ids, its in zip(encoded, chosen, strict=True) if its == split]
        size = sum(len(text) for text, its in zip(texts, chosen, strict=True) if its == split)
        tokens, starts = joined(mine, encoder)
        arrays |= {f"{split}.tokens": tokens, f"{split}.starts": starts}
        contents[split] = Contents(len(mine), len(tokens), size)
    return Piece(Tally(len(documents), contents, dict(sorted(skipped.items()))), arrays)


def is_text(document: bytes, skipped: Counter[str]) -> bool:
    """Whether there is something to read; if not, why not is counted."""
    try:
        if document.decode().strip():
            return True
        skipped[EMPTY] += 1
    except UnicodeDecodeError:
        skipped[NO_UTF8] += 1
    return False


def without(separator: int, encoded: list[Ids], skipped: Counter[str]) -> list[Ids]:
    """A separator stands before documents and nowhere else; one that a tokenizer finds in a text is left out."""
    inside = sum(int(np.count_nonzero(ids == separator)) for ids in encoded)
    if not inside:
        return encoded
    skipped[INSIDE] += inside
    return [ids[ids != separator] for ids in encoded]


def joined(encoded: Sequence[Ids], encoder: Encoder) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """One document after the other, each behind a separator; and where they begin."""
    ends = np.cumsum([len(ids) + 1 for ids in encoded], dtype=np.int64)
    starts = np.concatenate([[0], ends[:-1]]) if encoded else ends
    tokens = np.empty(ends[-1] if encoded else 0, dtype=dtype_of(encoder))
    tokens[starts] = encoder.separator
    for ids, start, end in zip(encoded, starts.tolist(), ends.tolist(), strict=True):
        tokens[start + 1 : end] = ids
    return tokens, starts


def dtype_of(encoder: Encoder) -> str:
    return "uint16" if encoder.vocabulary <= 1 << 16 else "uint32"


def piece_file(work: Path, number: int) -> Path:
    return work / f"{number:07}.piece"


def keep(file: Path, piece: Piece) -> None:
    """Write a piece, whole or not at all."""
    # a name of our own: who was killed may leave a process that still writes the same piece
    written = file.with_suffix(f".{os.getpid()}.writing")
    with written.open("wb") as handle:
        arrays: dict[str, Any] = {**piece.arrays, "tally": np.array(json.dumps(piece.tally))}
        np.savez(handle, **arrays)
    put(written, file)


def tally_of(file: Path) -> Tally | None:
    """What a piece that is done is made of; None where there is none, or the disk kept only half of it."""
    try:
        # opened here, as numpy would leave a file open that is cut off
        with file.open("rb") as handle, np.load(handle) as piece:
            return as_tally(json.loads(str(piece["tally"])))
    except (FileNotFoundError, zipfile.BadZipFile, ValueError, KeyError, EOFError):
        return None


def as_tally(told: Sequence[Any]) -> Tally:
    read, splits, skipped = told
    return Tally(read, {split: Contents(*one) for split, one in splits.items()}, skipped)
