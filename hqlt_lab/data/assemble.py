"""From pieces to shards: the tokens of a split, one piece after the other, cut into files of exactly `shard_tokens`.

Shards that are there are complete and stay.  Train comes last, and a piece is removed when the train shards behind it
are there: besides the data the disk holds hardly more than one shard.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hqlt_lab.data.index import SPLITS, Split, starts_file, tokens_file
from hqlt_lab.data.pieces import Tally, piece_file
from hqlt_lab.files import put


class Stretch(NamedTuple):
    """The part of a piece that belongs to a shard: tokens `first` to `end` of the piece."""

    piece: int
    first: int
    end: int
    offset: int  # where in the shard it begins


def assemble(folder: Path, tallies: Sequence[Tally], shard_tokens: int) -> None:
    """Write all shards that are not there yet."""
    for split in reversed(SPLITS):
        ends = [0, *accumulate(tally.splits[split].tokens for tally in tallies)]
        for number, low in enumerate(range(0, ends[-1], shard_tokens)):
            high = min(low + shard_tokens, ends[-1])
            if not (folder / tokens_file(split, number)).exists():
                write_shard(folder, split, number, list(stretches(ends, low, high)))
            if split == "train":
                remove_behind(folder / "work", ends, high)


def stretches(ends: Sequence[int], low: int, high: int) -> Iterator[Stretch]:
    """Which parts of which pieces make tokens low .. high of a split."""
    for piece, (begin, end) in enumerate(pairwise(ends)):
        first, last = max(low, begin), min(high, end)
        if first < last:
            yield Stretch(piece, first - begin, last - begin, first - low)


def write_shard(folder: Path, split: Split, number: int, parts: Sequence[Stretch]) -> None:
    """Both files of a shard.  The tokens get their name last: where they are, the starts are too."""
    names = (starts_file(split, number), tokens_file(split, number))
    written = [folder / f"{name}.writing" for name in names]
    with written[0].open("wb") as starts_out, written[1].open("wb") as tokens_out:
        for part in parts:
            with np.load(piece_file(folder / "work", part.piece)) as piece:
                tokens, starts = piece[f"{split}.tokens"], piece[f"{split}.starts"]
            mine = starts[(starts >= part.first) & (starts < part.end)] - part.first + part.offset
            starts_out.write(mine.astype("<i8").data)
            tokens_out.write(tokens[part.first : part.end].astype(tokens.dtype.newbyteorder("<")).data)
    for file, name in zip(written, names, strict=True):
        put(file, folder / name)


def remove_behind(work: Path, ends: Sequence[int], high: int) -> None:
    """Pieces whose training tokens are all in shards; what is held out was written before."""
    for piece, end in enumerate(ends[1:]):
        if end <= high:
            piece_file(work, piece).unlink(missing_ok=True)
