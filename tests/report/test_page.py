"""The page is whole, needs nothing from elsewhere, and shows what users wrote without obeying it."""

import base64
import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from hqlt_lab.report.page import Making
from hqlt_lab.report.report import Report

TEST = "test/normalised_accuracy"
HOSTILE = "<script>alert(1)</script> \"quoted\" & 'so'"
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Elements with their attributes, the text of each, and whether every one was closed."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", "inside": [one["tag"] for one in self.open], **dict(attributes)}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.elements.append({"tag": tag, "text": "", "inside": [], **dict(attributes)})

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def all(self, tag):
        return [one for one in self.elements if one["tag"] == tag]

    def texts(self, tag):
        return [" ".join(one["text"].split()) for one in self.all(tag)]


@pytest.fixture
def report(asked, cell, logged):
    """Three arms, one of them lost, with curves, differences and a tuned value."""
    experiment = asked("seeds: 3\ntune: {train.lr: [1e-3, 1e-4]}\n")
    values = {"delta": (50.0, 52.0, 51.0), "linear": (10.0, 11.0, 12.0)}
    point, code = {"train.lr": 1e-3}, {"lab": "3f2c91", "mixer sum": "aa00"}
    records = [
        cell(arm, seed, value, point=point, code=code, folder=logged(f"{arm}{seed}", [1.0, 0.5]), parameters=size)
        for size, (arm, seeds) in enumerate(values.items(), 1)
        for seed, value in enumerate(seeds)
    ]
    return Report.make(experiment, [*records, cell("retention", 0, state="failed", why="no <b>memory</b>", key="abc")])


def test_it_says_what_the_report_says(report):
    page = Page(report.html())
    assert not page.open and page.all("html")[0]["lang"] == "en"
    assert page.texts("h1") == [report.experiment.question] and report.answer in page.texts("p")
    assert page.texts("h2") == [
        "To be careful about", "Results", "Figures", "Chosen hyper-parameters", "Cells without a result",
        "To reproduce", "The same as files",
    ]  # fmt: skip
    warned = [one["text"] for one in page.all("li") if "main" in one["inside"]]
    assert all(warning in warned for warning in report.warnings)
    heads = [one["text"] for one in page.all("th") if one["scope"] == "row"]
    assert heads[:3] == ["delta", "linear", "retention"] and all(one.get("scope") for one in page.all("th"))
    assert {"class": "worse", "text": "worse"}.items() <= next(one for one in page.all("span")).items()
    assert "hqlt logs abc" in page.texts("td") and "no <b>memory</b>" in page.texts("td")


def test_every_figure_has_a_title_and_says_how_to_read_it(report):
    page = Page(report.html())
    figures = page.all("figure")
    assert [one["id"] for one in figures] == [f"figure-{name}" for name in report.figures()] and len(figures) == 3
    drawings = [one for one in page.all("svg") if one.get("role") == "img"]
    titles = [one for one in page.all("title") if "svg" in one["inside"]]
    assert len(drawings) == len(titles) == len(figures) and all(one["text"] for one in titles)
    captions = " ".join(page.texts("figcaption"))
    assert all(" ".join(picture.caption.split()) in captions for picture in report.drawn.pictures)


