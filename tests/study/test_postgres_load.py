"""Many cells and processes on one PostgreSQL: each cell is begun once and ends once, and no lock times out.

The processes only write what a coordinator writes; benchmarks/shared_study.py really trains as many cells.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hqlt_lab.study.ledger.ledger import Ledger
from hqlt_lab.study.ledger.study_store import StudyStore

pytestmark = pytest.mark.slow
CELLS, ARMS, PROCESSES = 1000, 8, 8
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT = """
import sys
from hqlt_lab.study.ledger.ledger import Ledger
from hqlt_lab.study.ledger.study_store import StudyStore

folder, cells, arms = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = StudyStore(folder, "study")
waiting = [f"cell {number}" for number in range(cells)]
with store.session():
    ledger = Ledger(store)
    while waiting:
        with ledger.claim_lock():
            waiting = [key for key in waiting if not ledger.get_attempts(key)]
            if waiting:
                study = f"arm {int(waiting[0].split()[1]) % arms}"
                cell_attributes = {"key": waiting[0], "arm": {"name": study, "levels": {}}, "seed": 0}
                cell_attributes |= {"point": {}, "is_reported": True, "code": {}}
                attempt = ledger.begin_attempt(study, ledger.ask_trial(study, {}), cell_attributes)
        if waiting:
            ledger.finish_attempt(attempt, "done", 1.0, metrics={"test/accuracy": 1.0})
            print(attempt.key)
"""


def test_eight_processes_begin_and_finish_a_thousand_cells_once(tmp_path, postgres, monkeypatch):
    monkeypatch.setenv("HQLT_STORE", postgres.create_database())
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(CELLS), str(ARMS)]
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=os.environ) for _ in range(PROCESSES)
    ]
    outputs = [process.communicate(timeout=400) for process in processes]
    assert [stderr for _, stderr in outputs] == [""] * PROCESSES  # no error, no warning, no lock timeout
    done = Counter(key for stdout, _ in outputs for key in stdout.splitlines())
    assert done == {f"cell {number}": 1 for number in range(CELLS)}
    assert min(len(stdout.splitlines()) for stdout, _ in outputs) > CELLS / PROCESSES / 10  # all processes took part
    ledger = Ledger(StudyStore(tmp_path, "study"))
    assert Counter(attempt.status for key in done for attempt in ledger.get_attempts(key)) == {"done": CELLS}


def run_benchmark(file: str, *arguments: str, store: str) -> dict[str, Any]:
    """Run a benchmark at a small size, to see that it works and not how fast, and return the JSON that it prints."""
    command = [sys.executable, str(BENCHMARKS / file), *arguments]
    environment = os.environ | {"HQLT_STORE": store}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def test_many_cells_benchmark_runs_with_a_thousand_cells(postgres):
    result = run_benchmark("many_cells.py", "1", store=postgres.create_database())
    assert result.pop("cells") == 1000
    assert set(result) == {"first status", "status", "report", "plan with one arm more", "status with one arm more"}


def test_workers_that_share_a_study_train_each_cell_once(postgres):
    result = run_benchmark("shared_study.py", "24", "3", store=postgres.create_database())
    assert (result["cells"], result["states"]) == (24, {"done": 24})
    assert (result["attempts"], result["exit codes"]) == ({"1": 24}, {"0": 3})
