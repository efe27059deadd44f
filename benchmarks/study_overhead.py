"""What a study costs beside its cells: many cells of one second each, on two workers.

    overhead = wall time / (cells x seconds / workers) - 1

The cells sleep instead of computing, so that what is measured is the lab: ledger, workers, curves, MLflow. Warming up
(imports, once per study) is told apart, because it does not grow with the number of cells.

    python benchmarks/study_overhead.py [cells] [seconds]
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import hqlt_lab as lab
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.study.record import Record
from hqlt_lab.study.view import View

WORKERS = 2
SLEEPER = '''
import time
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.registry import register


@register("mixer", "sleeper")
class Sleeper(Mixer):
    """Sleeper: the sum of both memories; a training step takes as long as it is told."""

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
model: {{width: 4, heads: 1, layers: 1, mlp_width: 4, mixer: {{name: sleeper, seconds: {seconds}}}, positions: none,
  timing: {{name: synchronous, window: 2}}}}
train: {{steps: 1, batch_size: 1, keep: none}}
trainer: {{accelerator: cpu}}
launcher: {{workers: {workers}, threads: 1}}
seeds: {cells}
"""


class Clock(View):
    """Notes when the first cell began and the last one ended."""

    def __init__(self) -> None:
        self.first, self.last = 0.0, 0.0

    def started(self, record: Record, cell: Cell) -> None:
        self.first = self.first or time.perf_counter()

    def settled(self, record: Record) -> None:
        self.last = time.perf_counter()


def main(cells: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sleeper.py").write_text(SLEEPER)
        lab.include(folder / "sleeper.py")
        (folder / "study.yaml").write_text(STUDY.format(cells=cells, seconds=seconds, workers=WORKERS))
        began, clock = time.perf_counter(), Clock()
        lab.run(folder / "study.yaml", limit=WORKERS, runs=folder / "runs")  # the server is warm from here on
        warm = time.perf_counter() - began
        done = lab.run(folder / "study.yaml", runs=folder / "runs", view=clock)
        assert done.complete and done.untracked is None
        wall, ideal = clock.last - clock.first, (cells - WORKERS) * seconds / WORKERS
    told = {"cells": cells - WORKERS, "seconds_each": seconds, "workers": WORKERS, "warm_up": round(warm, 1)}
    print(json.dumps(told | {"wall": round(wall, 1), "ideal": ideal, "overhead": f"{100 * (wall / ideal - 1):.1f} %"}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 202, float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
