"""`hqlt lm-eval`: evaluate trained language models on lm-eval tasks."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from hqlt_lab.cli.terminal import completion
from hqlt_lab.cli.terminal.console import console, print_table, stderr_console
from hqlt_lab.cli.terminal.exit_codes import ExitCode
from hqlt_lab.cli.terminal.shared_options import OnlyOption, RunsOption, SetOption, TrackingOption, json_option
from hqlt_lab.errors import ConfigError
from hqlt_lab.formatting import dump_json

if TYPE_CHECKING:
    from hqlt_lab.api.task_evaluation import TaskEvaluation
    from hqlt_lab.study.lm_eval_cells import ModelResult

logger = logging.getLogger(__name__)


def evaluate_language_models(
    target: Annotated[
        str,
        typer.Argument(
            help="A trained cell (key, folder or MLflow run), an experiment file, for all of its arms, or a folder "
            "that `hqlt export` wrote.",
            autocompletion=completion.complete_cells_and_files,
        ),
    ],
    tasks: Annotated[
        str,
        typer.Option(
            help="Comma-separated: the sets general and retrieval, tasks or groups of lm-eval, paths of task files. "
            "Default: the section evaluate of the experiment file."
        ),
    ] = "",
    length: Annotated[
        int | None, typer.Option(min=1, help="Context length in tokens. Default: the training length.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Rows per batch; does not change results.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Use only the first N documents per task; such results are never reported."),
    ] = None,
    local: Annotated[
        Path | None, typer.Option(help="Folder with TASK.jsonl files to use instead of the hub's datasets.")
    ] = None,
    lesion: Annotated[
        Literal["fw", "kv"] | None,
        typer.Option(
            help="Also evaluate with the output of this memory set to zero: fast weights (fw) or softmax (kv)."
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Repeat evaluations that were done before.")] = False,
    into: Annotated[Path | None, typer.Option(help="Also write the results to this JSON file.")] = None,
    only: OnlyOption = None,
    overrides: SetOption = None,
    runs: RunsOption = Path("runs"),
    tracking: TrackingOption = None,
    as_json: Annotated[
        bool,
        json_option("an entry per model: arm, seed, folder, metrics, protocols, truncated, failures, remarks, new."),
    ] = False,
) -> None:
    """Evaluate trained language models on the tasks of lm-eval."""
    from hqlt_lab import api

    if into is not None and not into.parent.is_dir():
        raise ConfigError.at("--into", "folder_not_found", f"there is no folder {into.parent}.")
    with task_progress() as on_progress:
        evaluation = api.evaluate_tasks(
            target,
            [name.strip() for name in tasks.split(",") if name.strip()],
            length=length,
            limit=limit,
            local=local,
            batch_size=batch_size,
            lesion=lesion,
            again=again,
            overrides=overrides or (),
            only=only or (),
            runs=runs,
            tracking=tracking,
            on_progress=on_progress,
        )
    text = dump_json(evaluation.models)
    if into is not None:
        into.write_text(text + "\n")
    if as_json:
        print(text)
    else:
        print_task_evaluation(evaluation)
    if evaluation.failures:
        raise typer.Exit(ExitCode.PARTIAL_FAILURE)


def print_task_evaluation(evaluation: "TaskEvaluation") -> None:
    """Print the table of results and the truncations; log remarks, failures and warnings."""
    print_table(task_table(evaluation.models, evaluation.tasks))
    for model in evaluation.models:
        truncated = ", ".join(f"{task} {count}" for task, count in model.truncated.items())
        if truncated:
            console.print(
                f"{escape(model.arm)}: number of texts truncated on the left to fit the context: {escape(truncated)}.",
                soft_wrap=True,
            )
    remarks = dict.fromkeys(remark for model in evaluation.models for remark in model.remarks)
    for sentence in (*remarks, *evaluation.failures, *([evaluation.sync_warning] if evaluation.sync_warning else [])):
        logger.warning(sentence)


def task_table(models: "Sequence[ModelResult]", tasks: Sequence[str]) -> Table:
    """Return a table with a row per arm and lesion and a column per metric; values are medians over seeds."""
    from hqlt_lab.experiment.lm_eval_section import order_columns
    from hqlt_lab.report.value_formatting import format_rounded

    seeds_by_title: dict[str, list[dict[str, float]]] = {}  # title of the row -> metrics of each seed
    for model in models:
        for prefix, suffix in (("", ""), ("without_fw/", " without fw"), ("without_kv/", " without kv")):
            metrics = {
                name.removeprefix(prefix): value
                for name, value in model.metrics.items()
                if is_eval_metric(name, prefix)
            }
            if metrics or not prefix:
                seeds_by_title.setdefault(model.arm + suffix, []).append(metrics)
    names = (name for seeds in seeds_by_title.values() for metrics in seeds for name in metrics)
    columns = order_columns(names, tasks)
    table = Table("arm", "seeds", *columns.values(), box=None, pad_edge=False)
    for title, seeds in seeds_by_title.items():
        values_by_column = [[metrics[name] for metrics in seeds if name in metrics] for name in columns]
        numbers = [
            format_rounded(float(median(values)), name) if values else ""
            for name, values in zip(columns, values_by_column, strict=True)
        ]
        table.add_row(escape(title), str(len(seeds)), *numbers)
    return table


def is_eval_metric(name: str, prefix: str) -> bool:
    return name.startswith(f"{prefix}eval/")


@contextmanager
def task_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress on standard error, as a bar on a terminal, else as a line per task; yield the callback."""
    with Progress(console=stderr_console, transient=True, disable=not stderr_console.is_interactive) as progress:
        bar, last_title = progress.add_task("evaluating"), ""

        def on_progress(title: str, done: int, total: int) -> None:
            nonlocal last_title
            if title != last_title and not stderr_console.is_interactive:
                logger.info(f"{title} ({total} rows)")
            last_title = title
            progress.update(bar, description=escape(title), completed=done, total=total)

        yield on_progress
