"""Read from a cell's folder what MLflow gets besides metrics.jsonl: times, tags, cost, evaluations and artifacts."""

from pathlib import Path

from hqlt_lab.rundir import cell_file, diagnostics, evaluations, lm_eval_results, outcome
from hqlt_lab.rundir import metrics as metrics_file
from hqlt_lab.rundir.diagnostics import read_backends, read_determinism_check
from hqlt_lab.rundir.evaluations import list_evaluations, read_long_context_curves
from hqlt_lab.rundir.lm_eval_results import (
    collect_metric_values,
    latest_complete_results,
    lesion_prefix,
    read_task_results,
)
from hqlt_lab.rundir.metrics import MetricsRow
from hqlt_lab.rundir.outcome import read_outcome

ARTIFACT_FILES = (
    cell_file.CELL_FILE,
    outcome.OUTCOME_FILE,
    diagnostics.OPS_FILE,
    diagnostics.DETERMINISM_FILE,
    diagnostics.PROBES_FILE,
    evaluations.EVALUATIONS_FILE,
    lm_eval_results.LM_EVAL_FILE,
    evaluations.LONG_CONTEXT_FILE,
    "log.txt",
    "process.log",
    "episode.gif",
)


def start_time_ms(folder: Path) -> int | None:
    """Return the time of the first metrics row, or else of cell.json, in milliseconds."""
    rows, _ = metrics_file.read_rows(folder, max_bytes=100_000)
    return rows[0].time if rows else modified_time_ms(folder / cell_file.CELL_FILE)


def end_time_ms(folder: Path) -> int | None:
    """Return the modification time of outcome.json, or else of metrics.jsonl, in milliseconds."""
    return modified_time_ms(folder / outcome.OUTCOME_FILE) or modified_time_ms(folder / metrics_file.METRICS_FILE)


def modified_time_ms(file: Path) -> int | None:
    """Return the modification time of a file in milliseconds; None if it does not exist."""
    return file.stat().st_mtime_ns // 1_000_000 if file.exists() else None


def read_results_text(folder: Path) -> str:
    """Return the concatenated text of the result files that exist, to detect changes."""
    files = [
        folder / name
        for name in (
            outcome.OUTCOME_FILE,
            evaluations.EVALUATIONS_FILE,
            lm_eval_results.LM_EVAL_FILE,
            evaluations.LONG_CONTEXT_FILE,
        )
    ]
    return "".join(file.read_text() for file in files if file.exists())


def runtime_tags(folder: Path) -> dict[str, str]:
    """Return the tags known once the run has started: {"scan": "torch", "repeatable": "true", ...}."""
    check = read_determinism_check(folder)
    return read_backends(folder) | ({} if check is None else {"repeatable": str(check.repeatable).lower()})


def outcome_rows(folder: Path) -> list[MetricsRow]:
    """Return the cost of the run, and the metrics of its outcome if there is no metrics.jsonl with them."""
    result = read_outcome(folder)
    if result is None:
        return []
    cost = {
        "cost/seconds": result.seconds,
        "cost/tokens_per_second": result.tokens_per_second,
        "cost/parameters": float(result.parameters),
        "cost/state_bytes": float(result.state_bytes),
        "cost/flops_per_token": result.flops_per_token,
    }
    metrics = cost if metrics_file.metrics_file_size(folder) else cost | result.metrics
    return [MetricsRow(result.step, end_time_ms(folder) or 0, metrics)]


def evaluation_rows(folder: Path) -> list[MetricsRow]:
    """Return later evaluations of the cell as rows, without metrics that are in its outcome.

    These are evaluations of splits (without_fw/test/accuracy), lm-eval results (eval/piqa/acc) and long-context curves,
    each with the time at which it was measured.
    """
    result = read_outcome(folder)
    step, outcome_metrics = (result.step, result.metrics) if result else (0, {})
    rows = []
    for evaluation in list_evaluations(folder):
        prefix = lesion_prefix(evaluation.lesion)
        metrics = {
            prefix + name: value for name, value in evaluation.metrics.items() if prefix or name not in outcome_metrics
        }
        rows.append(MetricsRow(step, evaluation.time, metrics))
    metric_values = collect_metric_values(latest_complete_results(read_task_results(folder)))
    rows += [MetricsRow(step, metric.time, {name: metric.value}) for name, metric in metric_values.items()]
    return rows + long_context_rows(folder)


def long_context_rows(folder: Path) -> list[MetricsRow]:
    """Return long-context curves as rows, such as long/loss_by_position, with the axis value as MLflow's step."""
    curves = read_long_context_curves(folder)
    return [MetricsRow(int(x), curve.time, {f"long/{curve.title}": y}) for curve in curves for x, y in curve.points]


def artifact_paths(folder: Path) -> list[Path]:
    """Return the files to upload as artifacts: those in the folder, then the lm-eval samples."""
    return [folder / name for name in ARTIFACT_FILES if (folder / name).exists()] + sample_paths(folder)


def sample_paths(folder: Path) -> list[Path]:
    """Return the files with the documents and answers of lm-eval tasks, one per task."""
    return sorted((folder / lm_eval_results.SAMPLES_DIR).glob("*.jsonl"))
