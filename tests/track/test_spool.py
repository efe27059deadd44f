"""The spool: what a run recorded, whole, once, and readable from anywhere."""

import math
import time

from hqlt_lab.track.spool import FILE, Spool, read


def test_what_is_written_is_read(tmp_path):
    with Spool(tmp_path) as spool:
        spool.add(1, {"train/loss": 0.5, "odd": math.nan, "large": math.inf})
        spool.add(2, {"train/loss": 0.25})
    (first, second), end = read(tmp_path)
    assert (first.step, first.metrics["train/loss"], first.metrics["large"]) == (1, 0.5, math.inf)
    assert math.isnan(first.metrics["odd"])
    assert (second.step, second.metrics) == (2, {"train/loss": 0.25})
    assert abs(first.time / 1000 - time.time()) < 60
    assert end == (tmp_path / FILE).stat().st_size


def test_reading_goes_on_where_it_stopped(tmp_path):
    with Spool(tmp_path) as spool:
        spool.add(1, {"a": 1.0})
        _, end = read(tmp_path)
        spool.add(2, {"a": 2.0})
        points, end = read(tmp_path, end)
        assert [point.step for point in points] == [2]
        assert read(tmp_path, end) == ([], end)


def test_pieces_make_the_whole(tmp_path):
    with Spool(tmp_path) as spool:
        for step in range(50):
            spool.add(step, {"a": 1.0})
    steps, end = [], 0
    while True:
        points, end = read(tmp_path, end, most=300)
        if not points:
            break
        steps += [point.step for point in points]
    assert steps == list(range(50))


def test_a_torn_line_waits_and_is_cut_by_the_next_attempt(tmp_path):
    with Spool(tmp_path) as spool:
        spool.add(1, {"a": 1.0})
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"step": 2, "ti')
    points, end = read(tmp_path)
    assert [point.step for point in points] == [1]
    with Spool(tmp_path) as spool:
        assert (tmp_path / FILE).stat().st_size == end
        spool.add(2, {"a": 2.0})
    assert [point.step for point in read(tmp_path)[0]] == [1, 2]


def test_a_line_that_a_disk_lost_is_passed_over(tmp_path):
    with Spool(tmp_path) as spool:
        spool.add(1, {"a": 1.0})
        with (tmp_path / FILE).open("ab") as file:
            file.write(b"\0" * 40 + b"\n")
        spool.add(2, {"a": 2.0})
    assert [point.step for point in read(tmp_path)[0]] == [1, 2]


def test_of_a_step_that_is_recorded_again_the_first_stays(tmp_path):
    with Spool(tmp_path) as spool:
        for step in (1, 2, 3):
            spool.add(step, {"a": float(step)})
    with Spool(tmp_path) as spool:  # goes on from a checkpoint at step 1
        for step in (2, 3, 4):
            spool.add(step, {"a": -1.0, "b": 0.0} if step == 3 else {"a": -1.0})
    points, _ = read(tmp_path)
    assert [(point.step, point.metrics) for point in points] == [
        (1, {"a": 1.0}),
        (2, {"a": 2.0}),
        (3, {"a": 3.0}),
        (3, {"b": 0.0}),
        (4, {"a": -1.0}),
    ]


def test_a_point_costs_training_next_to_nothing(tmp_path):
    with Spool(tmp_path) as spool:
        started = time.perf_counter()
        for step in range(2000):
            spool.add(step, {"train/loss": 0.5, "train/gradient_norm": 1.0, "speed/tokens_per_second": 1e4})
        assert (time.perf_counter() - started) / 2000 < 100e-6 * 5  # measured: 12 microseconds; machines are shared


def test_no_file_is_no_points(tmp_path):
    assert read(tmp_path) == ([], 0)
