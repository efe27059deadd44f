"""One task, asked of one model: lm-eval's results as our metrics, with the protocol that made them.

acc,none 0.662  ->  eval/piqa/acc 66.2        accuracies are percent, as in the paper; all else is as lm-eval has it
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

from hqlt_lab.evaluation.harness_model import HarnessModel
from hqlt_lab.evaluation.tasks import config_of, load_tasks
from hqlt_lab.experiment.cell import digest
from hqlt_lab.experiment.evaluation import PERCENT
from hqlt_lab.train.harness_file import Protocol


class Found(NamedTuple):
    """What came of it."""

    metrics: dict[str, float]
    errors: dict[str, float]  # standard errors over the documents, where the metric is a mean over them
    protocol: Protocol
    truncated: int
    samples: list[dict[str, Any]]


def run_task(model: HarnessModel, name: str, local: Path | None, protocol: Protocol) -> Found:
    """Ask all documents, or as many as the protocol says."""
    model.truncated = 0
    with quiet():
        tasks = load_tasks(name, local, model.text_model)
        # not simple_evaluate, which would seed torch, numpy and random anew
        found: Any = evaluate(model, tasks, limit=protocol.limit, bootstrap_iters=0)
    samples = [{"task": task} | sample for task, some in found["samples"].items() for sample in some]
    configs = {task: config_of(made) for task, made in tasks["tasks"].items()}
    one = next(iter(configs.values()))
    return Found(
        metrics=dict(named(found["results"])),
        errors=errors_of(samples),
        protocol=replace(
            protocol,
            version=", ".join(dict.fromkeys(str(version) for version in found["versions"].values())),
            config=one if len(configs) == 1 else digest(configs),
            data=digest([sample["doc_hash"] for sample in samples]),
            documents=sum(counts["effective"] for counts in found["n-samples"].values()),
            shots=max(found["n-shot"].values(), default=0) or 0,
        ),
        truncated=model.truncated,
        samples=samples,
    )


def named(results: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """eval/TASK/METRIC, and the filter where there is a choice of them."""
    for task, found in results.items():
        for key, value in found.items():
            metric, _, way = key.partition(",")
            if way and not metric.endswith("_stderr") and isinstance(value, int | float):
                name = f"eval/{task}/{metric}" + (f"/{way}" if way != "none" else "")
                yield name, float(value) * (100 if metric in PERCENT else 1)


def errors_of(samples: list[dict[str, Any]]) -> dict[str, float]:
    """Of the accuracies."""
    values: dict[str, list[float]] = {}
    for sample in samples:
        for metric in set(sample["metrics"]) & set(PERCENT):
            way = f"/{sample['filter']}" if sample["filter"] != "none" else ""
            values.setdefault(f"eval/{sample['task']}/{metric}{way}", []).append(100 * float(sample[metric]))
    return {name: stdev(some) / sqrt(len(some)) for name, some in values.items() if len(some) > 1}


@contextmanager
def quiet() -> Iterator[None]:
    """lm-eval and datasets keep their remarks to themselves."""
    logger, shown = logging.getLogger("lm_eval"), datasets.utils.are_progress_bars_disabled()
    level, bar = logger.level, lm_eval.api.task.tqdm
    logger.setLevel(logging.ERROR)
    datasets.utils.disable_progress_bars()
    lm_eval.api.task.tqdm = lambda documents, **_: documents
    try:
        yield
    finally:
        logger.setLevel(level)
        lm_eval.api.task.tqdm = bar
        if not shown:
            datasets.utils.enable_progress_bars()
