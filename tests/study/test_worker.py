"""What a worker does in a cell's folder, where one who was taken for dead may still be at work."""

import json
import multiprocessing
import threading
import time
from pathlib import Path

import psutil

from hqlt_lab.study.crew import Crew
from hqlt_lab.study.worker import attempt, glance, order_for
from hqlt_lab.track.spool import FILE, read
from hqlt_lab.train import claim
from hqlt_lab.train.outcome import read_outcome


def last_word(crew):
    while True:
        for event in crew.events(timeout=10):
            if event.word != "point":
                return event.word


def test_a_cell_that_ended_in_time_is_not_late_because_nobody_listened(lab):
    experiment, crew = lab.experiment("seeds: 2"), Crew(1, 1, 0, lambda cell: 0, None)
    try:
        for seed in range(2):
            folder, crew.time_limit = lab.folder / str(seed), None
            crew.start(str(seed), experiment.cell(experiment.arms[0], {}, seed), folder, 1)
            until = time.monotonic() + 60
            while not read_outcome(folder) and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(0.5)  # for its last word
            crew.time_limit = 1e-6
            assert last_word(crew) == "ended"
    finally:
        crew.close()


def test_a_point_that_nobody_takes_makes_nobody_wait():
    ours, theirs = multiprocessing.Pipe()
    for step in range(100_000):
        glance(theirs, ("point", {"step": step, "metrics": {"train/loss": 0.5}}))
    theirs.send(("ended", {}))  # there is room left for what must be told
    assert ours.recv()[1]["step"] == 0


POINT = json.dumps({"step": 1, "time": 1, "metrics": {"train/loss": 7.0}}) + "\n"


def write_slowly(folder: Path, begun: threading.Event) -> None:
    """The first half of a point, then, when the next one is about to train here, the second."""
    with claim.held(folder), (folder / FILE).open("a", buffering=1) as file:
        file.write(POINT[:20])
        file.flush()
        begun.set()
        while not (folder / claim.FILE).exists():
            time.sleep(0.01)
        file.write(POINT[20:])


def test_a_curve_that_somebody_still_writes_is_not_cut(lab, tmp_path):
    experiment, folder, begun = lab.experiment("seeds: 1"), tmp_path / "cell", threading.Event()
    folder.mkdir()
    other = threading.Thread(target=write_slowly, args=(folder, begun), daemon=True)
    other.start()
    assert begun.wait(10)
    order = order_for(experiment.cell(experiment.arms[0], {}, 0), folder, 2, gpus="")
    assert attempt(order, lambda message: None, lambda: False)[0] == "ended"
    points = read(folder)[0]
    assert points[0].metrics["train/loss"] == 7.0 and {point.step for point in points} == {1, 2, 3, 4, 5, 6}
    assert not [file.path for file in psutil.Process().open_files() if Path(file.path).is_relative_to(folder)]
