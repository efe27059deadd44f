"""Preparing data: documents to pieces in parallel, pieces to shards, and an index when all is there.

Every step is written whole or not at all, and skipped where its result is there: the same command goes on after any
kill, and the end is the same to the last byte.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice, takewhile
from pathlib import Path

from hqlt_lab.data.assemble import assemble
from hqlt_lab.data.claim import begin
from hqlt_lab.data.crew import Craft, made
from hqlt_lab.data.encoders.choose import Encoder, load_encoder, make_encoder
from hqlt_lab.data.finish import total, write_index
from hqlt_lab.data.index import Index, read_index
from hqlt_lab.data.lock import clear, owned
from hqlt_lab.data.pieces import Tally, as_tally, cut, is_text, piece_file, split_of, tally_of
from hqlt_lab.data.request import Request
from hqlt_lab.data.sources._base import Document, Source
from hqlt_lab.data.sources.choose import open_source
from hqlt_lab.errors import ConfigError
from hqlt_lab.files import write

Watch = Callable[[str, Tally | None], None]  # what is being done; of a piece that was just done, what it is made of


def prepare(request: Request, folder: Path, workers: int, watch: Watch = lambda *_: None) -> Index:
    """Make what was requested in a folder, or what is missing of it."""
    source = open_source(request)
    with owned(folder):
        begin(folder, source.description, request.options)
        clear(folder)
        if not (folder / "index.json").exists():
            watch("choosing tokens", None)
            encoder = tokenizer(folder, request, source)
            tallies = all_pieces(folder, request, source, workers, watch)
            watch("writing shards", None)
            assemble(folder, tallies, request.shard_tokens)
            write_index(folder, request, source, encoder, tallies)
        shutil.rmtree(folder / "work", ignore_errors=True)
    return read_index(folder)


def tokenizer(folder: Path, request: Request, source: Source) -> Encoder:
    """The tokenizer of these data: the one that is kept here, or the one that was asked for, which is kept."""
    kept, making = folder / "tokenizer", folder / "work" / "tokenizer"
    if not kept.exists():
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir()
        make_encoder(request.tokenizer, request.vocabulary, learning_texts(request, source)).save(making)
        making.rename(kept)
    return load_encoder(request.tokenizer, kept)


def learning_texts(request: Request, source: Source) -> Iterator[bytes]:
    """The texts that are not held out."""
    for document in limited(request, source, 0):
        if isinstance(document, str) or not is_text(document, Counter()):
            continue
        if split_of(document, request.valid, request.test) == "train":
            yield document


def limited(request: Request, source: Source, first: int) -> Iterator[Document]:
    """The documents from number `first` on that were asked for."""
    rest = None if request.limit_documents is None else max(0, request.limit_documents - first)
    return islice(source.documents(first), rest)


def all_pieces(folder: Path, request: Request, source: Source, workers: int, watch: Watch) -> list[Tally]:
    """Make the pieces that are not there; what all of them are made of is noted when the last one is there."""
    work, note = folder / "work", folder / "work" / "tallies.json"
    if note.exists():
        return [as_tally(told) for told in json.loads(note.read_text())]
    tallies = []
    for tally in both(folder, request, source, workers):
        tallies.append(tally)
        watch("making tokens", tally)
    if not total(tallies, "train").documents:
        for begun in (folder / "tokenizer", work):  # the folder is free for another source
            shutil.rmtree(begun, ignore_errors=True)
        raise ConfigError(f"{request.source}: no document is left to train on. {told_of(tallies)}")
    write(note, json.dumps(tallies))
    return tallies


def both(folder: Path, request: Request, source: Source, workers: int) -> Iterator[Tally]:
    """First the pieces that are there, then the others: documents of the former are not read again."""
    files = (piece_file(folder / "work", number) for number in count())
    there: list[Tally] = [tally for tally in takewhile(bool, map(tally_of, files)) if tally]
    yield from there
    documents = limited(request, source, sum(tally.read for tally in there))
    craft = Craft(folder, request.tokenizer, request.valid, request.test)
    yield from made(enumerate(cut(documents), len(there)), craft, workers)


def told_of(tallies: Sequence[Tally]) -> str:
    """What was read and what was not."""
    skipped = sum((Counter(tally.skipped) for tally in tallies), Counter())
    reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(skipped.items()))
    return f"Documents that were read: {sum(tally.read for tally in tallies)}. Left out: {reasons or 'none'}."
