"""The table for a paper compiles, or at least is built as LaTeX wants it, and shows what the report says."""

import re
import shutil
import subprocess

import pytest

from hqlt_lab.report.latex_cells import escaped
from hqlt_lab.report.report import Report

TEST = "test/normalised_accuracy"
ODD = r"[50%] a_b & $c$ #1 {d} ~e ^f \g <h> | --i"
ENGINE = shutil.which("pdflatex")


@pytest.fixture
def odd_report(asked, cell):
    published = (
        f"published: {{plain: {{{TEST}: {{best: 100.0, median: 98.5, mad: 0.1}}}}}}\n"
        f"quoted: {{M&M: {{{TEST}: {{median: 99.0}}}}}}\n"
    )
    experiment = asked(
        f"seeds: 3\nmeasure: {{report: [{TEST}, test/loss]}}\n" + published,
        arms=f"arms: {{'{ODD}': {{}}, plain: {{model.mixer: sum}}, late: {{model.mixer: scalar}}}}\n",
        base=f"question: 'Is {ODD} better?'\n" + BASE,
    )
    values = {ODD: ([10.0, 11.0, 12.0], 0.5), "plain": ([60.0, 62.0, 61.0], 0.25)}
    records = [
        cell(arm, seed, value, metrics={TEST: value, "test/loss": loss + 0.01 * seed})
        for arm, (seeds, loss) in values.items()
        for seed, value in enumerate(seeds)
    ]
    return Report.make(experiment, records)


BASE = """
task: {name: parity, train_length: [3, 20], test_length: [3, 20]}
model: {width: 16, heads: 2, layers: 1, mlp_width: 16, timing: {name: synchronous, window: 4}}
train: {steps: 300, batch_size: 8}
"""


def lines_of(text):
    """The rows between the rules, each as its cells."""
    body = [line for line in text.splitlines() if line.endswith(r"\\") and not line.startswith(r"\caption")]
    return [re.split(r"(?<!\\)&", line.removesuffix(r"\\")) for line in body]


def columns(cells):
    spans = [re.search(r"\\multicolumn\{(\d+)\}", cell) for cell in cells]
    return sum(int(span[1]) if span else 1 for span in spans)


def test_environments_are_balanced_and_rows_are_equally_wide(odd_report):
    text = odd_report.latex()
    assert re.findall(r"\\begin\{(\w+)\}", text) == re.findall(r"\\end\{(\w+)\}", text)[::-1] == ["table", "tabular"]
    places = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)[1]
    assert {columns(cells) for cells in lines_of(text)} == {len(places)}
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert [text.count(rule) for rule in (r"\toprule", r"\bottomrule", r"\cmidrule")] == [1, 1, 2]
    assert text.count(r"\midrule") == 2  # below the head, and above what is quoted


def test_everything_that_latex_would_obey_is_escaped():
    assert escaped("%_&$#{}") == r"\%\_\&\$\#\{\}"
    assert escaped(r"~^\ ") == r"\textasciitilde{}\textasciicircum{}\textbackslash{}"
    assert escaped("[a] --b\nc") == "{[}a{]} -{}-{}b c"


def test_the_best_of_a_column_is_bold_in_its_own_direction_and_so_are_equals(asked, cell, odd_report):
    rows = {cells[0].strip(): cells for cells in lines_of(odd_report.latex())}
    plain = rows["plain"]
    assert r"\textbf{61.0 $\pm$ 1.0}" in plain[2]  # the larger accuracy
    assert r"\textbf" not in plain[3] and "98.5 $\\pm$ 0.1, best 100.0" in plain[3]
    assert r"\textbf{99.0}" in rows[r"M\&M"][3]  # the better published one
    assert any(r"\textbf{0.26" in one for one in plain)  # the smaller loss
    assert not any("textbf" in one for one in rows[escaped(ODD)])
    equal = Report.make(
        asked("seeds: 1\n"), [cell("delta", 0, 50.01), cell("linear", 0, 49.99), cell("retention", 0, 3.0)]
    )
    assert equal.latex().count(r"\textbf{50.0}") == 2


