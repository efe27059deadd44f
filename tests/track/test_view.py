"""How a study is looked at: the saved view, its link, and the server behind them."""

import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from hqlt_lab.errors import StoreError
from hqlt_lab.track import ports
from hqlt_lab.track.courier import catch_up
from hqlt_lab.track.server import serve
from hqlt_lab.track.store import Tracker
from hqlt_lab.track.view import TAG, link, view_of
from tests.track.conftest import card, end, train


def test_the_view_has_our_columns_and_charts(study):
    view = view_of(study)
    assert view["selectedColumns"][:4] == ["params.`arm`", "params.`seed`", "params.`mixer`", "params.`lr`"]
    assert {"metrics.`test/accuracy`", "metrics.`valid/accuracy`", "tags.`hqlt.status`"} < set(view["selectedColumns"])
    assert (view["orderByKey"], view["orderByAsc"]) == ("metrics.`test/accuracy`", False)
    charts = {chart["uuid"]: chart for chart in view["compareRunCharts"]}
    assert charts["select"]["metricKey"] == "valid/accuracy"
    assert charts["axes"]["selectedParams"] == ["arm", "mixer", "lr"]
    sections = {section["uuid"] for section in view["compareRunSections"]}
    assert {chart["metricSectionId"] for chart in charts.values()} == sections


def test_the_view_shows_what_the_memories_do_and_of_deep_models_some_layers(study):
    for layers, shown in ((2, [0, 1]), (24, list(range(0, 24, 3)))):
        view = view_of(replace(study, layers=layers))
        charts = {chart["uuid"]: chart for chart in view["compareRunCharts"]}
        assert charts["share"]["selectedMetricKeys"] == [f"probe/layer_{layer}/share" for layer in shown]
        assert charts["share"]["metricSectionId"] == "memories" == view["compareRunSections"][-1]["uuid"]
        assert len(json.dumps(view)) < 5000


def test_the_view_is_kept_with_the_experiment(look, study, mirrored):
    mirrored(card(study))
    kept = look.client.get_experiment_by_name(study.name).tags[TAG]
    assert json.loads(kept) == view_of(study)
    assert len(kept) < 5000  # what every kind of MLflow store takes


def test_the_link_opens_the_view():
    told = link("http://127.0.0.1:5000/", "3")
    assert told.startswith("http://127.0.0.1:5000/#/experiments/3/runs?workflowType=machine_learning")
    assert "viewStateShareKey=hqlt" in told


def test_a_store_behind_a_server_needs_none():
    with serve(Tracker("https://mlflow.example.org"), 5000) as address:
        assert address == "https://mlflow.example.org"


def processes(word: str) -> list[str]:
    """Commands that name this."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [command for command in found if word in command and str(os.getpid()) not in command]


def test_a_port_that_was_asked_for_is_taken_or_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StoreError, match=f"--port {port}: it is in use. Take another"):
            ports.port_for("127.0.0.1", port)
    assert ports.port_for("127.0.0.1", port) == port


@pytest.mark.slow
def test_the_server_answers_elsewhere_if_its_usual_port_is_taken_and_leaves_nothing_behind(
    tracker, study, look, monkeypatch
):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "PORT", port)
        with serve(tracker) as address:
            assert not address.endswith(f":{port}")
            assert urlopen(f"{address}/health", timeout=5).read() == b"OK"
            named = f"--port {address.rpartition(':')[2]} "
            assert processes(named)  # its store is told in its environment, which others cannot read
            cell = card(study, state="done")
            train(cell, 1, 5)
            end(cell, 5)
            assert catch_up(Tracker(address), study, [cell]) is None
            assert catch_up(Tracker(address), study, [cell]) is None
    assert processes(named) == []
    assert look.steps(study) == [1, 2, 3, 4, 5]  # a mirror behind a server is the same mirror
    assert "outcome.json" in look.files(look.runs(study)[0])


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(tmp_path):
    with pytest.raises(StoreError, match="did not start"), serve(Tracker("nonsense://nowhere"), 0):
        pass
