"""The saved view of a study in MLflow's browser: its columns, filter, order and charts.

MLflow keeps a shared view as JSON in a tag of the experiment and opens it by the tag's key.  The form is that of
MLflow 3.17 and is not documented: a version that does not know it shows its own view, and nothing else breaks.
"""

from typing import Any
from urllib.parse import quote, urlencode

from hqlt_lab.track.card import StudyCard
from hqlt_lab.track.words import clean

KEY = "hqlt"
TAG = f"mlflow.sharedViewState.{KEY}"
SPEED = "cost/tokens_per_second"
RUNS = 100  # that a chart compares
LAYERS = 8  # that a chart shows


def link(base: str, experiment: str) -> str:
    """Where a study is looked at; `base` is the address of the server."""
    words = urlencode({"workflowType": "machine_learning", "viewStateShareKey": KEY, "compareRunsMode": "CHART"})
    return f"{base.rstrip('/')}/#/experiments/{quote(experiment)}/runs?{words}"


def view_of(study: StudyCard) -> dict[str, Any]:
    """The state that MLflow's page is put into."""
    select, report = clean(study.select), [clean(name) for name in study.report]
    axes = [clean(name) for name in study.axes]
    sections = {"curves": "Curves", "results": "Results"} | ({"memories": "Memories"} if study.layers else {})
    charts = [
        line("train", "train/loss"),
        line("select", select),
        parallel("axes", ["arm", *axes], [*report, select]),
        *(bar(f"report{number}", name) for number, name in enumerate(report)),
        *(of_layers(name, study.layers) for name in ("share", "state_rank") if study.layers),
    ]
    return {
        "searchFilter": "tags.`hqlt.kind` = 'cell' and tags.`hqlt.status` != 'superseded'",
        "orderByKey": f"metrics.`{report[0] if report else select}`",
        "orderByAsc": study.direction == "minimize",
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": columns(axes, select, report),
        "runsExpanded": {},
        "runsPinned": [],
        "runsHidden": [],
        "runsHiddenMode": "SHOWALL",
        "runListHidden": False,
        "viewMaximized": True,
        "isAccordionReordered": True,  # else MLflow sorts our sections among its own
        "compareRunSections": [section(uuid, name) for uuid, name in sections.items()],
        "compareRunCharts": charts,
        "chartsSearchFilter": "",
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
        "autoRefreshEnabled": True,
        "groupBy": None,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
    }


def columns(axes: list[str], select: str, report: list[str]) -> list[str]:
    """Arm, seed and axes; what is selected by and reported; how fast; how it stands."""
    params = [f"params.`{name}`" for name in ("arm", "seed", *axes)]
    metrics = [f"metrics.`{name}`" for name in (*report, select, SPEED)]
    return [*params, *metrics, "tags.`hqlt.status`", "attributes.`Duration`"]


def section(uuid: str, name: str) -> dict[str, Any]:
    """A heading with charts under it, two in a row: parallel coordinates need room."""
    return {
        "uuid": uuid, "name": name, "columns": 2, "display": True, "isReordered": False, "deleted": False,
        "isGenerated": False,
    }  # fmt: skip


def chart(uuid: str, kind: str, section: str) -> dict[str, Any]:
    """What all charts have."""
    return {
        "uuid": uuid, "type": kind, "deleted": False, "isGenerated": False, "metricSectionId": section,
        "runsCountToCompare": RUNS,
    }  # fmt: skip


def of_layers(quantity: str, layers: int) -> dict[str, Any]:
    """What the probes saw, a curve per run and layer; of a deep model some layers, as MLflow keeps few letters."""
    shown = range(0, layers, -(-layers // LAYERS))
    return line(quantity, *(f"probe/layer_{layer}/{quantity}" for layer in shown)) | {"metricSectionId": "memories"}


def line(uuid: str, *metrics: str) -> dict[str, Any]:
    """Metrics over the steps, a curve per run and metric."""
    return chart(uuid, "LINE", "curves") | {
        "metricKey": metrics[0],
        "selectedMetricKeys": list(metrics),
        "xAxisKey": "step",
        "scaleType": "linear",
        "xAxisScaleType": "linear",
        "lineSmoothness": 0,
        "range": {},
        "selectedXAxisMetricKey": "",
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
        "ignoreOutliers": False,
    }


def parallel(uuid: str, params: list[str], metrics: list[str]) -> dict[str, Any]:
    """A line per run, through its place on every axis to its results."""
    told = {"selectedParams": params, "selectedMetrics": list(dict.fromkeys(metrics)), "showAllRuns": True}
    return chart(uuid, "PARALLEL", "results") | told


def bar(uuid: str, metric: str) -> dict[str, Any]:
    """A bar per run."""
    return chart(uuid, "BAR", "results") | {"metricKey": metric}
