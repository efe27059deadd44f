"""The report page of a study and its view in MLflow, opened in a real browser."""

import os

import pytest

import hqlt_lab as lab
from hqlt_lab.api import list_study_links, resolve_tracking_store
from hqlt_lab.report.render.html_page import TEMPLATES_DIR
from hqlt_lab.track.ui.network import find_free_port
from hqlt_lab.track.ui.server import serve_ui
from tests.project.browser import find_chromium, open_page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_chromium() is None,
        reason="No browser: `apt-get install -y --no-install-recommends chromium`, or put Google Chrome on the PATH.",
    ),
]
QUESTION = "Which mixer counts <best>?"
STUDY = f"""
question: {QUESTION}
task: {{name: parity, train_length: [3, 8], test_length: [8, 16], eval_size: 16}}
model:
  {{width: 8, heads: 1, layers: 1, mlp_width: 8, timing: {{name: synchronous, window: 4}}, mixer: sum, positions: none}}
train: {{steps: 20, batch_size: 4, lr: 1e-2, valid_every: 5, log_every: 1}}
trainer: {{accelerator: cpu}}
launcher: {{workers: 2, threads: 1}}
arms: {{sum: {{}}, vector: {{model.mixer: vector}}}}
seeds: 2
"""
METRIC = "test/normalized_accuracy"


@pytest.fixture(scope="module")
def finished_study(tmp_path_factory):
    """Result of a small study."""
    previous_folder = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("study"))
    with open("study.yaml", "w") as file:
        file.write(STUDY)
    result = lab.run("study.yaml")
    assert result.complete and result.sync_warning is None
    yield result
    os.chdir(previous_folder)


@pytest.fixture(scope="module")
def link(finished_study):
    """URL of the study in MLflow."""
    with serve_ui(resolve_tracking_store("runs"), find_free_port("127.0.0.1")) as address:
        [(name, link)] = list_study_links(address)
        assert name == "study"
        yield link


def test_mlflow_shows_the_saved_sections_with_their_charts(link):
    with open_page(link, height=1800) as window:
        for section in ("Curves", "Results"):
            window.page.get_by_text(section, exact=True).filter(visible=True).first.wait_for()
        for number in range(4):  # training loss, selected metric, parallel coordinates, reported metric
            window.page.locator(".js-plotly-plot, .parcoords").nth(number).wait_for()
        window.page.locator(".js-plotly-plot .scatterlayer path.js-line").first.wait_for()
        assert window.count_elements(".js-plotly-plot .scatterlayer path.js-line") >= 4  # one per cell
        for metric in ("train/loss", "valid/normalized_accuracy", METRIC):
            window.page.get_by_text(metric, exact=True).filter(visible=True).first.wait_for()
        assert window.contacted_hosts == {"127.0.0.1"}


def test_mlflow_lists_every_cell_with_its_arm_seed_and_results(link):
    with open_page(link.replace("CHART", "TABLE")) as window:
        for column in ("params.`arm`", "params.`seed`", f"metrics.`{METRIC}`", "tags.`hqlt.status`"):
            window.page.locator(f'[role=columnheader][col-id="{column}"]').wait_for()
        window.page.locator('[role=gridcell][col-id="tags.`hqlt.status`"]').nth(3).wait_for()
        cells = zip(
            *(window.read_texts(f'[role=gridcell][col-id="params.`{name}`"]') for name in ("arm", "seed")), strict=True
        )
        assert sorted(cells) == [("sum", "0"), ("sum", "1"), ("vector", "0"), ("vector", "1")]
        assert all(window.read_texts(f'[role=gridcell][col-id="metrics.`{METRIC}`"]'))
        assert set(window.read_texts('[role=gridcell][col-id="tags.`hqlt.status`"]')) == {"done"}
        assert window.contacted_hosts == {"127.0.0.1"}


@pytest.mark.parametrize("width", [1280, 390])
def test_report_page_has_question_answer_table_and_figures_without_network_requests(finished_study, width):
    with open_page((finished_study.folder / "report.html").as_uri(), width=width) as window:
        assert window.read_texts("h1") == [QUESTION]
        assert window.read_texts(".answer p")[0] == finished_study.report.answer.summary
        arms = window.page.locator("table").first.locator("tbody tr th").all_inner_texts()
        assert [arm.strip() for arm in arms] == ["sum", "vector"]
        figures = window.page.locator("figure svg").all()
        assert figures and len(figures) == window.count_elements("figure")
        for figure in figures:
            box = figure.bounding_box()
            assert figure.is_visible() and box["width"] > 200 and box["height"] > 50
        assert window.page.evaluate("document.documentElement.scrollWidth") <= width
        assert window.errors == []
        assert window.contacted_hosts == set()


def test_columns_are_sorted_by_numerical_value(tmp_path):
    lines = zip(("1.47B", "950", "399M", "595k"), ("1.2 GB", "520 B", "3.4 MB", "24.6 kB"), strict=True)
    body = "".join(f"<tr><td>{number}</td><td>{size}</td></tr>" for number, size in lines)
    table = f"<table class=sortable><thead><tr><th>number</th><th>size</th></tr></thead><tbody>{body}</tbody></table>"
    (tmp_path / "page.html").write_text(f"{table}<script>{(TEMPLATES_DIR / 'page.js').read_text()}</script>")
    with open_page((tmp_path / "page.html").as_uri()) as window:
        for name in ("number", "size"):
            head = window.page.get_by_role("button", name=name)
            head.click()
            assert window.read_texts("td:nth-child(1)") == ["950", "595k", "399M", "1.47B"]
            assert window.read_texts("td:nth-child(2)") == ["520 B", "24.6 kB", "3.4 MB", "1.2 GB"]
            head.click()  # descending
            assert window.read_texts("td:nth-child(1)") == ["1.47B", "399M", "595k", "950"]


def test_browser_records_errors_and_requests(tmp_path):
    (tmp_path / "page.html").write_text("<script>console.error('oh')</script><img src='http://127.0.0.1:9/x.png'>")
    with open_page((tmp_path / "page.html").as_uri()) as window:
        assert "oh" in window.errors and window.contacted_hosts == {"127.0.0.1"}