def test_it_needs_no_network_and_forbids_it(report):
    page = Page(report.html())
    (policy,) = [one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    links = [one[word] for one in page.elements for word in ("src", "href", "xlink:href", "action") if word in one]
    assert links and all(link.startswith(("data:", "#")) for link in links)
    assert not page.all("link") and "@import" not in report.html() and len(page.all("script")) == 1


def test_what_users_wrote_is_shown_and_not_obeyed(asked, cell):
    arms = f"arms: {{{json.dumps(HOSTILE)}: {{}}, plain: {{model.mixer: sum}}}}\n"
    base = f"question: {json.dumps(HOSTILE)}\n" + QUIET
    records = [cell(HOSTILE, seed, 5.0 + seed) for seed in (0, 1)]
    records += [cell("plain", 0, 5.0), cell("plain", 1, state="failed", why=HOSTILE)]
    report = Report.make(asked(arms=arms, base=base), records)
    page = Page(report.html(Making([HOSTILE], {"git": {"commit": HOSTILE}, "machine": {HOSTILE: HOSTILE}})))
    assert not page.open and len(page.all("script")) == 1 and "alert" not in page.all("script")[0]["text"]
    assert HOSTILE in page.texts("h1") and HOSTILE in page.texts("th") and HOSTILE in page.texts("td")
    assert HOSTILE in page.texts("code") and HOSTILE in page.texts("dd")


QUIET = """
task: {name: parity, train_length: [3, 20], test_length: [3, 20]}
model: {width: 16, heads: 2, layers: 1, mlp_width: 16, timing: {name: synchronous, window: 4}}
"""


def test_files_can_be_taken_from_the_page(report):
    page = Page(report.html())
    found = {one["download"]: one["href"] for one in page.all("a")}
    texts = {name: base64.b64decode(link.split("base64,")[1]).decode() for name, link in found.items()}
    assert texts == {
        "report.csv": report.csv(), "report.md": report.markdown(), "report.tex": report.latex(),
        "report.json": report.json(),
    }  # fmt: skip


def test_it_says_how_to_make_it_again(report):
    told = {
        "git": {"commit": "c0ffee", "dirty": True, "changed": [" M a", " M b"], "diff": "secret"},
        "versions": {"python": "3.11", "torch": "2.13"},
        "machine": {"cores": 2, "gpus": ["A100", "A100"]},
    }
    text = report.html(Making(["hqlt run a.yaml --set train.steps=3"], told))
    page = Page(text)
    facts = dict(zip(page.texts("dt"), page.texts("dd"), strict=True))
    assert page.texts("code") == ["hqlt run a.yaml --set train.steps=3"]
    assert facts["commit"] == "c0ffee, with uncommitted changes in 2 files" and "secret" not in text
    assert facts["libraries"] == "python 3.11, torch 2.13" and facts["machine"] == "cores 2, gpus A100, A100"
    assert facts["sources"] == "lab 3f2c91 (6 cells) mixer sum aa00 (6 cells)" and facts["seeds"] == "0, 1, 2"


def test_with_hundreds_of_arms_the_page_stays_small_and_says_what_is_left_out(asked, cell):
    names = [f"arm{number}" for number in range(300)]
    arms = ", ".join(f"{name}: {{train.lr: {0.001 + 0.0001 * at}}}" for at, name in enumerate(names))
    experiment = asked("seeds: 2\n", arms=f"arms: {{{arms}}}\n")
    metrics = {f"test/accuracy/length_{at}": 1.0 for at in range(10)}
    records = [
        cell(name, seed, at + seed / 7, metrics={TEST: at + seed / 7, **metrics}) for at, name in enumerate(names)
        for seed in (0, 1)
    ]  # fmt: skip
    text = Report.make(experiment, records).html()
    page = Page(text)
    rows = [one["text"] for one in page.all("th") if one["scope"] == "row"]
    assert len(rows) == 200 and rows[:2] == ["arm0", "arm101"] and rows[-1] == "arm299"
    assert "100 rows left out" in " ".join(page.texts("p")) and len(text) < 2_000_000
    forest = next(one for one in page.all("figure") if one["id"] == "figure-forest")
    assert "the 40 clearest; 259 arms left out" in " ".join(forest["text"].split())


def test_a_page_of_nothing_is_a_page(asked):
    page = Page(Report.make(asked(), []).html())
    assert not page.open and page.texts("h2") == ["Results", "To reproduce", "The same as files"]
    assert not page.all("figure")


def test_all_files_are_saved_and_figures_that_are_no_longer_drawn_go(report, tmp_path):
    saved = report.save(tmp_path / "out")
    names = {str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*") if file.is_file()}
    figures = {f"figures/{name}.{kind}" for name in report.figures() for kind in ("svg", "png")}
    assert names == figures | {f"report.{kind}" for kind in ("md", "csv", "tex", "json", "html")}
    assert saved.files[-1].name == "figures" and saved.troubles == []
    replace(report, rows=[]).save(tmp_path / "out")
    assert not list((tmp_path / "out" / "figures").iterdir())
