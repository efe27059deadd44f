"""Read documents from files, by suffix.  .gz and .zst are decompressed.

    .jsonl .ndjson          one document per line, in one field
    .parquet                one document per row, in one column
    any other               the whole file is one document

Readers yield functions that return a document, so that documents already processed can be skipped unread.
"""

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from hqlt_lab.data.sources._base import INVALID_JSON, Document
from hqlt_lab.errors import ConfigError, ConfigIssue, StoreError
from hqlt_lab.files import decode_json

LazyDocument = Callable[[], Document]
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
BUFFER_BYTES = 1 << 20
MAX_DOCUMENT_BYTES = 1 << 30  # a small compressed file may decompress to any size


def lazy_documents(file: Path, field: str) -> Iterator[LazyDocument]:
    """Yield a function for each document of a file."""
    kind = Path(file.stem).suffix if file.suffix in COMPRESSIONS else file.suffix
    if kind in (".jsonl", ".ndjson"):
        return read_json_lines(file, field)
    return read_parquet_rows(file, field) if kind == ".parquet" else iter([partial(read_whole_file, file)])


def open_file(file: Path) -> BinaryIO:
    """Open a file for reading, decompressing with pyarrow: zstandard does not detect truncated files."""
    if file.suffix not in COMPRESSIONS:
        return file.open("rb", buffering=BUFFER_BYTES)
    import pyarrow

    return cast(
        BinaryIO,
        io.BufferedReader(pyarrow.input_stream(str(file), compression=COMPRESSIONS[file.suffix]), BUFFER_BYTES),
    )


def read_whole_file(file: Path) -> Document:
    try:
        with open_file(file) as handle:
            return check_document_size(handle.read(MAX_DOCUMENT_BYTES + 1), file)
    except OSError as error:
        raise unreadable_file_error(file, error) from error


def check_document_size(document: bytes, file: Path) -> bytes:
    if len(document) > MAX_DOCUMENT_BYTES:
        raise StoreError(
            f"{file}: the file has a document of more than {MAX_DOCUMENT_BYTES:,} bytes. Split it into smaller "
            "documents."
        )
    return document


def read_json_lines(file: Path, field: str) -> Iterator[LazyDocument]:
    try:
        with open_file(file) as handle:
            for number, line in enumerate(iter(partial(handle.readline, MAX_DOCUMENT_BYTES + 1), b""), 1):
                check_document_size(line, file)
                yield partial(extract_field, line, field, file, number)
    except OSError as error:
        raise unreadable_file_error(file, error) from error


def extract_field(line: bytes, field: str, file: Path, number: int) -> Document:
    """Return the text of a JSON line.  null is an empty document."""
    if not line.strip():
        return b""
    try:
        # a file may begin with a byte order mark
        row = decode_json(line.decode("utf-8-sig", "surrogatepass"), object, allow_nan=True)
    except ValueError:  # includes text that is not UTF-8
        return INVALID_JSON
    if not isinstance(row, dict) or field not in row:
        fields = f"Fields: {', '.join(row)}." if isinstance(row, dict) else "The line is not an object."
        issue = ConfigIssue(
            "text", "unknown_text_field", f"there is no field {field!r}.", fields, source=str(file), line=number
        )
        raise ConfigError(issue)
    return encode_text(row[field], field, str(file), number)


def encode_text(text: object, field: str, source: str, line: int | None = None) -> bytes:
    """Encode a text as UTF-8.  None is an empty text."""
    if not isinstance(text, str | None):
        message = f"the field {field!r} is not text, but {text!r:.60}."
        raise ConfigError(
            ConfigIssue("text", "field_is_not_text", message, "Use another field.", source=source, line=line)
        )
    # JSON can contain half a surrogate pair: encoded like this, it is later detected as invalid UTF-8
    return (text or "").encode(errors="surrogatepass")


def read_parquet_rows(file: Path, field: str) -> Iterator[LazyDocument]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        table = ParquetFile(file)
        if field not in table.schema_arrow.names:
            columns = f"Fields: {', '.join(table.schema_arrow.names)}."
            message = f"there is no field {field!r}."
            raise ConfigError(ConfigIssue("text", "unknown_text_field", message, columns, source=str(file)))
        for batch in table.iter_batches(batch_size=1024, columns=[field]):
            for text in batch.column(0).cast(pyarrow.binary()).to_pylist():
                yield partial(bytes, text or b"")
    except (OSError, pyarrow.ArrowException) as error:
        raise unreadable_file_error(file, error) from error


def unreadable_file_error(file: Path, error: Exception) -> StoreError:
    return StoreError(f"{file}: the file cannot be read; it may be truncated ({str(error).strip().splitlines()[0]}).")
