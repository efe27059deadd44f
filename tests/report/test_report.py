"""The same numbers as Markdown, CSV, in the terminal and as a frame."""

import csv
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from hqlt_lab.report.frame import frame
from hqlt_lab.report.render import fitted, terminal
from hqlt_lab.report.report import Report
from hqlt_lab.report.table import Table

TEST = "test/normalised_accuracy"
ODD = r"a|b [red]c[/red] <i> *d* \e"
PUBLISHED = (
    f"published: {{delta: {{{TEST}: {{best: 100.0, median: 99.7, mad: 0.1}}}}}}\n"
    f"quoted: {{Mamba: {{{TEST}: {{best: 98.25}}}}}}\n"
)


def cells_of(markdown):
    """A Markdown table as lines of {column: cell}, read as a Markdown reader does."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]
    plain = [[re.sub(r"\\([\\|<*])", r"\1", cell) for cell in cells] for cells in split]
    return [dict(zip(plain[0], cells, strict=True)) for cells in plain[2:]]


def lines_of(report):
    return list(csv.DictReader(io.StringIO(report.csv())))


@pytest.fixture
def three(cell):
    values = [90.0, 100.0, 98.0 + 1 / 3]
    return [cell("delta", seed, value, parameters=12345, tokens_per_second=6789.4) for seed, value in enumerate(values)]


def test_the_markdown_says_what_is_known(asked, cell, three):
    experiment = asked("seeds: 3\nmeasure: {solved: 95.0}\n" + PUBLISHED)
    records = [*three, cell("linear", 0, 5.0), cell("linear", 1, state="diverged"), cell("linear", 2)]
    text = Report.make(experiment, records).markdown()
    assert text.startswith("# Which memory counts?\n\n| arm | seeds | median ± MAD |")
    delta, linear, retention, mamba = cells_of(text)
    assert delta == {
        "arm": "delta", "seeds": "3", "median ± MAD": "98.3 ± 1.7", "mean [95 %]": "96.1 [82.8, 109.4]",
        "best": "100.0", "solved": "2 of 3", "difference [95 %]": "", "p (solved)": "",
        "published": "99.7 ± 0.1, best 100.0", "parameters": "12.3k",
        "tokens/s": "6.79k", "unfinished": "",
    }  # fmt: skip
    assert linear["seeds"] == "1 of 3" and linear["median ± MAD"] == linear["mean [95 %]"] == "5.0"
    assert linear["solved"] == "0 of 2" and linear["unfinished"] == "1 waiting, 1 diverged"
    assert retention["seeds"] == "0 of 3" and retention["median ± MAD"] == ""
    assert {word for word, cell in mamba.items() if cell} == {"arm", "published"} and mamba["published"] == "best 98.2"
    assert f"**{Report.make(experiment, records).answer}**" in text
    assert text.endswith("## Warnings\n\n- 1 cell diverged.\n- 1 cell still waiting.\n")


def test_each_arm_is_judged_against_the_baseline(asked, cell):
    values = {"delta": [10.0, 20.0, 30.0], "linear": [92.0, 103.0, 113.0], "retention": [10.5, 19.0, 32.0]}
    records = [cell(arm, seed, value) for arm, seeds in values.items() for seed, value in enumerate(seeds)]
    report = Report.make(asked("seeds: 3\n"), records)
    delta, linear, retention = cells_of(report.markdown())
    assert (delta["difference [95 %]"], delta["p (signs)"], delta["verdict"]) == ("", "", "baseline")
    assert linear["verdict"] == "better" and linear["difference [95 %]"].startswith("+82.7 [+")
    assert retention["verdict"].startswith("undecided, needs about ") and retention["p (signs)"] == "–"
    assert "difference: to the baseline, paired by seed; t-intervals corrected by Holm's method." in report.markdown()
    told = {line["arm"]: line for line in lines_of(report)}
    assert told["linear"]["verdict"] == "better" and told["linear"]["baseline"] == "delta"
    assert float(told["linear"]["difference"]) == pytest.approx(82.6666667)
    assert told["delta"]["difference"] == told["delta"]["verdict"] == ""
    assert report.answer.split(". ", 1)[1].startswith(
        "Against delta, in the mean of 3 paired seeds: linear is better: +82.7 [+80.6, +84.7]; "
    )


def test_one_seed_has_an_interval_over_examples_and_no_verdict(asked, cell):
    records = [
        cell("delta", 0, 50.0, errors={TEST: 1.0}),
        cell("linear", 0, 90.0, errors={TEST: 0.5}),
        cell("retention", 0, 40.0),
    ]
    report = Report.make(asked("seeds: 1\n"), records)
    delta, linear, retention = cells_of(report.markdown())
    assert delta["mean [95 %]"] == "50.0 [48.0, 52.0]" and linear["mean [95 %]"] == "90.0 [89.0, 91.0]"
    assert retention["mean [95 %]"] == "40.0"
    assert linear["difference [95 %]"] == "+40.0" and "verdict" not in linear and "p (signs)" not in linear
    assert "One seed: the interval is over the examples of the test" in report.markdown()
    assert report.answer.endswith("One seed gives no verdict: another seed may turn the order around.")


def test_a_grid_has_a_table_of_effects(asked, cell):
    experiment = asked("seeds: 2\ncross: {model.mixer: [sum, vector]}\n")
    records = [
        cell(arm.title, seed, 10.0 + 5 * ("linear" in arm.title) + seed) for arm in experiment.arms for seed in range(2)
    ]
    text = Report.make(experiment, records).markdown()
    assert "## Effects\n\n| effect | against | seeds |" in text
    assert "| arm=linear | arm=delta | 2 | +5.0 [" in text and "| arm=linear × mixer=vector |" in text


def test_importance_is_told_where_it_is_asked_for(asked, cell):
    experiment = asked("seeds: 2\ntune: {train.lr: [1e-3, 1e-4]}\n")
    records = [
        cell(arm.title, seed, 90.0 * (rate > 5e-4) + seed, point={"train.lr": rate})
        for arm in experiment.arms
        for rate in (1e-3, 1e-4)
        for seed in range(2)
    ]
    report = Report.make(experiment, records)
    assert "Importance" not in report.markdown()
    assert "## Importance\n\n| of |" in report.with_importance().markdown()


def test_columns_that_say_nothing_are_left_out(asked, cell):
    (only,) = cells_of(Report.make(asked("seeds: 1\n", arms=""), [cell("base", 0, 90.0)]).markdown())
    assert list(only) == ["arm", "seeds", "median ± MAD", "mean [95 %]", "best"]
    assert "Warnings" not in Report.make(asked("seeds: 1\n", arms=""), [cell("base", 0, 90.0)]).markdown()


def test_steps_have_a_column_where_they_differ(asked, cell):
    records = [cell("delta", 0, 5.0, step=100), cell("linear", 0, 5.0), cell("linear", 1, 5.0, step=200)]
    assert [row["steps"] for row in cells_of(Report.make(asked(), records).markdown())] == ["100", "200 to 300", ""]


def test_several_metrics_have_columns_of_their_own(asked, cell):
    experiment = asked(f"seeds: 1\nmeasure: {{report: [{TEST}, test/loss]}}\n", arms="")
    record = cell("base", 0, 5.0, metrics={TEST: 5.0, "test/loss": 0.123456})
    (row,) = cells_of(Report.make(experiment, [record]).markdown())
    assert row[f"{TEST}: best"] == "5.0" and row["test/loss: best"] == "0.1235"


def test_the_chosen_point_and_its_budget_are_printed(asked, cell):
    points = [{"train.lr": 0.001, "model.mixer": "sum"}, {"train.lr": 0.0123456, "model.mixer": "sum"}]
    records = [cell("base", 0, 5.0 + number, point=point) for number, point in enumerate(points)]
    experiment = asked("tune: {train.lr: [0.001, 0.0123456], model.mixer: [sum]}\nseeds: 1\n", arms="")
    text = Report.make(experiment, records).markdown()
    assert cells_of(text)[0]["chosen"] == "lr=0.01235, mixer=sum"
    assert "chosen by the median of valid/normalised_accuracy: 2 points (2 cells) for every arm." in text
    (line,) = lines_of(Report.make(experiment, records))
    assert float(line["train.lr"]) == 0.0123456 and (line["points_tried"], line["cells_tried"]) == ("2", "2")


def test_the_csv_has_every_digit_and_a_line_per_arm_and_metric(asked, three):
    report = Report.make(asked("seeds: 3\nmeasure: {solved: 95.0}\n" + PUBLISHED), three)
    delta, linear, _, mamba = lines_of(report)
    summary = report.rows[0].summaries[TEST]
    for name in ("n", "median", "mad", "mean", "low", "high", "best"):
        assert float(delta[name]) == getattr(summary, name)
    assert (delta["solved"], delta["solved_of"], delta["metric"], delta["source"]) == ("2", "3", TEST, "run")
    assert (delta["published_best"], delta["published_median"], delta["published_mad"]) == ("100.0", "99.7", "0.1")
    assert (delta["fewest_steps"], delta["most_steps"], delta["diverged"]) == ("300", "300", "0")
    assert linear["median"] == linear["n"] == "" and linear["arm"] == "linear"
    assert (mamba["arm"], mamba["source"], mamba["published_best"], mamba["mean"]) == ("Mamba", "quoted", "98.25", "")


def test_titles_survive_whatever_they_hold(asked, cell):
    experiment = asked("seeds: 1\n", arms=f"arms: {{'{ODD}': {{}}, plain: {{model.mixer: sum}}}}\n")
    report = Report.make(experiment, [cell(ODD, 0, 5.0), cell("plain", 0, state="failed", why="[bold]no | <b>")])
    assert cells_of(report.markdown())[0]["arm"] == ODD
    assert lines_of(report)[0]["arm"] == ODD
    console = Console(width=200, file=io.StringIO(), color_system=None)
    console.print(*report.terminal(200))
    assert ODD in console.file.getvalue()


def test_a_rounded_zero_has_no_sign(asked, cell):
    (row,) = cells_of(Report.make(asked("seeds: 1\n", arms=""), [cell("base", 0, -0.04)]).markdown())
    assert row["best"] == "0.0"


def test_the_files_hold_the_report_and_nothing_else_is_left(asked, three, tmp_path):
    report = Report.make(asked("seeds: 3\n"), three)
    report.save(tmp_path / "new" / "folder")
    report.save(tmp_path / "new" / "folder")
    there = {file.name: file.read_text() for file in (tmp_path / "new" / "folder").iterdir()}
    assert there == report.texts() | {"report.html": report.html()}


def test_a_report_of_nothing_is_a_report(asked):
    report = Report.make(asked("tune: {train.lr: [1e-3, 1e-4]}\n" + PUBLISHED), [])
    assert report.answer.startswith("There is no answer yet") and len(lines_of(report)) == 4
    assert [row["seeds"] for row in cells_of(report.markdown())] == ["0 of 3", "0 of 3", "0 of 3", ""]


def test_the_frame_has_a_line_per_cell(cell):
    records = [
        cell("a", 0, 5.0, levels={"model.update_rule": {"name": "delta", "max_beta": 2}}, point={"train.lr": 0.1}),
        cell("a", 1, levels={"model.timing.window": None}, point={"train.lr": 0.2}, counts=False, why="late"),
        cell("b", 0, 7.0, levels={"task.seed": 3}, folder=Path("runs/b"), run="r1"),
    ]
    table = frame(records)
    assert len(table) == 3 and list(table.columns[:3]) == ["key", "arm", "seed"]
    assert table["update_rule"][0] == "delta(max_beta=2)" and table["window"][1] == "null"
    assert list(table["lr"][:2]) == [0.1, 0.2] and table["lr"].isna()[2]
    assert list(table["seed"]) == [0, 1, 0] and table["task.seed"][2] == 3
    assert list(table[TEST].dropna()) == [5.0, 7.0] and list(table["counts"]) == [True, False, True]
    assert table["folder"][2] == "runs/b" and table["run"][2] == "r1" and table["why"][1] == "late"


def test_a_frame_of_nothing_has_its_columns():
    assert {"key", "arm", "seed", "state", "folder"} <= set(frame([]).columns) and len(frame([])) == 0


def test_a_narrow_terminal_does_without_what_is_missed_least():
    columns = ["arm", "seeds", "median ± MAD", "difference [95 %]", "verdict", "p (solved)", "parameters", "tokens/s"]
    table = Table(columns, [["delta", "3", "99.7 ± 0.1", "-1.2 [-3.4, +1.0]", "undecided", "0.05", "25.9k", "12.3k"]])
    assert fitted(table, 200) == table
    narrow = fitted(table, 50)
    assert narrow.columns == ["arm", "seeds", "median ± MAD", "difference [95 %]", "verdict"]
    assert narrow.notes == [
        "No room for p (solved), parameters, tokens/s: a wider terminal has them, and --markdown or --html."
    ]
    assert fitted(table, 10).columns == ["arm", "median ± MAD", "difference [95 %]", "verdict"]
    shown = Console(width=50, file=io.StringIO())
    shown.print(terminal("", narrow))
    assert max(map(len, shown.file.getvalue().splitlines())) <= 50 and "undecided" in shown.file.getvalue()
