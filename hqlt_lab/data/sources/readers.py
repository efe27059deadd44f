"""Files to documents, by their suffix; .gz and .zst are unpacked on the way.

    .jsonl .ndjson          a document per line, in one field of it
    .parquet                a document per row, in one column
    any other               the whole file is one document

A reader gives promises of documents, so that those that are done already can be passed over without being read.
"""

import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from hqlt_lab.data.sources._base import NOT_JSON, Document
from hqlt_lab.errors import ConfigError, StoreError

Promise = Callable[[], Document]
PACKED = {".gz": "gzip", ".zst": "zstd"}
BUFFER = 1 << 20
LARGEST = 1 << 30  # bytes of a document: a small packed file may be endless when it is unpacked


def promises(file: Path, field: str) -> Iterator[Promise]:
    """All documents of a file."""
    kind = Path(file.stem).suffix if file.suffix in PACKED else file.suffix
    if kind in (".jsonl", ".ndjson"):
        return lines(file, field)
    return rows(file, field) if kind == ".parquet" else iter([partial(whole, file)])


def opened(file: Path) -> BinaryIO:
    """A file to read from.  pyarrow unpacks, as zstandard takes a file that is cut off for a shorter one."""
    if file.suffix not in PACKED:
        return file.open("rb", buffering=BUFFER)
    import pyarrow

    return cast(BinaryIO, io.BufferedReader(pyarrow.input_stream(str(file), compression=PACKED[file.suffix]), BUFFER))


def whole(file: Path) -> Document:
    try:
        with opened(file) as handle:
            return bounded(handle.read(LARGEST + 1), file)
    except OSError as error:
        raise unreadable(file, error) from error


def bounded(document: bytes, file: Path) -> bytes:
    if len(document) > LARGEST:
        raise StoreError(f"{file}: a document of it has more than {LARGEST:,} bytes. Cut it into smaller ones.")
    return document


def lines(file: Path, field: str) -> Iterator[Promise]:
    try:
        with opened(file) as handle:
            for number, line in enumerate(iter(partial(handle.readline, LARGEST + 1), b""), 1):
                bounded(line, file)
                yield partial(of_field, line, field, file, number)
    except OSError as error:
        raise unreadable(file, error) from error


def of_field(line: bytes, field: str, file: Path, number: int) -> Document:
    """The text in a line of JSON; a null is an empty document."""
    if not line.strip():
        return b""
    try:
        record = json.loads(line)
    except ValueError:  # also what is not UTF-8
        return NOT_JSON
    if not isinstance(record, dict) or field not in record:
        there = ", ".join(record) if isinstance(record, dict) else "it is no object"
        raise ConfigError(f"{file}, line {number}: there is no field {field!r}. Fields: {there}. Choose with --text.")
    return as_bytes(record[field], f"{file}, line {number}, field {field!r}")


def as_bytes(text: object, where: str) -> bytes:
    """A text as it would stand in a file; null is an empty one."""
    if not isinstance(text, str | None):
        raise ConfigError(f"{where}: this is no text, but {text!r:.60}. Choose another with --text.")
    # half a surrogate pair can be written in JSON, but is no text: as bytes it is found out to be no UTF-8
    return (text or "").encode(errors="surrogatepass")


def rows(file: Path, field: str) -> Iterator[Promise]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        table = ParquetFile(file)
        if field not in table.schema_arrow.names:
            there = ", ".join(table.schema_arrow.names)
            raise ConfigError(f"{file}: there is no column {field!r}. Columns: {there}. Choose with --text.")
        for batch in table.iter_batches(batch_size=1024, columns=[field]):
            for text in batch.column(0).cast(pyarrow.binary()).to_pylist():
                yield partial(bytes, text or b"")
    except (OSError, pyarrow.ArrowException) as error:
        raise unreadable(file, error) from error


def unreadable(file: Path, error: Exception) -> StoreError:
    return StoreError(f"{file}: it cannot be read, it may be cut off ({str(error).strip().splitlines()[0]}).")
