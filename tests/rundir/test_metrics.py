"""metrics.jsonl: rows are complete, stored once, and readable from any line."""

import math
import time

from hqlt_lab.rundir.metrics import METRICS_FILE, MetricsWriter, read_rows


def test_points_that_are_written_can_be_read(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write_row(1, {"train/loss": 0.5, "odd": math.nan, "large": math.inf})
        writer.write_row(2, {"train/loss": 0.25})
    (first, second), end = read_rows(tmp_path)
    assert (first.step, first.metrics["train/loss"], first.metrics["large"]) == (1, 0.5, math.inf)
    assert math.isnan(first.metrics["odd"])
    assert (second.step, second.metrics) == (2, {"train/loss": 0.25})
    assert abs(first.time / 1000 - time.time()) < 60
    assert end == (tmp_path / METRICS_FILE).stat().st_size


def test_reading_continues_at_the_returned_offset(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write_row(1, {"a": 1.0})
        _, end = read_rows(tmp_path)
        writer.write_row(2, {"a": 2.0})
        rows, end = read_rows(tmp_path, end)
        assert [row.step for row in rows] == [2]
        assert read_rows(tmp_path, end) == ([], end)


def test_reading_in_chunks_returns_every_point(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        for step in range(50):
            writer.write_row(step, {"a": 1.0})
    steps, end = [], 0
    while True:
        rows, end = read_rows(tmp_path, end, max_bytes=300)
        if not rows:
            break
        steps += [row.step for row in rows]
    assert steps == list(range(50))


def test_an_unfinished_line_is_not_read_and_is_truncated_by_the_next_attempt(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write_row(1, {"a": 1.0})
    with (tmp_path / METRICS_FILE).open("ab") as file:
        file.write(b'{"step": 2, "ti')
    rows, end = read_rows(tmp_path)
    assert [row.step for row in rows] == [1]
    with MetricsWriter(tmp_path) as writer:
        assert (tmp_path / METRICS_FILE).stat().st_size == end
        writer.write_row(2, {"a": 2.0})
    assert [row.step for row in read_rows(tmp_path)[0]] == [1, 2]


def test_a_line_of_zeros_is_skipped(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write_row(1, {"a": 1.0})
        with (tmp_path / METRICS_FILE).open("ab") as file:
            file.write(b"\0" * 40 + b"\n")
        writer.write_row(2, {"a": 2.0})
    assert [row.step for row in read_rows(tmp_path)[0]] == [1, 2]


def test_the_first_value_is_kept_when_a_step_is_logged_again(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        for step in (1, 2, 3):
            writer.write_row(step, {"a": float(step)})
    with MetricsWriter(tmp_path) as writer:  # resumed from a checkpoint at step 1
        for step in (2, 3, 4):
            writer.write_row(step, {"a": -1.0, "b": 0.0} if step == 3 else {"a": -1.0})
    rows, _ = read_rows(tmp_path)
    assert [(row.step, row.metrics) for row in rows] == [
        (1, {"a": 1.0}),
        (2, {"a": 2.0}),
        (3, {"a": 3.0}),
        (3, {"b": 0.0}),
        (4, {"a": -1.0}),
    ]


def test_writing_a_point_takes_microseconds(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        started = time.thread_time()  # not the clock: other programs may share the machine
        for step in range(2000):
            writer.write_row(step, {"train/loss": 0.5, "train/gradient_norm": 1.0, "speed/tokens_per_second": 1e4})
        assert (time.thread_time() - started) / 2000 < 500e-6  # measured: 12 microseconds


def test_a_missing_file_has_no_points(tmp_path):
    assert read_rows(tmp_path) == ([], 0)
