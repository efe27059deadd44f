"""Write shards and the index: the tokens of a split, concatenated from all chunks, in files of `shard_tokens` tokens.

Existing shards are complete and are not rewritten.  Train is written last, and a chunk is deleted once all its train
tokens are in shards, so the extra disk space needed is little more than one shard.
"""

import json
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hqlt_lab.data.corpus_index import (
    SPLITS,
    CorpusIndex,
    Split,
    SplitContents,
    compute_checksum,
    starts_file,
    tokens_file,
)
from hqlt_lab.data.pipeline.chunks import ChunkStats, chunk_file, token_dtype
from hqlt_lab.data.prepare_options import PrepareRequest
from hqlt_lab.data.sources._base import Source
from hqlt_lab.data.tokenizers.load_tokenizer import Tokenizer
from hqlt_lab.files import commit_temp, write_atomic

# packages whose versions may influence the tokens
RECORDED_PACKAGES = (
    "hqlt-lab",
    "numpy",
    "pyarrow",
    "datasets",
    "tokenizers",
    "transformers",
    "sentencepiece",
    "mistral-common",
)


class ChunkSlice(NamedTuple):
    """The part of a chunk that belongs to a shard: tokens `first` to `end` of the chunk."""

    chunk: int
    first: int
    end: int
    offset: int  # position in the shard


def write_shards(folder: Path, chunk_stats: Sequence[ChunkStats], shard_tokens: int) -> None:
    """Write all missing shards."""
    for split in reversed(SPLITS):
        ends = [0, *accumulate(stats.splits[split].tokens for stats in chunk_stats)]
        for number, low in enumerate(range(0, ends[-1], shard_tokens)):
            high = min(low + shard_tokens, ends[-1])
            if not (folder / tokens_file(split, number)).exists():
                write_shard(folder, split, number, list(chunk_slices(ends, low, high)))
            if split == "train":
                remove_consumed_chunks(folder / "work", ends, high)


def chunk_slices(ends: Sequence[int], low: int, high: int) -> Iterator[ChunkSlice]:
    """Yield the slices of chunks that make up tokens low .. high of a split."""
    for chunk, (begin, end) in enumerate(pairwise(ends)):
        first, last = max(low, begin), min(high, end)
        if first < last:
            yield ChunkSlice(chunk, first - begin, last - begin, first - low)


def write_shard(folder: Path, split: Split, number: int, slices: Sequence[ChunkSlice]) -> None:
    """Write both files of a shard.  The tokens file is renamed last: if it exists, so does the starts file."""
    names = (starts_file(split, number), tokens_file(split, number))
    temp_files = [folder / f"{name}.writing" for name in names]
    with temp_files[0].open("wb") as starts_out, temp_files[1].open("wb") as tokens_out:
        for chunk, first, end, offset in slices:
            with np.load(chunk_file(folder / "work", chunk)) as arrays:
                tokens, starts = arrays[f"{split}.tokens"], arrays[f"{split}.starts"]
            shard_starts = starts[(starts >= first) & (starts < end)] - first + offset
            starts_out.write(shard_starts.astype("<i8").data)
            tokens_out.write(tokens[first:end].astype(tokens.dtype.newbyteorder("<")).data)
    for temp_file, name in zip(temp_files, names, strict=True):
        commit_temp(temp_file, folder / name)


def remove_consumed_chunks(work: Path, ends: Sequence[int], high: int) -> None:
    """Delete chunks whose train tokens are all in shards.  Their held-out tokens were written before."""
    for chunk, end in enumerate(ends[1:]):
        if end <= high:
            chunk_file(work, chunk).unlink(missing_ok=True)


def write_index(
    folder: Path, request: PrepareRequest, source: Source, tokenizer: Tokenizer, chunk_stats: Sequence[ChunkStats]
) -> None:
    """Write the index, which marks the folder as complete."""
    splits = {split: sum_split_contents(chunk_stats, split) for split in SPLITS}
    index = CorpusIndex(
        splits=splits,
        vocabulary=tokenizer.vocabulary,
        separator=tokenizer.separator,
        dtype=token_dtype(tokenizer),
        shard_tokens=request.shard_tokens,
        tokenizer=request.tokenizer,
        files={name: compute_checksum(folder / name) for name in list_data_files(folder, splits, request.shard_tokens)},
        skipped=dict(sorted(sum((Counter(stats.skipped) for stats in chunk_stats), Counter()).items())),
        source=source.description,
        options=request.build_options,
        versions=package_versions(),
    )
    write_atomic(folder / "index.json", json.dumps(index.to_dict(), indent=2))


def sum_split_contents(chunk_stats: Sequence[ChunkStats], split: Split) -> SplitContents:
    """Sum the counts of a split over all chunks."""
    return SplitContents(*map(sum, zip(SplitContents(), *(stats.splits[split] for stats in chunk_stats), strict=True)))


def list_data_files(folder: Path, splits: dict[Split, SplitContents], shard_tokens: int) -> list[str]:
    """List the files of the data relative to the folder, shards first, then the tokenizer."""
    shards = [
        name(split, number)
        for split, contents in splits.items()
        for number in range(-(-contents.tokens // shard_tokens))
        for name in (tokens_file, starts_file)
    ]
    tokenizer_files = sorted(file for file in (folder / "tokenizer").rglob("*") if file.is_file())
    return [*shards, *(str(file.relative_to(folder)) for file in tokenizer_files)]


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that may influence the tokens."""
    versions = {"python": platform.python_version()}
    for package in RECORDED_PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
