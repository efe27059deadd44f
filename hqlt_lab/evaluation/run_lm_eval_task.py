"""Evaluate one model on one lm-eval task and convert the results to metrics, with the evaluation protocol.

acc,none 0.662  ->  eval/piqa/acc 66.2        accuracies are in percent, as in the paper; other metrics are unchanged
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import stdev
from typing import Any, NamedTuple

import datasets
import lm_eval.api.task
from lm_eval.evaluator import evaluate

from hqlt_lab.evaluation.lm_eval_model import LmEvalModel
from hqlt_lab.evaluation.lm_eval_tasks import hash_task_config, load_tasks
from hqlt_lab.experiment.lm_eval_section import PERCENT_METRICS
from hqlt_lab.hashing import hash_json
from hqlt_lab.rundir.lm_eval_results import EvalProtocol


class TaskRunResult(NamedTuple):
    """Metrics, protocol and samples of one task."""

    metrics: dict[str, float]
    standard_errors: dict[str, float]  # over the documents, for metrics that are means over documents
    protocol: EvalProtocol
    num_truncated: int  # texts longer than the context
    samples: list[dict[str, Any]]


def evaluate_task(model: LmEvalModel, name: str, local_folder: Path | None, protocol: EvalProtocol) -> TaskRunResult:
    """Evaluate a model on a task, on all documents or on the first `protocol.limit`."""
    model.num_truncated = 0
    with silence_lm_eval():
        tasks = load_tasks(name, local_folder, model.text_model)
        # not simple_evaluate, which reseeds torch, numpy and random
        output: Any = evaluate(model, tasks, limit=protocol.limit, bootstrap_iters=0)
    samples = [{"task": task} | sample for task, task_samples in output["samples"].items() for sample in task_samples]
    hashes = {task_name: hash_task_config(task) for task_name, task in tasks["tasks"].items()}
    return TaskRunResult(
        metrics=dict(flatten_metrics(output["results"])),
        standard_errors=compute_standard_errors(samples),
        protocol=replace(
            protocol,
            version=", ".join(dict.fromkeys(str(version) for version in output["versions"].values())),
            config=next(iter(hashes.values())) if len(hashes) == 1 else hash_json(hashes),
            data=hash_json([sample["doc_hash"] for sample in samples]),
            documents=sum(counts["effective"] for counts in output["n-samples"].values()),
            shots=max(output["n-shot"].values(), default=0) or 0,
        ),
        num_truncated=model.num_truncated,
        samples=samples,
    )


def flatten_metrics(results: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Yield metrics as eval/TASK/METRIC or eval/TASK/METRIC/FILTER."""
    for task, task_results in results.items():
        for key, value in task_results.items():
            metric, _, filter_name = key.partition(",")
            if filter_name and not metric.endswith("_stderr") and isinstance(value, int | float):
                name = f"eval/{task}/{metric}" + (f"/{filter_name}" if filter_name != "none" else "")
                yield name, float(value) * (100 if metric in PERCENT_METRICS else 1)


def compute_standard_errors(samples: list[dict[str, Any]]) -> dict[str, float]:
    """Return the standard errors of the accuracies over the documents."""
    values: dict[str, list[float]] = {}
    for sample in samples:
        for metric in set(sample["metrics"]) & set(PERCENT_METRICS):
            suffix = f"/{sample['filter']}" if sample["filter"] != "none" else ""
            values.setdefault(f"eval/{sample['task']}/{metric}{suffix}", []).append(100 * float(sample[metric]))
    return {name: stdev(scores) / sqrt(len(scores)) for name, scores in values.items() if len(scores) > 1}


@contextmanager
def silence_lm_eval() -> Iterator[None]:
    """Suppress the log messages and progress bars of lm-eval and datasets."""
    logger, bars_were_disabled = logging.getLogger("lm_eval"), datasets.utils.are_progress_bars_disabled()
    level, original_tqdm = logger.level, lm_eval.api.task.tqdm
    logger.setLevel(logging.ERROR)
    datasets.utils.disable_progress_bars()
    lm_eval.api.task.tqdm = lambda documents, **_: documents
    try:
        yield
    finally:
        logger.setLevel(level)
        lm_eval.api.task.tqdm = original_tqdm
        if not bars_were_disabled:
            datasets.utils.enable_progress_bars()
