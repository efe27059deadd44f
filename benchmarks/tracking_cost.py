"""Overhead of metrics and tracking: training steps of about 20 ms, inside a study and with `fit` alone.

    cost = time per step in a study (worker, metrics file, progress display, MLflow) / time per step of `fit` alone - 1

Both alternate; the time of a round is the median over groups of twenty steps, and the best round counts.  The study
has one worker; the thread that sends metrics to MLflow runs in the coordinator's process, on any free core.  Measured
with metrics logged every ten steps, which is the default, and at every step.

Also measures how many finished cells with short curves MLflow on SQLite takes per second.

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
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.rundir.metrics import MetricsWriter, read_rows
from hqlt_lab.rundir.outcome import Outcome
from hqlt_lab.study.study_callback import StudyCallback
from hqlt_lab.track.mlflow_sync import sync_study
from hqlt_lab.track.study_description import CellInfo, StudyInfo
from hqlt_lab.track.tracking_store import StoreConnection, default_tracking_store
from hqlt_lab.train.fit import fit_in_process

ROUNDS = 3
STUDY = """
question: What does tracking cost?
task: {{name: parity, train_length: [3, 40], test_length: [40, 48], eval_size: 8}}
model: {{width: 32, heads: 2, layers: 1, mixer: sum, positions: none, timing: {{name: synchronous, window: 8}}}}
train: {{steps: {steps}, batch_size: 32, log_every: {every}, valid_every: 100000, checkpoint_every: 100000}}
trainer: {{accelerator: cpu}}
launcher: {{workers: 1, threads: 1}}
seeds: {turns}
"""


def step_time(timestamps: list[float], every: int) -> float:
    """Return the milliseconds per step, as the median over groups of twenty steps."""
    return statistics.median(after - before for before, after in pairwise(timestamps[:: 20 // every])) / 20


def measure_tracking(steps: int, log_every: int) -> None:
    """Measure the overhead with metrics logged every `log_every` steps."""
    alone, tracked = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "tracking.yaml"
        file.write_text(STUDY.format(steps=steps, turns=ROUNDS, every=log_every))
        experiment = load_experiment(file)
        for seed in experiment.seeds:
            timestamps: list[float] = []
            cell = experiment.make_cell(experiment.arms[0], {}, seed)
            fit_in_process(
                cell, folder / f"alone{seed}", lambda *_, timestamps=timestamps: timestamps.append(1000 * time.time())
            )
            alone.append(step_time(timestamps, log_every))
            lab.run(file, only=[f"seed={seed}"], runs=folder / "runs", callback=StudyCallback())
            results = lab.results(file, runs=folder / "runs").query(f"seed == {seed}")
            (cell_folder,) = map(Path, results.folder)
            tracked.append(step_time([point.time for point in read_rows(cell_folder)[0]], log_every))
    row = {"log_every": log_every, "alone_ms": round(min(alone), 2), "tracked_ms": round(min(tracked), 2)}
    print(json.dumps(row | {"cost": f"{100 * (min(tracked) / min(alone) - 1):.1f} %"}))


def measure_uploads(cells: int = 100, rows: int = 20) -> None:
    """Send finished cells to a new SQLite database, and print the cells per second of wall and of processor time."""
    sizes = {"parameters": 7, "state_bytes": 640, "flops_per_token": 2.5e3}
    with tempfile.TemporaryDirectory() as name:
        store, cell_infos = default_tracking_store(Path(name)), []
        study = StudyInfo(name="uploads", question="How fast?", folder=Path(name) / "studies/uploads")
        StoreConnection(store).open_client()
        for seed in range(cells):
            folder = study.folder / f"cells/{seed:016x}"
            with MetricsWriter(folder) as writer:
                for step in range(1, rows + 1):
                    writer.write_row(step, {"train/loss": 1 / step, "valid/loss": 1 / step})
            metrics = {"test/loss": 0.1}
            Outcome(status="done", step=rows, metrics=metrics, seconds=1.0, tokens_per_second=1.0, **sizes).write(
                folder
            )
            info = {"key": folder.name, "title": f"seed={seed}", "arm": "a", "seed": seed, "folder": folder}
            cell_infos.append(CellInfo(**info, axes={}, task={"name": "parity"}, state="done"))
        wall, processor = time.perf_counter(), time.process_time()
        assert sync_study(store, study, cell_infos) is None
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
    row = {"cells": cells, "cells_per_second": round(cells / wall, 1)}
    print(json.dumps(row | {"cells_per_processor_second": round(cells / processor, 1)}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for every in (10, 1):
        measure_tracking(int(sys.argv[1]) if len(sys.argv) > 1 else 300, every)
    measure_uploads()
