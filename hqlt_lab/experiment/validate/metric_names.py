"""Check that the metrics named in the `measure` section exist.

The names are read from the raw section, so that they are checked even if other settings of the section are invalid.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hqlt_lab.errors import ConfigIssue, did_you_mean, format_names, join_sentences
from hqlt_lab.experiment.lm_eval_section import is_task_metric
from hqlt_lab.experiment.run_settings import MeasureConfig

RequestedMetrics = Mapping[str, Sequence[str]]  # measure.select, measure.report -> names


def collect_metric_names(measure: Any) -> RequestedMetrics:
    """Return the metric names in `select` and `report` of the raw section, with defaults. Invalid types are ignored."""
    settings = {**vars(MeasureConfig()), **(measure if isinstance(measure, Mapping) else {})}
    select, report = settings["select"], settings["report"]
    reported = [metric for metric in report if isinstance(metric, str)] if isinstance(report, list) else []
    # MeasureConfig rejects a test metric and suggests the validation metric, so check that this one exists
    selected = [re.sub("^test/", "valid/", select)] if isinstance(select, str) else []
    return {"measure.select": selected, "measure.report": reported}


def list_task_metrics(task: Any) -> list[str]:
    """Return all metrics of a task as split/name."""
    names = task.metric_names if task.is_environment else [*task.metric_names, "loss"]
    prefixes = ("valid/", "test/", *(["valid/short_"] if "short" in task.splits else []))
    return [f"{prefix}{name}" for prefix in prefixes for name in names]


def find_unknown_metrics(task: Any, requested: RequestedMetrics) -> list[ConfigIssue]:
    """Return one issue for each metric that the task does not have. lm-eval metrics can be reported, not selected."""
    issues: list[ConfigIssue] = []
    defaults = [metric for names in collect_metric_names(None).values() for metric in names]
    for setting, metrics in requested.items():
        is_selection = setting == "measure.select"
        names = [name for name in list_task_metrics(task) if name.startswith("valid/") or not is_selection]
        issues += [
            ConfigIssue(
                setting,
                "unknown_metric",
                f"there is no metric {metric!r}{', the default' if metric in defaults else ''}.",
                join_sentences(did_you_mean(metric, names), f"Metrics: {format_names(names)}."),
            )
            for metric in metrics
            if metric not in names and (is_selection or not is_task_metric(metric))
        ]
    return issues
