"""The index of a prepared folder: its contents, and the size and checksum of each file.

The digest identifies the data: it is the same for two folders that have the same tokens in the same shards.  The
source of the text and the versions of the libraries are recorded beside it but do not enter the digest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from hqlt_lab.errors import StoreError
from hqlt_lab.files import check_numbers, check_types, read_json
from hqlt_lab.hashing import hash_file, hash_json

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
FORMAT_VERSION = 1
INDEX_TYPES: Mapping[str, tuple[type, ...]] = {
    "vocabulary": (int,), "separator": (int,), "dtype": (str,), "shard_tokens": (int,), "tokenizer": (str,),
    "skipped": (dict,), "source": (dict,), "options": (dict,), "versions": (dict,),
}  # fmt: skip
ENTRY_TYPES: Mapping[str, tuple[type, ...]] = {
    "documents": (int,), "tokens": (int,), "bytes": (int,), "size": (int,), "sha256": (str,)
}  # fmt: skip


class SplitContents(NamedTuple):
    """Number of documents, tokens and bytes of a split."""

    documents: int = 0
    tokens: int = 0
    bytes: int = 0  # UTF-8 text, without separators


class FileChecksum(NamedTuple):
    """Expected size and content of a file."""

    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusIndex:
    """Content of `index.json`."""

    splits: dict[Split, SplitContents]
    vocabulary: int
    separator: int
    dtype: str
    shard_tokens: int
    tokenizer: str
    files: dict[str, FileChecksum]
    skipped: dict[str, int]
    source: dict[str, Any]
    options: dict[str, Any]
    versions: dict[str, str]

    @property
    def digest(self) -> str:
        """Hash that identifies the data, 16 hexadecimal digits."""
        hashed: dict[str, Any] = {name: getattr(self, name) for name in ("splits", "vocabulary", "separator", "dtype")}
        hashed["files"] = {name: file for name, file in self.files.items() if name.endswith((".tokens", ".starts"))}
        return hash_json(hashed)

    def num_shards(self, split: Split) -> int:
        """Return the number of token files of a split."""
        return -(-self.splits[split].tokens // self.shard_tokens)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `index.json`, with the format version and the digest."""
        fields = asdict(self)
        fields["splits"] = {name: split._asdict() for name, split in self.splits.items()}
        fields["files"] = {name: file._asdict() for name, file in self.files.items()}
        return {"format": FORMAT_VERSION, "digest": self.digest, **fields}


def tokens_file(split: str, number: int) -> str:
    return f"{split}-{number:05}.tokens"


def starts_file(split: str, number: int) -> str:
    return f"{split}-{number:05}.starts"


def compute_checksum(file: Path) -> FileChecksum:
    return FileChecksum(file.stat().st_size, hash_file(file))


def read_index(folder: Path) -> CorpusIndex:
    """Read and validate the index of a prepared folder.  Raise `StoreError` if it is missing or damaged."""
    file = folder / "index.json"
    if not file.exists():
        raise StoreError(missing_data_message(folder))
    fields = read_json(file, dict, remedy="Prepare the data again in another folder.")
    try:
        version = fields.pop("format")
        if version != FORMAT_VERSION:
            raise StoreError(
                f"{file}: the file has format {version}, but this version of hqlt_lab reads format {FORMAT_VERSION}."
            )
        digest = fields.pop("digest")
        fields["splits"] = {name: SplitContents(**split) for name, split in fields["splits"].items()}
        fields["files"] = {name: FileChecksum(**checksum) for name, checksum in fields["files"].items()}
        check_types(fields, INDEX_TYPES)
        for entry in (*fields["splits"].values(), *fields["files"].values()):
            check_types(entry._asdict(), ENTRY_TYPES)
        check_numbers(fields["skipped"])
        index = CorpusIndex(**fields)
        if inconsistency := find_inconsistency(index):
            raise ValueError(inconsistency)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise StoreError(f"{file}: the file is damaged ({error}). Prepare the data again in another folder.") from error
    if index.digest != digest:
        raise StoreError(f"{file}: the file was edited: its digest is not {digest}. Prepare the data again.")
    return index


def find_inconsistency(index: CorpusIndex) -> str:
    """Return why this index cannot have been written by `hqlt data prepare`, or "" if it can.

    File names must stay inside the prepared folder.
    """
    outside = [name for name in index.files if Path(name).is_absolute() or ".." in Path(name).parts]
    if outside:
        return f"{outside[0]} is a file of another folder"
    if set(index.splits) != set(SPLITS) or index.dtype not in ("uint16", "uint32") or index.shard_tokens < 1:
        return "its splits, dtype or shard_tokens are invalid"
    file_counts = {split: sum(name.startswith(f"{split}-") for name in index.files) for split in SPLITS}
    incomplete = [split for split in SPLITS if file_counts[split] < index.num_shards(split)]
    return f"shards of {incomplete[0]} are missing" if incomplete else ""


def missing_data_message(folder: Path) -> str:
    if (folder / "work").exists():
        return f"{folder}: the data are incomplete. Run the same `hqlt data prepare` command again to resume."
    return (
        f"{folder}: there are no prepared data. Prepare them with: hqlt data prepare SOURCE --into {folder} (SOURCE: a "
        "file, a folder, a Hugging Face dataset, or python, which needs no download)."
    )


def find_wrong_sizes(folder: Path, index: CorpusIndex) -> Iterator[tuple[str, str]]:
    """Yield name and error message of each file that is missing or has the wrong size."""
    for name, file in index.files.items():
        path = folder / name
        if not path.exists():
            yield name, f"{path}: the file is missing."
        elif (size := path.stat().st_size) != file.size:
            yield name, f"{path}: the file has {size} bytes instead of {file.size}."


def find_damaged_files(folder: Path, index: CorpusIndex) -> Iterator[str]:
    """Yield an error message for each missing or changed file.  Reads every file to compute its checksum."""
    size_errors = dict(find_wrong_sizes(folder, index))
    yield from size_errors.values()
    for name, file in index.files.items():
        path = folder / name
        if name not in size_errors and compute_checksum(path) != file:
            yield f"{path}: the file is damaged: its checksum is wrong."
