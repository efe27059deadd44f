"""The report for programs: everything, under the same names, in plain JSON."""

import json
import math

from hqlt_lab.report.report import Report
from hqlt_lab.train.evaluations import write_evaluation
from hqlt_lab.train.probe_file import ProbeFile

TEST = "test/normalised_accuracy"


def refuse(word):
    raise AssertionError(f"{word} is no JSON")


def read(report):
    return json.loads(report.json(), parse_constant=refuse)


def test_it_says_what_the_report_says(asked, cell):
    values = {"delta": (50.0, 52.0, 51.0), "linear": (10.0, 11.0, 12.0)}
    records = [cell(arm, seed, value) for arm, seeds in values.items() for seed, value in enumerate(seeds)]
    records.append(cell("retention", 0, state="failed", why="no memory", key="abc"))
    quoted = f"quoted: {{Mamba: {{{TEST}: {{best: 98.25}}}}}}\n"
    report = Report.make(asked("seeds: 3\n" + quoted), records)
    told = read(report)
    assert (told["question"], told["answer"], told["warnings"]) == (
        report.experiment.question, report.answer, list(report.warnings),
    )  # fmt: skip
    delta, linear, _, mamba = told["rows"]
    assert delta["summaries"][TEST]["median"] == 51.0 and delta["differences"] == {}
    found = report.rows[1].differences[TEST]
    assert linear["differences"][TEST]["low"] == found.low and linear["differences"][TEST]["verdict"] == "worse"
    assert [one["metrics"][TEST] for one in linear["seeds"]] == [10.0, 11.0, 12.0]
    assert (mamba["source"], mamba["published"][TEST]) == ("quoted", {"best": 98.25})
    assert told["cells"]["states"] == {"done": 6, "failed": 1} and told["cells"]["total"] == 7
    (lost,) = told["cells"]["unfinished"]
    assert (lost["key"], lost["why"], lost["state"]) == ("abc", "no memory", "failed")


def test_effects_of_a_grid_are_in_it(asked, cell):
    experiment = asked("cross: {model.mixer: [sum, vector]}\nseeds: 2\n")
    records = [cell(arm.title, seed, 5.0 * at + seed) for at, arm in enumerate(experiment.arms) for seed in (0, 1)]
    report = Report.make(experiment, records)
    told = read(report)["effects"]
    assert report.effects and [one["mean"] for one in told] == [effect.mean for effect in report.effects]
    assert told[0]["levels"] == list(report.effects[0].levels)


def test_what_is_no_number_is_null(asked, cell):
    bad = cell("delta", 0, 5.0, metrics={TEST: 5.0, "test/loss": math.nan, "train/loss": math.inf})
    seed = read(Report.make(asked(), [bad]))["rows"][0]["seeds"][0]
    assert seed["metrics"] == {TEST: 5.0, "test/loss": None, "train/loss": None}


def test_an_empty_report_has_the_same_names(asked, cell):
    empty, full = read(Report.make(asked(), [])), read(Report.make(asked(), [cell("delta", 0, 5.0)]))
    assert list(empty) == list(full) and list(empty["rows"][0]) == list(full["rows"][0])


def test_lesions_and_probes_are_in_it(asked, cell, tmp_path):
    write_evaluation(tmp_path, "test", "fw", {TEST: 3.0})
    probes = ProbeFile(tmp_path)
    probes.add(10, [{"share": [0.25, 0.75]}])
    (seed,) = read(Report.make(asked("seeds: 1\n", arms=""), [cell("base", 0, 50.0, folder=tmp_path)]))["rows"][0][
        "seeds"
    ]
    assert seed["evaluations"] == {"test without fw": {TEST: 3.0}}
    assert seed["probes"] == {"step": 10, "layers": [{"share": [0.25, 0.75]}]}
