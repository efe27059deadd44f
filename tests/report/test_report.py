"""The report as Markdown, CSV, terminal tables and pandas DataFrame."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from hqlt_lab.report.build_tables import Table
from hqlt_lab.report.render.cells_dataframe import build_frame
from hqlt_lab.report.render.csv_table import render_csv
from hqlt_lab.report.render.reproduction import Reproduction
from hqlt_lab.report.render.text_tables import fit_to_width, render_rich_table
from hqlt_lab.report.study_report import Report
from hqlt_lab.report.wording.verdicts import SEEDS_ADVICE

METRIC = "test/normalized_accuracy"
SPECIAL_CHARACTERS = r"a|b [red]c[/red] <i> *d* \e"
PUBLISHED = (
    f"published: {{delta: {{{METRIC}: {{best: 100.0, median: 99.7, mad: 0.1}}}}}}\n"
    f"quoted: {{Mamba: {{{METRIC}: {{best: 98.25}}}}}}\n"
)


def parse_markdown_table(markdown):
    """Parse the first Markdown table into a list of {column: cell}, with escapes removed."""
    lines = markdown[markdown.index("\n|") + 1 :].partition("\n\n")[0].splitlines()
    split = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]
    plain = [[re.sub(r"\\([\\|<*])", r"\1", cell) for cell in cells] for cells in split]
    return [dict(zip(plain[0], cells, strict=True)) for cells in plain[2:]]


def parse_csv(report):
    return list(csv.DictReader(io.StringIO(report.to_csv())))


@pytest.fixture
def three_seeds(make_record):
    values = [90.0, 100.0, 98.0 + 1 / 3]
    return [
        make_record("delta", seed, value, parameters=12345, tokens_per_second=6789.4)
        for seed, value in enumerate(values)
    ]


def test_the_markdown_holds_all_results(make_experiment, make_record, three_seeds):
    experiment = make_experiment("seeds: 3\nmeasure: {solved: 95.0}\n" + PUBLISHED)
    records = [
        *three_seeds,
        make_record("linear", 0, 5.0),
        make_record("linear", 1, state="diverged"),
        make_record("linear", 2),
    ]
    text = Report.from_records(experiment, records).to_markdown()
    assert text.startswith("# Which memory counts?\n\n**So far (5 of 6 cells), delta does best: ")
    assert "\n\n| arm | seeds | median ± MAD |" in text
    delta, linear, retention, mamba = parse_markdown_table(text)
    assert delta == {
        "arm": "delta", "seeds": "3", "median ± MAD": "98.3 ± 1.7", "mean [95 % CI]": "96.1 [82.8, 100.0]",
        "best": "100.0", "solved": "2 of 3", "paired difference [95 % CI]": "", "p (Fisher, solved)": "",
        "published": "99.7 ± 0.1, best 100.0", "parameters": "12.3k",
        "tokens/s": "6.79k", "unfinished": "",
    }  # fmt: skip
    assert linear["seeds"] == "1 of 3" and linear["median ± MAD"] == linear["mean [95 % CI]"] == "5.0"
    assert linear["solved"] == "0 of 2" and linear["unfinished"] == "1 waiting, 1 diverged"
    assert retention["seeds"] == "0 of 3" and retention["median ± MAD"] == ""
    assert {column for column, cell in mamba.items() if cell} == {"arm", "published"} and mamba[
        "published"
    ] == "best 98.2"
    assert text.endswith("## Caveats\n\n- 1 cell diverged.\n- 1 cell still waiting.\n")


def test_each_arm_has_a_verdict_against_the_baseline(make_experiment, make_record):
    values = {"delta": [10.0, 20.0, 30.0], "linear": [92.0, 103.0, 113.0], "retention": [10.5, 19.0, 32.0]}
    records = [make_record(arm, seed, value) for arm, seeds in values.items() for seed, value in enumerate(seeds)]
    report = Report.from_records(make_experiment("seeds: 3\n"), records)
    delta, linear, retention = parse_markdown_table(report.to_markdown())
    assert (delta["paired difference [95 % CI]"], delta["p (permutation)"], delta["verdict"]) == ("", "", "baseline")
    assert linear["verdict"] == "significantly better" and linear["paired difference [95 % CI]"].startswith("+82.7 [+")
    assert retention["verdict"] == "not significant" and retention["p (permutation)"] == "–"
    assert "paired difference: mean difference from the baseline, paired by seed" in report.to_markdown()
    line_by_arm = {line["arm"]: line for line in parse_csv(report)}
    assert line_by_arm["linear"]["verdict"] == "better" and line_by_arm["linear"]["baseline"] == "delta"
    assert float(line_by_arm["linear"]["difference"]) == pytest.approx(82.6666667)
    assert (line_by_arm["delta"]["difference"], line_by_arm["delta"]["verdict"]) == ("", "baseline")
    assert line_by_arm["retention"]["verdict"] == "not_significant"
    assert report.answer.comparisons[0] == "linear: significantly better, +82.7 [+80.6, +84.7]"
    assert "\n\n- linear: significantly better, +82.7 [+80.6, +84.7]\n- retention: " in report.to_markdown()


def test_one_seed_has_an_interval_over_examples_and_no_verdict(make_experiment, make_record):
    records = [
        make_record("delta", 0, 50.0, errors={METRIC: 1.0}),
        make_record("linear", 0, 90.0, errors={METRIC: 0.5}),
        make_record("retention", 0, 40.0),
    ]
    report = Report.from_records(make_experiment("seeds: 1\n"), records)
    delta, linear, retention = parse_markdown_table(report.to_markdown())
    assert delta["mean [95 % CI]"] == "50.0 [48.0, 52.0]" and linear["mean [95 % CI]"] == "90.0 [89.0, 91.0]"
    assert retention["mean [95 % CI]"] == "40.0"
    assert (
        linear["paired difference [95 % CI]"] == "+40.0" and "verdict" not in linear and "p (permutation)" not in linear
    )
    assert "With one seed, the interval is over the test examples" in report.to_markdown()
    assert "only one seed" in report.answer.comparisons_heading and not report.answer.comparisons


def test_a_grid_has_a_table_of_effects(make_experiment, make_record):
    experiment = make_experiment("seeds: 2\ncross: {model.mixer: [sum, vector]}\n")
    records = [
        make_record(arm.title, seed, 10.0 + 5 * ("linear" in arm.title) + seed)
        for arm in experiment.arms
        for seed in range(2)
    ]
    text = Report.from_records(experiment, records).to_markdown()
    assert "## Effects\n\n| effect | reference | seeds |" in text
    assert "| arm=linear | arm=delta | 2 | +5.0 [" in text and "| arm=linear × mixer=vector |" in text


def test_importance_is_shown_only_on_request(make_experiment, make_record):
    experiment = make_experiment("seeds: 2\ntune: {train.lr: [1e-3, 1e-4]}\n")
    records = [
        make_record(arm.title, seed, 90.0 * (rate > 5e-4) + seed, point={"train.lr": rate})
        for arm in experiment.arms
        for rate in (1e-3, 1e-4)
        for seed in range(2)
    ]
    report = Report.from_records(experiment, records)
    assert "Importance" not in report.to_markdown()
    assert "## Importance\n\n| arm |" in report.with_importance().to_markdown()


def test_empty_columns_are_omitted(make_experiment, make_record):
    (row,) = parse_markdown_table(
        Report.from_records(make_experiment("seeds: 1\n", arms=""), [make_record("base", 0, 90.0)]).to_markdown()
    )
    assert list(row) == ["arm", "seeds", "median ± MAD", "mean [95 % CI]", "best"]
    assert (
        "Caveats"
        not in Report.from_records(make_experiment("seeds: 1\n", arms=""), [make_record("base", 0, 90.0)]).to_markdown()
    )


def test_steps_have_a_column_if_they_differ(make_experiment, make_record):
    records = [
        make_record("delta", 0, 5.0, step=100),
        make_record("linear", 0, 5.0),
        make_record("linear", 1, 5.0, step=200),
    ]
    assert [
        row["steps"] for row in parse_markdown_table(Report.from_records(make_experiment(), records).to_markdown())
    ] == [
        "100",
        "200 to 300",
        "",
    ]


def test_each_metric_has_its_own_columns(make_experiment, make_record):
    experiment = make_experiment(f"seeds: 1\nmeasure: {{report: [{METRIC}, test/loss]}}\n", arms="")
    record = make_record("base", 0, 5.0, metrics={METRIC: 5.0, "test/loss": 0.123456})
    (row,) = parse_markdown_table(Report.from_records(experiment, [record]).to_markdown())
    assert row[f"{METRIC}: best"] == "5.0" and row["test/loss: best"] == "0.1235"


def test_the_selected_point_and_its_budget_are_shown(make_experiment, make_record):
    points = [{"train.lr": 0.001, "model.mixer": "sum"}, {"train.lr": 0.0123456, "model.mixer": "sum"}]
    records = [make_record("base", 0, 5.0 + number, point=point) for number, point in enumerate(points)]
    experiment = make_experiment("tune: {train.lr: [0.001, 0.0123456], model.mixer: [sum]}\nseeds: 1\n", arms="")
    text = Report.from_records(experiment, records).to_markdown()
    assert parse_markdown_table(text)[0]["chosen"] == "lr=0.01235, mixer=sum"
    assert "selected by the median of valid/normalized_accuracy: 2 points (2 cells) per arm." in text
    (line,) = parse_csv(Report.from_records(experiment, records))
    assert float(line["train.lr"]) == 0.0123456 and (line["points_tried"], line["cells_tried"]) == ("2", "2")


def test_the_csv_has_full_precision_and_a_line_per_arm_and_metric(make_experiment, three_seeds):
    report = Report.from_records(make_experiment("seeds: 3\nmeasure: {solved: 95.0}\n" + PUBLISHED), three_seeds)
    delta, linear, _, mamba = parse_csv(report)
    summary = report.rows[0].summaries[METRIC]
    for name in ("n", "median", "mad", "mean", "low", "high", "best"):
        assert float(delta[name]) == getattr(summary, name)
    assert (delta["solved"], delta["solved_of"], delta["metric"], delta["source"]) == ("2", "3", METRIC, "run")
    assert (delta["published_best"], delta["published_median"], delta["published_mad"]) == ("100.0", "99.7", "0.1")
    assert (delta["fewest_steps"], delta["most_steps"], delta["diverged"]) == ("300", "300", "0")
    assert linear["median"] == linear["n"] == "" and linear["arm"] == "linear"
    assert (mamba["arm"], mamba["source"], mamba["published_best"], mamba["mean"]) == ("Mamba", "quoted", "98.25", "")


def test_text_in_the_csv_that_a_spreadsheet_would_evaluate_is_escaped(make_experiment, make_record):
    arms = "arms: {'=1+1': {}, '+a': {model.mixer: sum}, '-a': {train.lr: 1}, '@sum': {train.lr: 2}}\n"
    experiment = make_experiment("seeds: 2\nquoted: {'=cmd': {'=metric': {best: -1.5}}}\n", arms=arms)
    records = [make_record(arm.title, seed, -5.0) for arm in experiment.arms for seed in range(2)]
    point = {"=path": "=b", "train.lr": -0.5}
    rows = [replace(row, point=point) for row in Report.from_records(experiment, records).rows]
    text = render_csv(replace(experiment, tune={path: [value] for path, value in point.items()}), rows)
    baseline, other, *_, cited = lines = list(csv.DictReader(io.StringIO(text)))
    assert [line["arm"] for line in lines] == ["'=1+1", "'+a", "'-a", "'@sum", "'=cmd"]
    assert (other["baseline"], other["'=path"], cited["metric"]) == ("'=1+1", "'=b", "'=metric")
    assert float(baseline["mean"]) == -5.0 and baseline["train.lr"] == "-0.5" and cited["published_best"] == "-1.5"


def test_markup_in_titles_is_escaped(make_experiment, make_record):
    experiment = make_experiment(
        "seeds: 1\n", arms=f"arms: {{'{SPECIAL_CHARACTERS}': {{}}, plain: {{model.mixer: sum}}}}\n"
    )
    report = Report.from_records(
        experiment,
        [make_record(SPECIAL_CHARACTERS, 0, 5.0), make_record("plain", 0, state="failed", why="[bold]no | <b>")],
    )
    assert parse_markdown_table(report.to_markdown())[0]["arm"] == SPECIAL_CHARACTERS
    assert parse_csv(report)[0]["arm"] == SPECIAL_CHARACTERS
    console = Console(width=200, file=io.StringIO(), color_system=None)
    console.print(*report.to_rich_tables(200))
    assert SPECIAL_CHARACTERS in console.file.getvalue()


def test_a_rounded_zero_has_no_sign(make_experiment, make_record):
    (row,) = parse_markdown_table(
        Report.from_records(make_experiment("seeds: 1\n", arms=""), [make_record("base", 0, -0.04)]).to_markdown()
    )
    assert row["best"] == "0.0"


def test_saving_twice_leaves_only_the_files_of_the_report(make_experiment, three_seeds, tmp_path):
    report = Report.from_records(make_experiment("seeds: 3\n"), three_seeds)
    report.save(tmp_path / "new" / "folder")
    report.save(tmp_path / "new" / "folder")
    files = {file.name: file.read_text() for file in (tmp_path / "new" / "folder").iterdir()}
    assert files == report.text_files() | {"report.html": report.to_html()}


def test_a_report_without_records_is_valid(make_experiment):
    report = Report.from_records(make_experiment("tune: {train.lr: [1e-3, 1e-4]}\n" + PUBLISHED), [])
    assert report.answer.summary.startswith("No results yet") and len(parse_csv(report)) == 4
    assert [row["seeds"] for row in parse_markdown_table(report.to_markdown())] == ["0 of 3", "0 of 3", "0 of 3", ""]


def test_the_frame_has_a_line_per_cell(make_record):
    records = [
        make_record(
            "a", 0, 5.0, levels={"model.update_rule": {"name": "delta", "max_beta": 2}}, point={"train.lr": 0.1}
        ),
        make_record(
            "a", 1, levels={"model.timing.window": None}, point={"train.lr": 0.2}, is_reported=False, why="late"
        ),
        make_record("b", 0, 7.0, levels={"task.seed": 3}, folder=Path("runs/b"), run="r1"),
    ]
    frame = build_frame(records)
    assert len(frame) == 3 and list(frame.columns[:3]) == ["key", "arm", "seed"]
    assert frame["update_rule"][0] == "delta(max_beta=2)" and frame["window"][1] == "null"
    assert list(frame["lr"][:2]) == [0.1, 0.2] and frame["lr"].isna()[2]
    assert list(frame["seed"]) == [0, 1, 0] and frame["task.seed"][2] == 3
    assert list(frame[METRIC].dropna()) == [5.0, 7.0] and list(frame["is_reported"]) == [True, False, True]
    assert frame["folder"][2] == "runs/b" and frame["run"][2] == "r1" and frame["why"][1] == "late"


def test_an_empty_frame_has_its_columns():
    assert {"key", "arm", "seed", "state", "folder"} <= set(build_frame([]).columns) and len(build_frame([])) == 0


def test_a_narrow_terminal_drops_the_least_important_columns():
    columns = [
        "arm", "seeds", "median ± MAD", "paired difference [95 % CI]", "verdict", "p (Fisher, solved)", "parameters",
        "tokens/s",
    ]  # fmt: skip
    row = ["delta", "3", "99.7 ± 0.1", "-1.2 [-3.4, +1.0]", "significantly worse", "0.05", "25.9k", "12.3k"]
    table = Table(columns, [row])
    assert fit_to_width(table, 200) == table
    narrow = fit_to_width(table, 56)
    assert narrow.columns == columns[:5] and narrow.rows == [[*row[:3], "-1.2\n[-3.4, +1.0]", row[4]]]
    assert narrow.notes == [
        "Columns that do not fit: p (Fisher, solved), parameters, tokens/s. Use a wider terminal, --markdown or --html "
        "to see them."
    ]
    assert fit_to_width(table, 10).columns == [
        "arm", "median ± MAD", "paired difference [95 % CI]", "verdict"
    ]  # fmt: skip
    console = Console(width=56, file=io.StringIO())
    console.print(render_rich_table("", narrow))
    printed = console.file.getvalue()
    assert max(map(len, printed.splitlines())) <= 56 and "significantly" in printed and "[-3.4, +1.0]" in printed


def test_markdown_has_commands_to_reproduce_if_they_are_known(make_experiment, three_seeds):
    report = Report.from_records(make_experiment("seeds: 3\n"), three_seeds)
    assert "How to reproduce" not in report.to_markdown()
    text = report.to_markdown(Reproduction(["hqlt run study.yaml"], {"git": {"commit": "a1b2c3"}}))
    assert "## How to reproduce\n\n    hqlt run study.yaml\n\n- seeds: 0, 1, 2\n- commit: a1b2c3\n" in text


def test_a_number_of_seeds_is_given_with_its_assumption_and_a_warning_of_optional_stopping(
    make_experiment, make_record
):
    arms = {"delta": [10.0, 20.0, 30.0, 40.0, 50.0], "linear": [12.0, 18.0, 33.0, 38.0, 55.0]}
    for seeds, is_given in ((5, True), (3, False)):
        records = [make_record(arm, seed, value) for arm in arms for seed, value in enumerate(arms[arm][:seeds])]
        report = Report.from_records(make_experiment(f"seeds: {seeds}\n"), records)
        assert ("needs about" in str(report.answer)) == is_given
        for text in (report.to_markdown(), report._repr_html_(), "\n".join(report.build_table().notes)):
            assert (SEEDS_ADVICE in text) == is_given
    assert "if the true difference is the observed one" in SEEDS_ADVICE and "optional stopping" in SEEDS_ADVICE
