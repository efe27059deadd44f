"""Looks into the memories while a run trains, and the file they are kept in."""

import math

from hqlt_lab.train.evaluations import read_evaluations, write_evaluations
from hqlt_lab.train.probe_file import FILE, ProbeFile, ProbeTable, probe_tables, read_probes


def test_the_last_look_is_read_and_what_is_no_number_is_none(tmp_path):
    file = ProbeFile(tmp_path)
    file.add(10, [{"share": [0.5, 0.25]}])
    file.add(20, [{"share": [0.75, math.nan]}, {"entropy": [1.0, None]}])
    assert read_probes(tmp_path) == ProbeTable(20, [{"share": [0.75, None]}, {"entropy": [1.0, None]}])
    assert read_probes(tmp_path / "elsewhere") is None


def test_a_torn_line_is_cut_and_a_step_that_is_there_is_not_written_again(tmp_path):
    ProbeFile(tmp_path).add(10, [{"share": [0.5]}])
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"step": 20, "lay')
    assert read_probes(tmp_path) == ProbeTable(10, [{"share": [0.5]}])
    again = ProbeFile(tmp_path)
    again.add(10, [{"share": [0.0]}])
    again.add(20, [{"share": [1.0]}])
    again.add(30, [{"share": [0.0]}])
    assert [(look.step, look.layers[0]["share"]) for look in probe_tables(tmp_path)] == [
        (10, [0.5]),
        (20, [1.0]),
        (30, [0.0]),
    ]


def test_evaluations_are_added_to_those_that_are_there(tmp_path):
    assert read_evaluations(tmp_path) == {}
    write_evaluations(tmp_path, {"test": {"test/loss": 1.0}})
    write_evaluations(tmp_path, {"test without fw": {"test/loss": 2.0}, "test": {"test/loss": 0.5}})
    assert read_evaluations(tmp_path) == {"test": {"test/loss": 0.5}, "test without fw": {"test/loss": 2.0}}
