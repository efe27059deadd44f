"""Many cells, many programs, one PostgreSQL: each cell is begun once and ends once, and no lock is ever in the way.

Here programs only write what a coordinator writes; benchmarks/shared_study.py trains as many cells for real.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hqlt_lab.study.ledger import Ledger
from hqlt_lab.study.store import Store

pytestmark = pytest.mark.slow
CELLS, ARMS, PROGRAMS = 1000, 8, 8
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROGRAM = """
import sys
from hqlt_lab.study.ledger import Ledger
from hqlt_lab.study.store import Store

folder, cells, arms = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = Store(folder, "study")
waiting = [f"cell {number}" for number in range(cells)]
with store.owned():
    ledger = Ledger(store)
    while waiting:
        with ledger.claiming():
            waiting = [key for key in waiting if not ledger.of(key)]
            if waiting:
                study = f"arm {int(waiting[0].split()[1]) % arms}"
                told = {"key": waiting[0], "arm": study, "seed": 0, "point": {}, "counts": True, "code": {}}
                attempt = ledger.begin(study, ledger.ask(study, {}), told)
        if waiting:
            ledger.finish(attempt, "done", 1.0, metrics={"test/accuracy": 1.0})
            print(attempt.key)
"""


def test_a_thousand_cells_and_eight_programs(tmp_path, postgres, monkeypatch):
    monkeypatch.setenv("HQLT_STORE", postgres.database())
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(CELLS), str(ARMS)]
    pipe = subprocess.PIPE
    everyone = [subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=os.environ) for _ in range(PROGRAMS)]
    ended = [one.communicate(timeout=400) for one in everyone]
    assert [told for _, told in ended] == [""] * PROGRAMS  # no error, no warning, no lock that was waited for too long
    done = Counter(key for said, _ in ended for key in said.splitlines())
    assert done == {f"cell {number}": 1 for number in range(CELLS)}
    assert min(len(said.splitlines()) for said, _ in ended) > CELLS / PROGRAMS / 10  # all had their part
    ledger = Ledger(Store(tmp_path, "study"))
    assert Counter(one.status for key in done for one in ledger.of(key)) == {"done": CELLS}


def measured(file: str, *words: str, store: str) -> dict[str, Any]:
    """What a benchmark of the large says in the small: that it works, not how fast."""
    command = [sys.executable, str(BENCHMARKS / file), *words]
    done = subprocess.run(command, env=os.environ | {"HQLT_STORE": store}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_thousand_finished_cells_are_looked_at_and_an_arm_is_added(postgres):
    told = measured("many_cells.py", "1", store=postgres.database())
    assert told.pop("cells") == 1000
    assert set(told) == {"first status", "status", "report", "plan with one arm more", "status with one arm more"}


def test_workers_that_share_a_study_train_each_cell_once(postgres):
    told = measured("shared_study.py", "24", "3", store=postgres.database())
    assert (told["cells"], told["states"], told["attempts"], told["exit codes"]) == (
        24,
        {"done": 24},
        {"1": 24},
        {"0": 3},
    )
