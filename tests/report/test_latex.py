"""The LaTeX table is well-formed, compiles if LaTeX is installed, and holds the content of the report."""

import re
import shutil
import subprocess

import pytest

from hqlt_lab.report.render.latex import VERDICT_LEGEND, escape_latex
from hqlt_lab.report.study_report import Report

METRIC = "test/normalized_accuracy"
SPECIAL_CHARACTERS = r"[50%] a_b & $c$ #1 {d} ~e ^f \g <h> | --i"
PDFLATEX = shutil.which("pdflatex")


@pytest.fixture
def report(make_experiment, make_record):
    published = (
        f"published: {{plain: {{{METRIC}: {{best: 100.0, median: 98.5, mad: 0.1}}}}}}\n"
        f"quoted: {{M&M: {{{METRIC}: {{median: 99.0}}}}}}\n"
    )
    experiment = make_experiment(
        f"seeds: 3\nmeasure: {{report: [{METRIC}, test/loss]}}\n" + published,
        arms=f"arms: {{'{SPECIAL_CHARACTERS}': {{}}, plain: {{model.mixer: sum}}, late: {{model.mixer: scalar}}}}\n",
        base=f"question: 'Is {SPECIAL_CHARACTERS} better?'\n" + BASE,
    )
    values = {SPECIAL_CHARACTERS: ([10.0, 11.0, 12.0], 0.5), "plain": ([60.0, 62.0, 61.0], 0.25)}
    records = [
        make_record(arm, seed, value, metrics={METRIC: value, "test/loss": loss + 0.01 * seed})
        for arm, (seeds, loss) in values.items()
        for seed, value in enumerate(seeds)
    ]
    return Report.from_records(experiment, records)


BASE = """
task: {name: parity, train_length: [3, 20], test_length: [20, 20]}
model: {width: 16, heads: 2, layers: 1, mlp_width: 16, timing: {name: synchronous, window: 4}}
train: {steps: 300, batch_size: 8}
"""


def table_rows(text):
    """Return the rows of the table as lists of cells."""
    body = [line for line in text.splitlines() if line.endswith(r"\\") and not line.startswith(r"\caption")]
    return [re.split(r"(?<!\\)&", line.removesuffix(r"\\")) for line in body]


def count_columns(cells):
    spans = [re.search(r"\\multicolumn\{(\d+)\}", cell) for cell in cells]
    return sum(int(span[1]) if span else 1 for span in spans)


def test_environments_are_balanced_and_rows_are_equally_wide(report):
    text = report.to_latex()
    assert re.findall(r"\\begin\{(\w+)\}", text) == re.findall(r"\\end\{(\w+)\}", text)[::-1] == ["table", "tabular"]
    column_spec = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)[1]
    assert {count_columns(cells) for cells in table_rows(text)} == {len(column_spec)}
    without_escapes = re.sub(r"\\[{}]", "", text)
    assert without_escapes.count("{") == without_escapes.count("}")
    assert [text.count(rule) for rule in (r"\toprule", r"\bottomrule", r"\cmidrule")] == [1, 1, 2]
    assert text.count(r"\midrule") == 2  # below the header, and above quoted results


def test_latex_special_characters_are_escaped():
    assert escape_latex("%_&$#{}") == r"\%\_\&\$\#\{\}"
    assert escape_latex(r"~^\ ") == r"\textasciitilde{}\textasciicircum{}\textbackslash{}"
    assert escape_latex("[a] --b\nc") == "{[}a{]} -{}-{}b c"


def test_the_best_of_a_column_and_its_equals_are_bold(make_experiment, make_record, report):
    rows = {cells[0].strip(): cells for cells in table_rows(report.to_latex())}
    plain = rows["plain"]
    assert r"\textbf{61.0 $\pm$ 1.0}" in plain[2]  # the larger accuracy
    assert r"\textbf" not in plain[3] and "98.5 $\\pm$ 0.1, best 100.0" in plain[3]
    assert r"\textbf{99.0}" in rows[r"M\&M"][3]  # the best published value
    assert any(r"\textbf{0.26" in cell for cell in plain)  # the smaller loss
    assert not any("textbf" in cell for cell in rows[escape_latex(SPECIAL_CHARACTERS)])
    equal = Report.from_records(
        make_experiment("seeds: 1\n"),
        [make_record("delta", 0, 50.01), make_record("linear", 0, 49.99), make_record("retention", 0, 3.0)],
    )
    assert equal.to_latex().count(r"\textbf{50.0}") == 2


