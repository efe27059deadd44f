"""Which metrics a file asks for, and whether its task has them.

They are read off the section as it is written: what else is wrong with it does not hide a name that nothing has.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hqlt_lab.errors import did_you_mean, listed
from hqlt_lab.experiment.evaluation import is_asked
from hqlt_lab.experiment.settings import MeasureConfig

Metrics = Mapping[str, Sequence[str]]  # the setting that asks -> names


def metrics_of(measure: Any) -> Metrics:
    """What is selected by and reported; a setting that is no name asks for nothing."""
    told = {**vars(MeasureConfig()), **(measure if isinstance(measure, Mapping) else {})}
    select, report = told["select"], told["report"]
    names = [metric for metric in report if isinstance(metric, str)] if isinstance(report, list) else []
    # a test metric is refused, and the sentence says which one to take instead
    chosen = [re.sub("^test/", "valid/", select)] if isinstance(select, str) else []
    return {"measure.select": chosen, "measure.report": names}


def metrics_in(task: Any) -> list[str]:
    """All that is measured of a task: split/name, with the names of the task."""
    names = task.measures if task.is_world else [*task.measures, "loss"]
    places = ("valid/", "test/", *(["valid/short_"] if "short" in task.splits else []))
    return [f"{place}{name}" for place in places for name in names]


def unknown_metrics(task: Any, asked: Metrics) -> list[str]:
    """A sentence for each that the task does not have; answers to lm-eval can be reported, and not be selected by."""
    found = []
    for place, metrics in asked.items():
        selects = place == "measure.select"
        known = [name for name in metrics_in(task) if name.startswith("valid/") or not selects]
        found += [
            f"{place}: there is no metric {metric!r}.{did_you_mean(metric, known)} Metrics: {listed(known)}."
            for metric in metrics
            if metric not in known and (selects or not is_asked(metric))
        ]
    return found
