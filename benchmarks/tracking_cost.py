"""What curves and tracking cost a run: steps of about 20 ms, with and without the lab.

    cost = time per step in a study (worker, curves on disk, live view, MLflow) / time per step of `fit` alone - 1

Both take turns in one run; of each turn the median of twenty steps counts, and of all turns the best.  The study has
one worker; the courier to MLflow works in the coordinator's process, on whatever core is free.  Measured with a point
of each curve every ten steps, which is the default, and at every step.

    python benchmarks/tracking_cost.py [steps]
"""

import json
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch

import hqlt_lab as lab
from hqlt_lab.experiment.experiment import load
from hqlt_lab.study.view import View
from hqlt_lab.track.spool import read
from hqlt_lab.train.fit import fit_here

TURNS = 3
STUDY = """
question: What does tracking cost?
task: {{name: parity, train_length: [3, 40], test_length: [40, 48], eval_size: 8}}
model: {{width: 32, heads: 2, layers: 1, mixer: sum, positions: none, timing: {{name: synchronous, window: 8}}}}
train: {{steps: {steps}, batch_size: 32, log_every: {every}, valid_every: 100000, checkpoint_every: 100000}}
trainer: {{accelerator: cpu}}
launcher: {{workers: 1, threads: 1}}
seeds: {turns}
"""


def step_time(moments: list[float], every: int) -> float:
    """Of all runs of twenty steps the median, in milliseconds per step."""
    return statistics.median(after - before for before, after in pairwise(moments[:: 20 // every])) / 20


def measure(steps: int, every: int) -> None:
    """With a point every so many steps."""
    alone, tracked = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "tracking.yaml"
        file.write_text(STUDY.format(steps=steps, turns=TURNS, every=every))
        experiment = load(file)
        for seed in experiment.seeds:
            moments: list[float] = []
            cell = experiment.cell(experiment.arms[0], {}, seed)
            fit_here(cell, folder / f"alone{seed}", lambda *_, moments=moments: moments.append(1000 * time.time()))
            alone.append(step_time(moments, every))
            lab.run(file, only=[f"seed={seed}"], runs=folder / "runs", view=View())
            (place,) = (Path(one) for one in lab.results(file, runs=folder / "runs").query(f"seed == {seed}").folder)
            tracked.append(step_time([point.time for point in read(place)[0]], every))
    told = {"a_point_every": every, "alone_ms": round(min(alone), 2), "tracked_ms": round(min(tracked), 2)}
    print(json.dumps(told | {"cost": f"{100 * (min(tracked) / min(alone) - 1):.1f} %"}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for every in (10, 1):
        measure(int(sys.argv[1]) if len(sys.argv) > 1 else 300, every)
