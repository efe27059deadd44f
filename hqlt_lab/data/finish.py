"""The end of preparing: sums, checksums, versions, and the index."""

import json
import platform
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hqlt_lab.data.encoders.choose import Encoder
from hqlt_lab.data.index import SPLITS, Contents, Index, Split, starts_file, stored, tokens_file
from hqlt_lab.data.pieces import Tally, dtype_of
from hqlt_lab.data.request import Request
from hqlt_lab.data.sources._base import Source
from hqlt_lab.files import write

TOLD = ("hqlt-lab", "numpy", "pyarrow", "datasets", "tokenizers", "transformers", "sentencepiece", "mistral-common")


def write_index(folder: Path, request: Request, source: Source, encoder: Encoder, tallies: Sequence[Tally]) -> None:
    """Say what is in the folder; from now on it is complete."""
    splits = {split: total(tallies, split) for split in SPLITS}
    index = Index(
        splits=splits,
        vocabulary=encoder.vocabulary,
        separator=encoder.separator,
        dtype=dtype_of(encoder),
        shard_tokens=request.shard_tokens,
        tokenizer=request.tokenizer,
        files={name: stored(folder / name) for name in names(folder, splits, request.shard_tokens)},
        skipped=dict(sorted(sum((Counter(tally.skipped) for tally in tallies), Counter()).items())),
        source=source.description,
        options=request.options,
        versions=versions(),
    )
    write(folder / "index.json", json.dumps(index.as_dict(), indent=2))


def total(tallies: Sequence[Tally], split: Split) -> Contents:
    """What a split holds in all pieces together."""
    return Contents(*map(sum, zip(Contents(), *(tally.splits[split] for tally in tallies), strict=True)))


def names(folder: Path, splits: dict[Split, Contents], shard_tokens: int) -> list[str]:
    """All files of the data, shards first."""
    shards = [
        name(split, number)
        for split, contents in splits.items()
        for number in range(-(-contents.tokens // shard_tokens))
        for name in (tokens_file, starts_file)
    ]
    kept = sorted(file for file in (folder / "tokenizer").rglob("*") if file.is_file())
    return [*shards, *(str(file.relative_to(folder)) for file in kept)]


def versions() -> dict[str, str]:
    """Of everything that may have had a say in the tokens."""
    found = {"python": platform.python_version()}
    for package in TOLD:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
