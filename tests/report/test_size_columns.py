"""Sizes of arms in the CSV file and the data frame."""

import csv
import io

from hqlt_lab.report.render.cells_dataframe import build_frame
from hqlt_lab.report.study_report import Report


def test_state_and_flops_have_columns_in_the_csv_and_in_the_frame(make_experiment, make_record):
    records = [make_record("delta", 0, 90.0, parameters=123, state_bytes=640, flops_per_token=2.5e3)]
    lines = csv.DictReader(io.StringIO(Report.from_records(make_experiment("seeds: 1\n"), records).to_csv()))
    line = next(line for line in lines if line["arm"] == "delta")
    assert (line["parameters"], line["state_bytes"], line["flops_per_token"]) == ("123", "640", "2500.0")
    (sizes,) = build_frame(records)[["parameters", "state_bytes", "flops_per_token"]].values.tolist()
    assert sizes == [123, 640, 2500.0]
