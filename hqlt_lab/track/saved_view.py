"""The saved view of a study in MLflow's UI: its columns, filter, order and charts.

MLflow stores a shared view as JSON in a tag of the experiment and opens it by the tag's key.  The format is that of
MLflow 3.17 and is not documented: a version that does not support it shows its default view.
"""

from typing import Any
from urllib.parse import quote, urlencode

from hqlt_lab.track.study_description import StudyInfo
from hqlt_lab.track.tags import sanitize_key

VIEW_KEY = "hqlt"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW_KEY}"
SPEED_METRIC = "cost/tokens_per_second"
MAX_CHART_RUNS = 100  # runs in one chart
MAX_CHART_LAYERS = 8  # layers in one chart


def study_url(server_url: str, experiment_id: str) -> str:
    """Return the URL of a study's saved view."""
    query = urlencode({"workflowType": "machine_learning", "viewStateShareKey": VIEW_KEY, "compareRunsMode": "CHART"})
    return f"{server_url.rstrip('/')}/#/experiments/{quote(experiment_id)}/runs?{query}"


def build_view(study: StudyInfo) -> dict[str, Any]:
    """Return the state of MLflow's page for a study."""
    select, report = sanitize_key(study.select), [sanitize_key(name) for name in study.report]
    axes = [sanitize_key(name) for name in study.axes]
    sections = {"curves": "Curves", "results": "Results"} | ({"memories": "Memories"} if study.layers else {})
    charts = [
        line_chart("train", "train/loss"),
        line_chart("select", select),
        parallel_chart("axes", ["arm", *axes], [*report, select]),
        *(bar_chart(f"report{index}", name) for index, name in enumerate(report)),
        *(layer_chart(name, study.layers) for name in ("share", "state_rank") if study.layers),
    ]
    return {
        "searchFilter": "tags.`hqlt.kind` = 'cell' and tags.`hqlt.status` != 'superseded'",
        "orderByKey": f"metrics.`{report[0] if report else select}`",
        "orderByAsc": study.direction == "minimize",
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": selected_columns(axes, select, report),
        "runsExpanded": {},
        "runsPinned": [],
        "runsHidden": [],
        "runsHiddenMode": "SHOWALL",
        "runListHidden": False,
        "viewMaximized": True,
        "isAccordionReordered": True,  # otherwise MLflow sorts these sections among its default ones
        "compareRunSections": [chart_section(uuid, name) for uuid, name in sections.items()],
        "compareRunCharts": charts,
        "chartsSearchFilter": "",
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
        "autoRefreshEnabled": True,
        "groupBy": None,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
    }


def selected_columns(axes: list[str], select: str, report: list[str]) -> list[str]:
    """Return the columns: arm, seed, axes, reported and selection metrics, speed, status and duration."""
    params = [f"params.`{name}`" for name in ("arm", "seed", *axes)]
    metrics = [f"metrics.`{name}`" for name in (*report, select, SPEED_METRIC)]
    return [*params, *metrics, "tags.`hqlt.status`", "attributes.`Duration`"]


def chart_section(uuid: str, name: str) -> dict[str, Any]:
    """Return a section of charts with two columns, because parallel coordinates need space."""
    return {
        "uuid": uuid, "name": name, "columns": 2, "display": True, "isReordered": False, "deleted": False,
        "isGenerated": False,
    }  # fmt: skip


def base_chart(uuid: str, kind: str, section_uuid: str) -> dict[str, Any]:
    """Return the fields that all charts have."""
    return {
        "uuid": uuid, "type": kind, "deleted": False, "isGenerated": False, "metricSectionId": section_uuid,
        "runsCountToCompare": MAX_CHART_RUNS,
    }  # fmt: skip


def layer_chart(quantity: str, layers: int) -> dict[str, Any]:
    """Return a line chart of a probe, one line per run and layer.  Deep models show some layers: tags are short."""
    shown_layers = range(0, layers, -(-layers // MAX_CHART_LAYERS))
    return line_chart(quantity, *(f"probe/layer_{layer}/{quantity}" for layer in shown_layers)) | {
        "metricSectionId": "memories"
    }


def line_chart(uuid: str, *metrics: str) -> dict[str, Any]:
    """Return a chart of metrics over steps, one line per run and metric."""
    return base_chart(uuid, "LINE", "curves") | {
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


def parallel_chart(uuid: str, params: list[str], metrics: list[str]) -> dict[str, Any]:
    """Return a parallel coordinates chart: one line per run, through its parameters and metrics."""
    options = {"selectedParams": params, "selectedMetrics": list(dict.fromkeys(metrics)), "showAllRuns": True}
    return base_chart(uuid, "PARALLEL", "results") | options


def bar_chart(uuid: str, metric: str) -> dict[str, Any]:
    """Return a bar chart of a metric, one bar per run."""
    return base_chart(uuid, "BAR", "results") | {"metricKey": metric}
