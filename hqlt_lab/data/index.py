"""The index of a prepared folder: what is in it, how large each file must be, and what it must hold.

The digest identifies the data: it is the same for two folders where the same tokens stand in the same shards.  Where
the text came from, and what read it, is told beside it.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from hqlt_lab.errors import StoreError

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
FORMAT = 1


class Contents(NamedTuple):
    """What a split holds."""

    documents: int = 0
    tokens: int = 0
    bytes: int = 0  # of text, in UTF-8, without separators


class Stored(NamedTuple):
    """What a file must be."""

    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Index:
    """All that `index.json` says."""

    splits: dict[Split, Contents]
    vocabulary: int
    separator: int
    dtype: str
    shard_tokens: int
    tokenizer: str
    files: dict[str, Stored]
    skipped: dict[str, int]
    source: dict[str, Any]
    options: dict[str, Any]
    versions: dict[str, str]

    @property
    def digest(self) -> str:
        """What identifies the data, 16 hexadecimal digits."""
        same: dict[str, Any] = {name: getattr(self, name) for name in ("splits", "vocabulary", "separator", "dtype")}
        same["files"] = {name: file for name, file in self.files.items() if name.endswith((".tokens", ".starts"))}
        return sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:16]

    def shards(self, split: Split) -> int:
        """In how many files a split's tokens stand."""
        return -(-self.splits[split].tokens // self.shard_tokens)

    def as_dict(self) -> dict[str, Any]:
        """For programs, and for the file."""
        told = asdict(self)
        told["splits"] = {name: split._asdict() for name, split in self.splits.items()}
        told["files"] = {name: file._asdict() for name, file in self.files.items()}
        return {"format": FORMAT, "digest": self.digest, **told}


def tokens_file(split: str, number: int) -> str:
    return f"{split}-{number:05}.tokens"


def starts_file(split: str, number: int) -> str:
    return f"{split}-{number:05}.starts"


def stored(file: Path) -> Stored:
    """What a file is now."""
    with file.open("rb") as handle:
        return Stored(file.stat().st_size, file_digest(handle, "sha256").hexdigest())


def read_index(folder: Path) -> Index:
    """The index of a folder that is prepared, or a sentence on what to do."""
    file = folder / "index.json"
    if not file.exists():
        raise StoreError(missing(folder))
    try:
        told = json.loads(file.read_text())
        made = told.pop("format")
        if made != FORMAT:
            raise StoreError(f"{file}: this is format {made}, and this version of the lab reads format {FORMAT}.")
        digest = told.pop("digest")
        told["splits"] = {name: Contents(**split) for name, split in told["splits"].items()}
        told["files"] = {name: Stored(**one) for name, one in told["files"].items()}
        index = Index(**told)
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{file}: it is damaged ({error}). Prepare the data again in another folder.") from error
    if wrong := unsound(index):
        raise StoreError(f"{file}: it is damaged ({wrong}). Prepare the data again in another folder.")
    if index.digest != digest:
        raise StoreError(f"{file}: it was changed by hand: its digest is not {digest}. Prepare the data again.")
    return index


def unsound(index: Index) -> str:
    """What no index of ours says; nothing, if it may be one.  Its files stand in its folder and nowhere else."""
    outside = [name for name in index.files if Path(name).is_absolute() or ".." in Path(name).parts]
    if outside:
        return f"{outside[0]} is a file of another folder"
    if set(index.splits) != set(SPLITS) or index.dtype not in ("uint16", "uint32") or index.shard_tokens < 1:
        return "its splits, dtype or shard_tokens are none"
    there = {split: sum(name.startswith(f"{split}-") for name in index.files) for split in SPLITS}
    absent = [split for split in SPLITS if there[split] < index.shards(split)]
    return f"shards of {absent[0]} are missing" if absent else ""


def missing(folder: Path) -> str:
    if (folder / "work").exists():
        return f"{folder}: the data are not complete. Run the same `hqlt data prepare` again: it goes on."
    return (
        f"{folder}: there are no prepared data. Make some with: hqlt data prepare SOURCE --into {folder} "
        "(a file, a folder, a dataset of Hugging Face; or python, which is here already)."
    )


def wrong_sizes(folder: Path, index: Index) -> Iterator[str]:
    """A sentence for each file that is missing, cut off or too long."""
    for name, file in index.files.items():
        path = folder / name
        if not path.exists():
            yield f"{path}: the file is missing."
        elif (size := path.stat().st_size) != file.size:
            yield f"{path}: it has {size} bytes, and was written with {file.size}."


def damaged(folder: Path, index: Index) -> Iterator[str]:
    """A sentence for each file that is not what was written; every one is read."""
    wrong = list(wrong_sizes(folder, index))
    yield from wrong
    for name, file in index.files.items():
        path = folder / name
        if not any(told.startswith(f"{path}:") for told in wrong) and stored(path) != file:
            yield f"{path}: it is damaged: its content is not what was written."