def test_a_difference_has_its_interval_and_the_mark_of_its_verdict(odd_report):
    rows = {cells[0].strip(): cells for cells in lines_of(odd_report.latex())}
    found = odd_report.rows[1].differences
    assert found[TEST].verdict == "better" and rows["plain"][4].strip().endswith("$^{+}$")
    assert rows["plain"][4].strip().startswith("+50.0 {[}+") and found["test/loss"].verdict == "better"
    assert rows["plain"][6].strip().startswith("$-$0.25 {[}$-$")
    assert not any(one.strip() for one in rows["late"][2:])


def test_what_an_arm_costs_stands_beside_what_it_reaches(asked, cell):
    sizes = {"parameters": 140_000, "state_bytes": 24_600, "flops_per_token": 1.06e6, "tokens_per_second": 6789.4}
    text = Report.make(asked("seeds: 1\nmeasure: {solved: 4}\n", arms=""), [cell("base", 0, 5.0, **sizes)]).latex()
    *_, heads, (base, seeds, _, solved, *costs) = lines_of(text)
    assert [one.strip() for one in heads[-4:]] == ["parameters", "state", "FLOPs/token", "tokens/s"]
    assert [one.strip() for one in costs] == ["140k", "24.6 kB", "1.06M", "6.79k"]
    assert (base.strip(), seeds.strip(), solved.strip()) == ("base", "1", "1/1")


def test_one_seed_has_its_interval_over_examples_and_no_verdict_is_explained(asked, cell):
    one = cell("delta", 0, 50.0, errors={"test/normalised_accuracy": 1.0})
    text = Report.make(asked("seeds: 1\n"), [one, cell("linear", 0, 40.0)]).latex()
    assert "50.0 {[}48.0, 52.0{]}" in text and "over the examples of the test" in text
    assert "$-$10.0" in text and "better, $^{-}$ worse" not in text


def test_before_any_result_the_head_is_one_line(asked):
    heads = Report.make(asked(), []).latex().partition("\\toprule\n")[2].partition("\\midrule")[0]
    assert heads == "arm & seeds \\\\\n"


def test_the_caption_asks_the_question_and_notes_stand_below(odd_report):
    text = odd_report.latex()
    assert rf"\caption{{Is {escaped(ODD)} better?}}" in text
    assert r"{\footnotesize test/normalised\_accuracy: larger is better." in text
    assert text.startswith("% needs \\usepackage{booktabs}")


def test_a_table_longer_than_a_page_goes_on_over_pages(asked, cell):
    names = [f"a{number}" for number in range(60)]
    arms = ", ".join(f"{name}: {{train.lr: {0.001 + 0.0001 * at}}}" for at, name in enumerate(names))
    text = Report.make(asked("seeds: 1\n", arms=f"arms: {{{arms}}}\n"), [cell(name, 0, 5.0) for name in names]).latex()
    assert text.count(r"\begin{longtable}") == text.count(r"\end{longtable}") == 1 and r"\begin{table}" not in text
    assert len(lines_of(text)) == 62


@pytest.mark.skipif(ENGINE is None, reason="no LaTeX is installed")
def test_it_compiles(odd_report, tmp_path):
    packages = "\n".join(rf"\usepackage{{{name}}}" for name in ("booktabs", "graphicx"))
    head = rf"\documentclass{{article}}\usepackage[T1]{{fontenc}}{packages}\begin{{document}}"
    (tmp_path / "paper.tex").write_text(f"{head}\n{odd_report.latex()}\\end{{document}}\n")
    told = subprocess.run(
        [ENGINE, "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "paper.tex"],
        cwd=tmp_path, capture_output=True, text=True, errors="replace",
    )  # fmt: skip
    assert told.returncode == 0, told.stdout[-2000:]
    assert "Overfull" not in told.stdout
