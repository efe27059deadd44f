"""The commands about text corpora: `hqlt data prepare`, `hqlt data show` and `hqlt data check`."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from hqlt_lab.cli.terminal.console import console, stderr_console
from hqlt_lab.cli.terminal.exit_codes import ExitCode, PartialFailure
from hqlt_lab.cli.terminal.shared_options import json_option
from hqlt_lab.data.prepare_options import PrepareRequest
from hqlt_lab.formatting import dump_json, format_bytes, format_count

if TYPE_CHECKING:
    from hqlt_lab.data.corpus_index import CorpusIndex, Split
    from hqlt_lab.data.pipeline.chunks import ChunkStats
    from hqlt_lab.data.prepare import ProgressCallback

logger = logging.getLogger(__name__)

FolderArgument = Annotated[Path, typer.Argument(help="A folder with prepared data.")]
HELD_OUT_SPLITS: "tuple[Split, ...]" = ("valid", "test")
INDEX_KEYS = (
    "format, digest, splits, vocabulary, separator, dtype, shard_tokens, tokenizer, files, skipped, source, options, "
    "versions"
)
DEFAULT_REQUEST = PrepareRequest(source="python")  # the default value of each option
app = typer.Typer(help="Prepare, show and check tokenized text.", no_args_is_help=True)


@app.command("prepare")
def prepare_corpus(
    source: Annotated[
        str, typer.Argument(help="A file, a folder, a Hugging Face dataset, or python (Python's own sources).")
    ],
    into: Annotated[Path, typer.Option(help="Folder to write.")],
    tokenizer: Annotated[
        str, typer.Option(help="bytes, bpe, mistral, or a Hugging Face tokenizer.")
    ] = DEFAULT_REQUEST.tokenizer,
    vocabulary: Annotated[int, typer.Option(help="Vocabulary size of bpe.")] = DEFAULT_REQUEST.vocabulary,
    limit_documents: Annotated[int | None, typer.Option(help="Read at most N documents.")] = None,
    valid: Annotated[
        float, typer.Option(help="Fraction of documents held out for validation.")
    ] = DEFAULT_REQUEST.valid,
    test: Annotated[float, typer.Option(help="Fraction of documents held out for testing.")] = DEFAULT_REQUEST.test,
    text: Annotated[str, typer.Option(help="Field or column that contains the text.")] = DEFAULT_REQUEST.text,
    config: Annotated[str | None, typer.Option(help="The dataset's configuration.")] = None,
    split: Annotated[str, typer.Option(help="The dataset's split to read.")] = DEFAULT_REQUEST.split,
    shard_tokens: Annotated[int, typer.Option(help="Tokens per shard.")] = DEFAULT_REQUEST.shard_tokens,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of processes. Default: one per core.")] = None,
    as_json: Annotated[bool, json_option(f"the folder's index: {INDEX_KEYS}.")] = False,
) -> None:
    """Tokenize a source into a folder.  After an interruption the same command resumes."""
    from hqlt_lab.data.prepare import prepare_data

    request = PrepareRequest(
        source=source,
        text=text,
        config=config,
        split=split,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        limit_documents=limit_documents,
        valid=valid,
        test=test,
        shard_tokens=shard_tokens,
    )
    try:
        with preparation_progress(limit_documents) as on_progress:
            index = prepare_data(request, into, workers or len(os.sched_getaffinity(0)), on_progress)
    except KeyboardInterrupt:
        logger.warning(f"{into}: stopped. Run the same command again to resume.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    print(dump_json(index.to_dict())) if as_json else print_index(index)


@contextmanager
def preparation_progress(total_documents: int | None) -> Iterator["ProgressCallback"]:
    """Show a progress line on standard error; yield the callback that updates it."""
    description = TextColumn("{task.description}: {task.completed} documents, {task.fields[size]}")
    columns = (SpinnerColumn(), description, BarColumn(), TimeElapsedColumn())
    chunk_bytes: list[int] = []
    with Progress(*columns, console=stderr_console, transient=True) as progress:
        task = progress.add_task("reading", total=total_documents, size="")

        def on_progress(stage: str, stats: "ChunkStats | None") -> None:
            if stats:
                chunk_bytes.append(sum(split.bytes for split in stats.splits.values()))
                progress.advance(task, stats.documents_read)
            progress.update(task, description=stage, size=format_bytes(sum(chunk_bytes)))

        yield on_progress


@app.command("show")
def show_corpus(
    folder: FolderArgument,
    compress: Annotated[
        int,
        typer.Option(
            min=1, help="Number of held-out tokens to compress with xz; a study evaluates eval_size x length tokens."
        ),
    ] = 4_000_000,
    as_json: Annotated[bool, json_option(f"the folder's index: {INDEX_KEYS}; and xz_bits_per_byte.")] = False,
) -> None:
    """Show the content of a folder: splits, tokens, xz compression, source, tokenizer, digest and a sample document."""
    from hqlt_lab.data.corpus_reader import open_corpus
    from hqlt_lab.data.xz_baseline import xz_bits_per_byte

    corpus = open_corpus(folder)
    with stderr_console.status("compressing the held-out text ..."):
        bits_per_byte = {split: xz_bits_per_byte(corpus, split, compress) for split in HELD_OUT_SPLITS}
    if as_json:
        print(dump_json(corpus.index.to_dict() | {"xz_bits_per_byte": bits_per_byte}))
        return
    print_index(corpus.index, bits_per_byte)
    console.print("\n[bold]a training document[/bold]")
    console.print(corpus.decode(corpus.read_document("train")[:200]), markup=False, highlight=False)


@app.command("check")
def check_corpus(
    folder: FolderArgument,
    as_json: Annotated[
        bool, json_option("folder, files (their number), digest, damaged (a message for each).")
    ] = False,
) -> None:
    """Verify the checksum of every file."""
    from hqlt_lab.data.corpus_index import find_damaged_files, read_index

    index = read_index(folder)
    with stderr_console.status(f"reading {len(index.files)} files ..."):
        damaged = list(find_damaged_files(folder, index))
    if as_json:
        print(dump_json({"folder": folder, "files": len(index.files), "digest": index.digest, "damaged": damaged}))
    if damaged:
        raise PartialFailure("\n".join([*damaged, "Prepare the data again in another folder."]))
    if not as_json:
        console.print(f"{folder}: the checksums of all {len(index.files)} files are correct. Digest {index.digest}.")


def print_index(index: "CorpusIndex", bits_per_byte: "Mapping[Split, float | None] | None" = None) -> None:
    """Print the index of a corpus; `bits_per_byte` is the compression of the held-out text by xz, by split."""
    table = Table("split", "documents", "tokens", "text", "tokens per byte", box=None, pad_edge=False)
    if bits_per_byte:
        table.add_column("xz -9, bits per byte")
    for name, split in index.splits.items():
        ratio = f"{split.tokens / split.bytes:.3f}" if split.bytes else "-"
        xz_cells = [f"{bits:.3f}" if (bits := bits_per_byte.get(name)) else "-"] if bits_per_byte else []
        size = format_bytes(split.bytes)
        table.add_row(name, str(split.documents), format_count(split.tokens), size, ratio, *xz_cells)
    console.print(table, "")
    skipped = ", ".join(f"{number} {reason}" for reason, number in index.skipped.items())
    details = {
        "tokenizer": f"{index.tokenizer}, {index.vocabulary} tokens, {index.separator} before each document",
        "source": ", ".join(f"{name} {value}" for name, value in index.source.items() if value is not None),
        "left out": skipped or "nothing",
        "digest": index.digest,
    }
    if empty := [name for name, split in index.splits.items() if not split.documents and index.options.get(name)]:
        details["empty"] = f"{' and '.join(empty)} contain no documents. Hold out more, such as --valid 0.1 --test 0.1"
    for topic, detail in details.items():
        console.print(f"[bold]{topic:10}[/bold]", end="")
        console.print(detail, markup=False, highlight=False, soft_wrap=True)
