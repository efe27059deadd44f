"""The report as JSON."""

import json
import math

from hqlt_lab.report.study_report import Report
from hqlt_lab.rundir.diagnostics import ProbeWriter
from hqlt_lab.rundir.evaluations import write_evaluation

METRIC = "test/normalized_accuracy"


def reject_constant(constant):
    raise AssertionError(f"{constant} is not valid JSON")


def parse(report):
    return json.loads(report.to_json(), parse_constant=reject_constant)


def test_the_json_holds_the_content_of_the_report(make_experiment, make_record):
    values = {"delta": (50.0, 52.0, 51.0), "linear": (10.0, 11.0, 12.0)}
    records = [make_record(arm, seed, value) for arm, seeds in values.items() for seed, value in enumerate(seeds)]
    records.append(make_record("retention", 0, state="failed", why="no memory", key="abc"))
    quoted = f"quoted: {{Mamba: {{{METRIC}: {{best: 98.25}}}}}}\n"
    report = Report.from_records(make_experiment("seeds: 3\n" + quoted), records)
    content = parse(report)
    assert (content["question"], content["answer"], content["warnings"]) == (
        report.experiment.question, str(report.answer), list(report.warnings),
    )  # fmt: skip
    delta, linear, _, mamba = content["rows"]
    assert delta["summaries"][METRIC]["median"] == 51.0 and delta["differences"] == {}
    difference = report.rows[1].differences[METRIC]
    assert (
        linear["differences"][METRIC]["low"] == difference.low and linear["differences"][METRIC]["verdict"] == "worse"
    )
    assert [seed["metrics"][METRIC] for seed in linear["seeds"]] == [10.0, 11.0, 12.0]
    assert (mamba["source"], mamba["published"][METRIC]) == ("quoted", {"best": 98.25})
    assert content["cells"]["states"] == {"done": 6, "failed": 1} and content["cells"]["total"] == 7
    (unfinished,) = content["cells"]["unfinished"]
    assert (unfinished["key"], unfinished["why"], unfinished["state"]) == ("abc", "no memory", "failed")


def test_effects_of_a_grid_are_included(make_experiment, make_record):
    experiment = make_experiment("cross: {model.mixer: [sum, vector]}\nseeds: 2\n")
    records = [
        make_record(arm.title, seed, 5.0 * index + seed) for index, arm in enumerate(experiment.arms) for seed in (0, 1)
    ]
    report = Report.from_records(experiment, records)
    effects = parse(report)["effects"]
    assert report.effects and [effect["mean"] for effect in effects] == [effect.mean for effect in report.effects]
    assert effects[0]["levels"] == list(report.effects[0].levels)


def test_non_finite_numbers_become_null(make_experiment, make_record):
    record = make_record("delta", 0, 5.0, metrics={METRIC: 5.0, "test/loss": math.nan, "train/loss": math.inf})
    seed = parse(Report.from_records(make_experiment(), [record]))["rows"][0]["seeds"][0]
    assert seed["metrics"] == {METRIC: 5.0, "test/loss": None, "train/loss": None}


def test_an_empty_report_has_the_same_keys(make_experiment, make_record):
    empty, full = (
        parse(Report.from_records(make_experiment(), [])),
        parse(Report.from_records(make_experiment(), [make_record("delta", 0, 5.0)])),
    )
    assert list(empty) == list(full) and list(empty["rows"][0]) == list(full["rows"][0])


def test_lesions_and_probes_are_included(make_experiment, make_record, tmp_path):
    write_evaluation(tmp_path, "test", "fw", {METRIC: 3.0})
    probes = ProbeWriter(tmp_path)
    probes.write_table(10, [{"share": [0.25, 0.75]}])
    (seed,) = parse(
        Report.from_records(make_experiment("seeds: 1\n", arms=""), [make_record("base", 0, 50.0, folder=tmp_path)])
    )["rows"][0]["seeds"]
    assert seed["evaluations"] == {"test without fw": {METRIC: 3.0}}
    assert seed["probes"] == {"step": 10, "layers": [{"share": [0.25, 0.75]}]}
