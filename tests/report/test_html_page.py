"""The HTML page is complete, self-contained, and escapes user text."""

import base64
import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from hqlt_lab.report.render.reproduction import Reproduction
from hqlt_lab.report.study_report import Report

METRIC = "test/normalized_accuracy"
HOSTILE_TEXT = "<script>alert(1)</script> \"quoted\" & 'so'"
VOID_ELEMENTS = {"meta", "link", "img", "br", "hr", "input"}


class ParsedPage(HTMLParser):
    """Collects all elements with attributes and text; elements that were not closed stay in `open`."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", "inside": [element["tag"] for element in self.open], **dict(attributes)}
        self.elements.append(element)
        if tag not in VOID_ELEMENTS:
            self.open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.elements.append({"tag": tag, "text": "", "inside": [], **dict(attributes)})

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def all(self, tag):
        return [element for element in self.elements if element["tag"] == tag]

    def texts(self, tag):
        return [" ".join(element["text"].split()) for element in self.all(tag)]


@pytest.fixture
def report(make_experiment, make_record, make_run_folder):
    """A report of three arms, one of them failed, with curves, differences and a tuned value."""
    experiment = make_experiment("seeds: 3\ntune: {train.lr: [1e-3, 1e-4]}\n")
    values = {"delta": (50.0, 52.0, 51.0), "linear": (10.0, 11.0, 12.0)}
    point, code = {"train.lr": 1e-3}, {"lab": "3f2c91", "mixer sum": "aa00"}
    records = [
        make_record(
            arm,
            seed,
            value,
            point=point,
            code=code,
            folder=make_run_folder(f"{arm}{seed}", [1.0, 0.5]),
            parameters=size,
        )
        for size, (arm, seeds) in enumerate(values.items(), 1)
        for seed, value in enumerate(seeds)
    ]
    return Report.from_records(
        experiment, [*records, make_record("retention", 0, state="failed", why="no <b>memory</b>", key="abc")]
    )


def test_the_page_holds_the_content_of_the_report(report):
    page = ParsedPage(report.to_html())
    assert not page.open and page.all("html")[0]["lang"] == "en"
    assert page.texts("h1") == [report.experiment.question] and report.answer.summary in page.texts("p")
    assert page.texts("h2") == [
        "Caveats", "Results", "Figures", "Tuning windows", "Scores of tuned values", "Chosen hyperparameters",
        "Cells without a result", "How to reproduce", "Files",
    ]  # fmt: skip
    items = [element["text"] for element in page.all("li") if "main" in element["inside"]]
    assert all(warning in items for warning in report.warnings)
    row_headers = [element["text"] for element in page.all("th") if element["scope"] == "row"]
    assert row_headers[:3] == ["delta", "linear", "retention"] and all(
        element.get("scope") for element in page.all("th")
    )
    assert {"class": "worse", "text": "significantly worse"}.items() <= next(
        element for element in page.all("span")
    ).items()
    assert "hqlt logs abc" in page.texts("td") and "no <b>memory</b>" in page.texts("td")


def test_report_displays_itself_in_a_notebook(report):
    fragment = ParsedPage(report._repr_html_())
    assert not fragment.open and not fragment.all("script") and not fragment.all("html")
    assert report.answer.summary in fragment.texts("p") and fragment.texts("li") == [
        " ".join(text.split()) for text in [*report.answer.comparisons, *report.warnings]
    ]
    row_headers = [element["text"] for element in fragment.all("th") if element["scope"] == "row"]
    assert row_headers[:3] == ["delta", "linear", "retention"]
    assert "no <b>memory</b>" in fragment.texts("td")
    assert repr(report) == report.to_markdown()


def test_every_figure_has_a_title_and_a_caption(report):
    page = ParsedPage(report.to_html())
    figures = page.all("figure")
    assert [element["id"] for element in figures] == [f"figure-{name}" for name in report.matplotlib_figures()] and len(
        figures
    ) == 4
    drawings = [element for element in page.all("svg") if element.get("role") == "img"]
    titles = [element for element in page.all("title") if "svg" in element["inside"]]
    assert len(drawings) == len(titles) == len(figures) and all(element["text"] for element in titles)
    captions = " ".join(page.texts("figcaption"))
    assert all(" ".join(figure.caption.split()) in captions for figure in report.figure_set.figures)


def test_the_page_needs_no_network_and_forbids_it(report):
    page = ParsedPage(report.to_html())
    (policy,) = [
        element["content"] for element in page.all("meta") if element.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none';")
    links = [
        element[attribute]
        for element in page.elements
        for attribute in ("src", "href", "xlink:href", "action")
        if attribute in element
    ]
    assert links and all(link.startswith(("data:", "#")) for link in links)
    assert not page.all("link") and "@import" not in report.to_html() and len(page.all("script")) == 1


def test_user_text_is_escaped(make_experiment, make_record):
    arms = f"arms: {{{json.dumps(HOSTILE_TEXT)}: {{}}, plain: {{model.mixer: sum}}}}\n"
    base = f"question: {json.dumps(HOSTILE_TEXT)}\n" + BASE_WITHOUT_QUESTION
    records = [make_record(HOSTILE_TEXT, seed, 5.0 + seed) for seed in (0, 1)]
    records += [make_record("plain", 0, 5.0), make_record("plain", 1, state="failed", why=HOSTILE_TEXT)]
    report = Report.from_records(make_experiment(arms=arms, base=base), records)
    page = ParsedPage(
        report.to_html(
            Reproduction([HOSTILE_TEXT], {"git": {"commit": HOSTILE_TEXT}, "machine": {HOSTILE_TEXT: HOSTILE_TEXT}})
        )
    )
    assert not page.open and len(page.all("script")) == 1 and "alert" not in page.all("script")[0]["text"]
    assert HOSTILE_TEXT in page.texts("h1") and HOSTILE_TEXT in page.texts("th") and HOSTILE_TEXT in page.texts("td")
    assert HOSTILE_TEXT in page.texts("code") and HOSTILE_TEXT in page.texts("dd")


BASE_WITHOUT_QUESTION = """
task: {name: parity, train_length: [3, 20], test_length: [20, 20]}
model: {width: 16, heads: 2, layers: 1, mlp_width: 16, timing: {name: synchronous, window: 4}}
"""


def test_files_can_be_downloaded_from_the_page(report):
    page = ParsedPage(report.to_html())
    link_by_name = {anchor["download"]: anchor["href"] for anchor in page.all("a")}
    texts = {name: base64.b64decode(link.split("base64,")[1]).decode() for name, link in link_by_name.items()}
    assert texts == {
        "report.csv": report.to_csv(), "report.md": report.to_markdown(), "report.tex": report.to_latex(),
        "report.json": report.to_json(),
    }  # fmt: skip


def test_the_page_shows_how_to_reproduce_the_results(report):
    provenance = {
        "git": {"commit": "c0ffee", "dirty": True, "changed": [" M a", " M b"], "diff": "secret"},
        "versions": {"python": "3.11", "torch": "2.13"},
        "machine": {"cores": 2, "gpus": ["A100", "A100"]},
    }
    text = report.to_html(Reproduction(["hqlt run a.yaml --set train.steps=3"], provenance))
    page = ParsedPage(text)
    facts = dict(zip(page.texts("dt"), page.texts("dd"), strict=True))
    assert page.texts("code") == ["hqlt run a.yaml --set train.steps=3"]
    assert facts["commit"] == "c0ffee, with uncommitted changes in 2 files" and "secret" not in text
    assert facts["libraries"] == "python 3.11, torch 2.13" and facts["machine"] == "cores 2, gpus A100, A100"
    assert facts["sources"] == "lab 3f2c91 (6 cells) mixer sum aa00 (6 cells)" and facts["seeds"] == "0, 1, 2"


def test_with_hundreds_of_arms_the_page_stays_small_and_names_what_it_omits(make_experiment, make_record):
    names = [f"arm{number}" for number in range(300)]
    arms = ", ".join(f"{name}: {{train.lr: {0.001 + 0.0001 * index}}}" for index, name in enumerate(names))
    experiment = make_experiment("seeds: 2\n", arms=f"arms: {{{arms}}}\n")
    metrics = {f"test/accuracy/length_{index}": 1.0 for index in range(10)}
    records = [
        make_record(name, seed, index + seed / 7, metrics={METRIC: index + seed / 7, **metrics})
        for index, name in enumerate(names)
        for seed in (0, 1)
    ]
    text = Report.from_records(experiment, records).to_html()
    page = ParsedPage(text)
    rows = [element["text"] for element in page.all("th") if element["scope"] == "row"]
    assert len(rows) == 200 and rows[:2] == ["arm0", "arm101"] and rows[-1] == "arm299"
    assert "100 rows omitted" in " ".join(page.texts("p")) and len(text) < 2_000_000
    forest = next(element for element in page.all("figure") if element["id"] == "figure-forest")
    assert "the 40 clearest differences are shown; 259 arms omitted" in " ".join(forest["text"].split())


def test_a_report_without_records_has_a_page(make_experiment):
    page = ParsedPage(Report.from_records(make_experiment(), []).to_html())
    assert not page.open and page.texts("h2") == ["Results", "How to reproduce", "Files"]
    assert not page.all("figure")


def test_all_files_are_saved_and_outdated_figures_are_removed(report, tmp_path):
    saved = report.save(tmp_path / "out")
    names = {str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*") if file.is_file()}
    figures = {f"figures/{name}.{suffix}" for name in report.matplotlib_figures() for suffix in ("svg", "png")}
    assert names == figures | {f"report.{suffix}" for suffix in ("md", "csv", "tex", "json", "html")}
    assert saved.files[-1].name == "figures" and saved.figure_errors == []
    replace(report, rows=[]).save(tmp_path / "out")
    assert not list((tmp_path / "out" / "figures").iterdir())
