"""How large an arm is stands where other programs read it."""

import csv
import io

from hqlt_lab.report.frame import frame
from hqlt_lab.report.report import Report


def test_state_and_flops_have_columns_in_the_csv_and_in_the_frame(asked, cell):
    records = [cell("delta", 0, 90.0, parameters=123, state_bytes=640, flops_per_token=2.5e3)]
    lines = csv.DictReader(io.StringIO(Report.make(asked("seeds: 1\n"), records).csv()))
    line = next(line for line in lines if line["arm"] == "delta")
    assert (line["parameters"], line["state_bytes"], line["flops_per_token"]) == ("123", "640", "2500.0")
    (told,) = frame(records)[["parameters", "state_bytes", "flops_per_token"]].values.tolist()
    assert told == [123, 640, 2500.0]
