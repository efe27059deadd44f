"""The verbs about text: data prepare, data show, data check."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from hqlt_lab.cli.exits import Exit, NotAllWell
from hqlt_lab.cli.options import for_programs
from hqlt_lab.cli.screen import aside, console
from hqlt_lab.data.request import Request
from hqlt_lab.words import in_bytes, in_json, in_numbers

if TYPE_CHECKING:
    from hqlt_lab.data.index import Index, Split
    from hqlt_lab.data.pieces import Tally
    from hqlt_lab.data.prepare import Watch

FolderArgument = Annotated[Path, typer.Argument(help="A folder with prepared data.")]
HELD_OUT: "tuple[Split, ...]" = ("valid", "test")
INDEX = (
    "format, digest, splits, vocabulary, separator, dtype, shard_tokens, tokenizer, files, skipped, source, options, "
    "versions"
)
USUAL = Request(source="python")  # what each option is where it is not given
app = typer.Typer(help="Text as tokens on disk: prepare it once, then train on it.", no_args_is_help=True)


@app.command()
def prepare(
    source: Annotated[str, typer.Argument(help="python, a file, a folder, or a dataset of Hugging Face.")],
    into: Annotated[Path, typer.Option(help="The folder to make.")],
    tokenizer: Annotated[str, typer.Option(help="bytes, bpe, mistral, or one of Hugging Face.")] = USUAL.tokenizer,
    vocabulary: Annotated[int, typer.Option(help="How many tokens bpe learns.")] = USUAL.vocabulary,
    limit_documents: Annotated[int | None, typer.Option(help="Read no more than that.")] = None,
    valid: Annotated[float, typer.Option(help="Share of documents held out for selection.")] = USUAL.valid,
    test: Annotated[float, typer.Option(help="Share of documents held out for the report.")] = USUAL.test,
    text: Annotated[str, typer.Option(help="The field or column that is the text.")] = USUAL.text,
    config: Annotated[str | None, typer.Option(help="The dataset's configuration.")] = None,
    split: Annotated[str, typer.Option(help="The dataset's split to read.")] = USUAL.split,
    shard_tokens: Annotated[int, typer.Option(help="Tokens in a file.")] = USUAL.shard_tokens,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that tokenise; else one per core.")] = None,
    as_json: Annotated[bool, for_programs(f"the folder's index: {INDEX}.")] = False,
) -> None:
    """Tokenise a source into a folder.  The same command goes on after any kill."""
    from hqlt_lab.data.prepare import prepare

    request = Request(
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
        with watching(limit_documents) as watch:
            index = prepare(request, into, workers or len(os.sched_getaffinity(0)), watch)
    except KeyboardInterrupt:
        aside.print(f"{into}: stopped. The same command goes on.", soft_wrap=True)
        raise typer.Exit(Exit.STOPPED) from None
    print(in_json(index.as_dict())) if as_json else tell(index)


@contextmanager
def watching(documents: int | None) -> Iterator["Watch"]:
    """A line that says how far it is."""
    words = TextColumn("{task.description}: {task.completed} documents, {task.fields[size]}")
    columns = (SpinnerColumn(), words, BarColumn(), TimeElapsedColumn())
    sizes: list[int] = []
    with Progress(*columns, console=aside, transient=True) as progress:
        task = progress.add_task("reading", total=documents, size="")

        def watch(doing: str, tally: "Tally | None") -> None:
            if tally:
                sizes.append(sum(split.bytes for split in tally.splits.values()))
                progress.advance(task, tally.read)
            progress.update(task, description=doing, size=in_bytes(sum(sizes)))

        yield watch


@app.command()
def show(
    folder: FolderArgument,
    compress: Annotated[
        int, typer.Option(min=1, help="Held-out tokens that xz reads: a study scores eval_size times length of them.")
    ] = 4_000_000,
    as_json: Annotated[bool, for_programs(f"the folder's index: {INDEX}; and xz_bits_per_byte.")] = False,
) -> None:
    """What is in a folder: splits, tokens, what xz makes of them, source, tokenizer, digest, how a document begins."""
    from hqlt_lab.data.compress import xz_bits_per_byte
    from hqlt_lab.data.corpus import open_corpus

    corpus = open_corpus(folder)
    with aside.status("compressing what is held out ..."):
        packed = {split: xz_bits_per_byte(corpus, split, compress) for split in HELD_OUT}
    if as_json:
        print(in_json(corpus.index.as_dict() | {"xz_bits_per_byte": packed}))
        return
    tell(corpus.index, packed)
    console.print("\n[bold]a training document[/bold]")
    console.print(corpus.decode(corpus.document("train")[:200]), markup=False, highlight=False)


@app.command()
def check(
    folder: FolderArgument,
    as_json: Annotated[bool, for_programs("folder, files (how many), digest, damaged (a sentence each).")] = False,
) -> None:
    """Read every file and compare it with what was written."""
    from hqlt_lab.data.index import damaged, read_index

    index = read_index(folder)
    with aside.status(f"reading {len(index.files)} files ..."):
        wrong = list(damaged(folder, index))
    if as_json:
        print(in_json({"folder": folder, "files": len(index.files), "digest": index.digest, "damaged": wrong}))
    if wrong:
        raise NotAllWell("\n".join([*wrong, "Prepare the data again in another folder."]))
    if not as_json:
        console.print(f"{folder}: all {len(index.files)} files are as they were written. Digest {index.digest}.")


def tell(index: "Index", packed: "Mapping[Split, float | None] | None" = None) -> None:
    """The index for people; `packed` is what xz needs for the held-out text, in bits per byte."""
    table = Table("split", "documents", "tokens", "text", "tokens per byte", box=None, pad_edge=False)
    if packed:
        table.add_column("xz -9, bits per byte")
    for name, split in index.splits.items():
        ratio = f"{split.tokens / split.bytes:.3f}" if split.bytes else "-"
        bits = [f"{found:.3f}" if (found := packed.get(name)) else "-"] if packed else []
        table.add_row(name, str(split.documents), in_numbers(split.tokens), in_bytes(split.bytes), ratio, *bits)
    console.print(table, "")
    skipped = ", ".join(f"{number} {reason}" for reason, number in index.skipped.items())
    told = {
        "tokenizer": f"{index.tokenizer}, {index.vocabulary} tokens, {index.separator} before each document",
        "source": ", ".join(f"{name} {value}" for name, value in index.source.items() if value is not None),
        "left out": skipped or "nothing",
        "digest": index.digest,
    }
    if empty := [name for name, split in index.splits.items() if not split.documents and index.options.get(name)]:
        told["empty"] = f"{' and '.join(empty)}: so few documents need a larger share, say --valid 0.1 --test 0.1"
    for topic, words in told.items():
        console.print(f"[bold]{topic:10}[/bold]", end="")
        console.print(words, markup=False, highlight=False, soft_wrap=True)
