"""The saved view of a study in the MLflow UI, its URL, and the server."""

import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from hqlt_lab.errors import StoreError
from hqlt_lab.track.mlflow_sync import sync_study
from hqlt_lab.track.saved_view import VIEW_TAG, build_view, study_url
from hqlt_lab.track.tracking_store import TrackingStore
from hqlt_lab.track.ui import network
from hqlt_lab.track.ui.server import serve_ui
from tests.track.conftest import make_cell, write_outcome, write_points


def test_the_view_has_the_columns_and_charts_of_the_study(study):
    view = build_view(study)
    assert view["selectedColumns"][:4] == ["params.`arm`", "params.`seed`", "params.`mixer`", "params.`lr`"]
    assert {"metrics.`test/accuracy`", "metrics.`valid/accuracy`", "tags.`hqlt.status`"} < set(view["selectedColumns"])
    assert (view["orderByKey"], view["orderByAsc"]) == ("metrics.`test/accuracy`", False)
    charts = {chart["uuid"]: chart for chart in view["compareRunCharts"]}
    assert charts["select"]["metricKey"] == "valid/accuracy"
    assert charts["axes"]["selectedParams"] == ["arm", "mixer", "lr"]
    sections = {section["uuid"] for section in view["compareRunSections"]}
    assert {chart["metricSectionId"] for chart in charts.values()} == sections


def test_the_view_shows_probes_of_the_memories_and_some_layers_of_deep_models(study):
    for layers, shown in ((2, [0, 1]), (24, list(range(0, 24, 3)))):
        view = build_view(replace(study, layers=layers))
        charts = {chart["uuid"]: chart for chart in view["compareRunCharts"]}
        assert charts["share"]["selectedMetricKeys"] == [f"probe/layer_{layer}/share" for layer in shown]
        assert charts["share"]["metricSectionId"] == "memories" == view["compareRunSections"][-1]["uuid"]
        assert len(json.dumps(view)) < 5000


def test_the_view_is_stored_with_the_experiment(reader, study, send_cells):
    send_cells(make_cell(study))
    stored = reader.client.get_experiment_by_name(study.name).tags[VIEW_TAG]
    assert json.loads(stored) == build_view(study)
    assert len(stored) < 5000  # the limit of all MLflow stores


def test_the_study_url_opens_the_view():
    url = study_url("http://127.0.0.1:5000/", "3")
    assert url.startswith("http://127.0.0.1:5000/#/experiments/3/runs?workflowType=machine_learning")
    assert "viewStateShareKey=hqlt" in url


def test_a_remote_store_needs_no_server():
    with serve_ui(TrackingStore("https://mlflow.example.org"), 5000) as url:
        assert url == "https://mlflow.example.org"


def commands_containing(text: str) -> list[str]:
    """Return the command lines of running processes that contain this text."""
    commands = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(file.read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [command for command in commands if text in command and str(os.getpid()) not in command]


def test_a_requested_port_is_used_or_refused():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(StoreError, match=f"--port {port}: the port is in use. Use another"):
            network.select_port("127.0.0.1", port)
    assert network.select_port("127.0.0.1", port) == port


@pytest.mark.slow
def test_the_server_uses_another_port_if_its_default_is_taken_and_leaves_no_process_behind(
    tracking_store, study, reader, monkeypatch
):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(network, "DEFAULT_PORT", port)
        with serve_ui(tracking_store) as url:
            assert not url.endswith(f":{port}")
            assert urlopen(f"{url}/health", timeout=5).read() == b"OK"
            port_option = f"--port {url.rpartition(':')[2]} "
            assert commands_containing(port_option)  # the store URI is in its environment, which others cannot read
            cell = make_cell(study, state="done")
            write_points(cell, 1, 5)
            write_outcome(cell, 5)
            assert sync_study(TrackingStore(url), study, [cell]) is None
            assert sync_study(TrackingStore(url), study, [cell]) is None
    assert commands_containing(port_option) == []
    assert reader.metric_steps(study) == [1, 2, 3, 4, 5]  # sent through the server
    assert "outcome.json" in reader.artifact_names(reader.search_runs(study)[0])


@pytest.mark.slow
def test_a_server_that_cannot_start_raises_an_error(tmp_path):
    with pytest.raises(StoreError, match="did not start"), serve_ui(TrackingStore("nonsense://nowhere"), 0):
        pass
