"""Overhead of a study beyond the training of its cells: many cells of one second each, on two workers.

    overhead = wall time / (cells x seconds / workers) - 1

The cells sleep instead of computing, so that only the lab is measured: ledger, workers, metrics, MLflow.  The warm-up
(imports, once per study) is reported separately, because it does not grow with the number of cells.

    python benchmarks/study_overhead.py [cells] [seconds]
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import hqlt_lab as lab
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.study.ledger.cell_record import CellRecord
from hqlt_lab.study.study_callback import StudyCallback

WORKERS = 2
FIXED_DURATION = '''
import time
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.registry import register


@register("mixer", "fixed_duration")
class FixedDuration(Mixer):
    """Fixed duration: the sum of both memories; a forward pass in training takes the given number of seconds."""

    def __init__(self, seconds: float = 1.0) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, x, fw, kv):
        if self.training:
            time.sleep(self.seconds)
        return fw + kv
'''
STUDY = """
question: What does a study cost beside its cells?
task: {{name: parity, train_length: [3, 4], test_length: [4, 5], eval_size: 1}}
model: {{width: 4, heads: 1, layers: 1, mlp_width: 4, mixer: {{name: fixed_duration, seconds: {seconds}}},
  positions: none, timing: {{name: synchronous, window: 2}}}}
train: {{steps: 1, batch_size: 1, keep: none}}
trainer: {{accelerator: cpu}}
launcher: {{workers: {workers}, threads: 1}}
seeds: {cells}
"""


class StudyClock(StudyCallback):
    """Records when the first cell started and the last one ended."""

    def __init__(self) -> None:
        self.first_start, self.last_end = 0.0, 0.0

    def on_cell_start(self, record: CellRecord, cell: Cell) -> None:
        self.first_start = self.first_start or time.perf_counter()

    def on_cell_end(self, record: CellRecord) -> None:
        self.last_end = time.perf_counter()


def main(cells: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "fixed_duration.py").write_text(FIXED_DURATION)
        lab.load_components(folder / "fixed_duration.py")
        (folder / "study.yaml").write_text(STUDY.format(cells=cells, seconds=seconds, workers=WORKERS))
        start, clock = time.perf_counter(), StudyClock()
        lab.run(folder / "study.yaml", limit=WORKERS, runs=folder / "runs")  # warms up the forkserver
        warm_up = time.perf_counter() - start
        result = lab.run(folder / "study.yaml", runs=folder / "runs", callback=clock)
        assert result.complete and result.sync_warning is None
        wall, ideal = clock.last_end - clock.first_start, (cells - WORKERS) * seconds / WORKERS
    row = {"cells": cells - WORKERS, "seconds_each": seconds, "workers": WORKERS, "warm_up": round(warm_up, 1)}
    print(json.dumps(row | {"wall": round(wall, 1), "ideal": ideal, "overhead": f"{100 * (wall / ideal - 1):.1f} %"}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 202, float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
