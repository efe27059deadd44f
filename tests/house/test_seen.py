"""What a person sees of a study: its report as a page, and MLflow's view of it, in a real browser."""

import os

import pytest

import hqlt_lab as lab
from hqlt_lab.api import links, tracker_of
from hqlt_lab.report.page import TEMPLATES
from hqlt_lab.track.ports import any_port
from hqlt_lab.track.server import serve
from tests.house.browser import chromium, opened

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        chromium() is None,
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
METRIC = "test/normalised_accuracy"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A small study that was run."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("seen"))
    with open("study.yaml", "w") as file:
        file.write(STUDY)
    finished = lab.run("study.yaml")
    assert finished.complete and finished.untracked is None
    yield finished
    os.chdir(before)


@pytest.fixture(scope="module")
def link(done):
    """Where MLflow shows it."""
    with serve(tracker_of("runs"), any_port("127.0.0.1")) as address:
        [(name, link)] = links(address)
        assert name == "study"
        yield link


def test_mlflow_shows_our_sections_with_their_charts_drawn(link):
    with opened(link, height=1800) as window:
        for section in ("Curves", "Results"):
            window.page.get_by_text(section, exact=True).filter(visible=True).first.wait_for()
        for number in range(4):  # training loss, selected metric, parallel coordinates, reported metric
            window.page.locator(".js-plotly-plot, .parcoords").nth(number).wait_for()
        window.page.locator(".js-plotly-plot .scatterlayer path.js-line").first.wait_for()
        assert window.count(".js-plotly-plot .scatterlayer path.js-line") >= 4  # a curve per cell
        for metric in ("train/loss", "valid/normalised_accuracy", METRIC):
            window.page.get_by_text(metric, exact=True).filter(visible=True).first.wait_for()
        assert window.hosts == {"127.0.0.1"}


def test_mlflow_lists_every_cell_with_its_arm_seed_and_results(link):
    with opened(link.replace("CHART", "TABLE")) as window:
        for column in ("params.`arm`", "params.`seed`", f"metrics.`{METRIC}`", "tags.`hqlt.status`"):
            window.page.locator(f'[role=columnheader][col-id="{column}"]').wait_for()
        window.page.locator('[role=gridcell][col-id="tags.`hqlt.status`"]').nth(3).wait_for()
        cells = zip(
            *(window.texts(f'[role=gridcell][col-id="params.`{name}`"]') for name in ("arm", "seed")), strict=True
        )
        assert sorted(cells) == [("sum", "0"), ("sum", "1"), ("vector", "0"), ("vector", "1")]
        assert all(window.texts(f'[role=gridcell][col-id="metrics.`{METRIC}`"]'))
        assert set(window.texts('[role=gridcell][col-id="tags.`hqlt.status`"]')) == {"done"}
        assert window.hosts == {"127.0.0.1"}


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_says_question_answer_table_and_figures_without_asking_anyone(done, width):
    with opened((done.folder / "report.html").as_uri(), width=width) as window:
        assert window.texts("h1") == [QUESTION]
        assert window.texts(".answer") == [done.report.answer]
        arms = window.page.locator("table").first.locator("tbody tr th").all_inner_texts()
        assert [arm.strip() for arm in arms] == ["sum", "vector"]
        figures = window.page.locator("figure svg").all()
        assert figures and len(figures) == window.count("figure")
        for figure in figures:
            box = figure.bounding_box()
            assert figure.is_visible() and box["width"] > 200 and box["height"] > 50
        assert window.page.evaluate("document.documentElement.scrollWidth") <= width
        assert window.errors == []
        assert window.hosts == set()


def test_a_column_is_sorted_by_what_its_numbers_mean(tmp_path):
    lines = zip(("1.47B", "950", "399M", "595k"), ("1.2 GB", "520 B", "3.4 MB", "24.6 kB"), strict=True)
    body = "".join(f"<tr><td>{number}</td><td>{size}</td></tr>" for number, size in lines)
    table = f"<table class=sortable><thead><tr><th>number</th><th>size</th></tr></thead><tbody>{body}</tbody></table>"
    (tmp_path / "page.html").write_text(f"{table}<script>{(TEMPLATES / 'page.js').read_text()}</script>")
    with opened((tmp_path / "page.html").as_uri()) as window:
        for name in ("number", "size"):
            head = window.page.get_by_role("button", name=name)
            head.click()
            assert window.texts("td:nth-child(1)") == ["950", "595k", "399M", "1.47B"]
            assert window.texts("td:nth-child(2)") == ["520 B", "24.6 kB", "3.4 MB", "1.2 GB"]
            head.click()  # and back: the largest first
            assert window.texts("td:nth-child(1)") == ["1.47B", "399M", "595k", "950"]


def test_the_browser_hears_of_errors_and_requests(tmp_path):
    (tmp_path / "page.html").write_text("<script>console.error('oh')</script><img src='http://127.0.0.1:9/x.png'>")
    with opened((tmp_path / "page.html").as_uri()) as window:
        assert "oh" in window.errors and window.hosts == {"127.0.0.1"}