def test_a_difference_has_its_interval_and_the_mark_of_its_verdict(report):
    text, differences = report.to_latex(), report.rows[1].differences
    rows = {cells[0].strip(): cells for cells in table_rows(text)}
    assert VERDICT_LEGEND in text
    assert differences[METRIC].verdict == "better" and rows["plain"][4].strip().endswith("$^{+}$")
    assert rows["plain"][4].strip().startswith("+50.0 {[}+") and differences["test/loss"].verdict == "better"
    assert rows["plain"][6].strip().startswith("$-$0.25 {[}$-$")
    assert not any(cell.strip() for cell in rows["late"][2:])


def test_costs_have_columns(make_experiment, make_record):
    sizes = {"parameters": 140_000, "state_bytes": 24_600, "flops_per_token": 1.06e6, "tokens_per_second": 6789.4}
    text = Report.from_records(
        make_experiment("seeds: 1\nmeasure: {solved: 4}\n", arms=""), [make_record("base", 0, 5.0, **sizes)]
    ).to_latex()
    *_, header, (base, seeds, _, solved, *costs) = table_rows(text)
    assert [cell.strip() for cell in header[-4:]] == ["parameters", "state", "FLOPs/token", "tokens/s"]
    assert [cell.strip() for cell in costs] == ["140k", "24.6 kB", "1.06M", "6.79k"]
    assert (base.strip(), seeds.strip(), solved.strip()) == ("base", "1", "1/1")


def test_one_seed_has_an_interval_over_examples_and_no_legend_of_verdicts(make_experiment, make_record):
    record = make_record("delta", 0, 50.0, errors={"test/normalized_accuracy": 1.0})
    text = Report.from_records(make_experiment("seeds: 1\n"), [record, make_record("linear", 0, 40.0)]).to_latex()
    assert "50.0 {[}48.0, 52.0{]}" in text and "over the test examples" in text
    assert "$-$10.0" in text and VERDICT_LEGEND not in text


def test_without_results_the_header_is_one_line(make_experiment):
    header = Report.from_records(make_experiment(), []).to_latex().partition("\\toprule\n")[2].partition("\\midrule")[0]
    assert header == "arm & seeds \\\\\n"


def test_the_caption_is_the_question_and_notes_are_below_the_table(report):
    text = report.to_latex()
    assert rf"\caption{{Is {escape_latex(SPECIAL_CHARACTERS)} better?}}" in text
    assert r"{\footnotesize test/normalized\_accuracy: larger is better." in text
    assert text.startswith("% needs \\usepackage{booktabs}")


def test_a_long_table_spans_pages(make_experiment, make_record):
    names = [f"a{number}" for number in range(60)]
    arms = ", ".join(f"{name}: {{train.lr: {0.001 + 0.0001 * index}}}" for index, name in enumerate(names))
    text = Report.from_records(
        make_experiment("seeds: 1\n", arms=f"arms: {{{arms}}}\n"), [make_record(name, 0, 5.0) for name in names]
    ).to_latex()
    assert text.count(r"\begin{longtable}") == text.count(r"\end{longtable}") == 1 and r"\begin{table}" not in text
    assert len(table_rows(text)) == 62


@pytest.mark.skipif(PDFLATEX is None, reason="no LaTeX is installed")
def test_the_table_compiles(report, tmp_path):
    packages = "\n".join(rf"\usepackage{{{name}}}" for name in ("booktabs", "graphicx"))
    preamble = rf"\documentclass{{article}}\usepackage[T1]{{fontenc}}{packages}\begin{{document}}"
    (tmp_path / "paper.tex").write_text(f"{preamble}\n{report.to_latex()}\\end{{document}}\n")
    result = subprocess.run(
        [PDFLATEX, "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "paper.tex"],
        cwd=tmp_path, capture_output=True, text=True, errors="replace",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-2000:]
    assert "Overfull" not in result.stdout
