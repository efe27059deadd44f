"""The GPU benchmark on a machine without one: it tells what it would measure, and its code works on small shapes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


def typed(*words):
    """Without a GPU, whatever the machine has."""
    command = [sys.executable, str(SCRIPTS / "gpu.py"), *words]
    environment = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def measured_rows(file, *words):
    typed("--size", "340m", "--json", str(file), *words)
    return {row["name"]: row for row in json.loads(file.read_text())["rows"]}


@pytest.fixture
def timing(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    import gpu_timing

    return gpu_timing


def test_the_list_has_the_papers_arms_with_their_sizes_backends_and_bounds():
    told = typed("--list", "--size", "1.3b")
    assert told.count("1.47B parameters") == 3 and "fla GatedDeltaNet" in told and "340m" not in told
    lines = told.splitlines()
    after = lines.index(next(line for line in lines if line.startswith("1.3b  DeltaNet")))
    assert "1.37B parameters" in lines[after + 1] and "42.5k on each H100 of the paper" in lines[after + 1]
    assert lines[after + 2].strip().startswith("scan: ") and "There is no GPU" not in told


def test_attention_backends_give_one_answer_and_one_that_cannot_says_why(tmp_path):
    rows = measured_rows(tmp_path / "rows.json", "--kernels-only", "--only", "softmax")
    for sees in ("window 64", "blocks of 64", "everything"):
        found = [rows[f"softmax over {sees} by {backend}"] for backend in ("blocks", "sdpa")]
        assert found[0]["answer"] == pytest.approx(found[1]["answer"], rel=1e-3)
        assert all(row["tokens_per_second"] == pytest.approx(72 / row["seconds"]) for row in found)
    assert "it needs a GPU" in rows["softmax over window 64 by flash_attn"]["error"]


def test_a_model_takes_whole_training_steps(tmp_path):
    row = measured_rows(tmp_path / "rows.json", "--only", "Transformer++")["Transformer++"]
    assert 3 < row["answer"] < 6  # log 64 is 4.2: nothing is learned yet
    assert row["ops"]["scan"] == {"by": "none", "why": "the mixer does not read it"}


@pytest.mark.slow
def test_flas_own_functions_answer_as_the_labs_scan_does(tmp_path):
    pytest.importorskip("fla")
    rows = measured_rows(tmp_path / "rows.json", "--kernels-only", "--only", "scan")
    for rule in ("delta", "gated_delta", "linear_attention"):
        theirs, ours = rows[f"{rule} scan, fla's own function"], rows[f"{rule} scan by torch"]
        assert theirs["answer"] == pytest.approx(ours["answer"], rel=0.01)


@pytest.mark.parametrize(("batch", "rows", "tried"), [(None, 4, [16, 8]), (16, 16, None)])
def test_rows_are_halved_until_they_fit_unless_they_were_asked_for(timing, batch, rows, tried):
    from gpu_cases import NO_GPU, Case, Made

    def make(machine, rows):
        if rows > 4:
            raise torch.OutOfMemoryError("too many")
        return Made(lambda: torch.zeros(()), {}, rows)

    row = timing.measured(Case("model", "340m", "large", False, make), NO_GPU, batch, 1)
    assert row["rows"] == rows and row.get("did_not_fit") == tried
    assert row.get("error") == (None if tried else "out of memory with 16 rows")


def test_what_fails_tells_why_in_its_row(timing):
    from gpu_cases import NO_GPU, Case

    def make(machine, rows):
        raise ImportError("flash_attn is not installed\nand more")

    row = timing.measured(Case("kernel", "tiny", "broken", False, make), NO_GPU, None, 1)
    assert row["error"] == "ImportError: flash_attn is not installed" and "seconds" not in row
