"""The GPU benchmark without a GPU: it lists what it would measure, and its code runs on small shapes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


def run_benchmark(*arguments):
    """Run the benchmark with GPUs hidden; return its output."""
    command = [sys.executable, str(SCRIPTS / "gpu.py"), *arguments]
    environment = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def run_and_read_rows(file, *arguments):
    run_benchmark("--size", "340m", "--json", str(file), *arguments)
    return {row["name"]: row for row in json.loads(file.read_text())["rows"]}


@pytest.fixture
def timing(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    import gpu_timing

    return gpu_timing


def test_list_has_the_arms_of_the_paper_with_sizes_backends_and_bounds():
    output = run_benchmark("--list", "--size", "1.3b")
    assert output.count("1.47B parameters") == 3 and "fla GatedDeltaNet" in output and "340m" not in output
    lines = output.splitlines()
    index = lines.index(next(line for line in lines if line.startswith("1.3b  DeltaNet")))
    assert "1.37B parameters" in lines[index + 1] and "42.5k on each H100 of the paper" in lines[index + 1]
    assert lines[index + 2].strip().startswith("scan: ") and "There is no GPU" not in output


def test_attention_backends_agree_and_an_unavailable_one_says_why(tmp_path):
    rows = run_and_read_rows(tmp_path / "rows.json", "--kernels-only", "--only", "softmax")
    for span in ("window 64", "blocks of 64", "everything"):
        compared = [rows[f"softmax over {span} by {backend}"] for backend in ("blocks", "sdpa")]
        assert compared[0]["answer"] == pytest.approx(compared[1]["answer"], rel=1e-3)
        assert all(row["tokens_per_second"] == pytest.approx(72 / row["seconds"]) for row in compared)
    assert "it needs a GPU" in rows["softmax over window 64 by flash_attn"]["error"]


def test_models_are_measured_in_complete_training_steps(tmp_path):
    row = run_and_read_rows(tmp_path / "rows.json", "--only", "Transformer++")["Transformer++"]
    assert 3 < row["answer"] < 6  # log 64 is 4.2: nothing is learned yet
    assert row["ops"]["scan"] == {"by": "none", "why": "the mixer does not read it"}


@pytest.mark.slow
def test_functions_of_fla_agree_with_our_scan(tmp_path):
    pytest.importorskip("fla")
    rows = run_and_read_rows(tmp_path / "rows.json", "--kernels-only", "--only", "scan")
    for rule in ("delta", "gated_delta", "linear_attention", "gla", "kda", "gdn2", "comba", "dplr"):
        fla_row, torch_row = rows[f"{rule} scan, fla's own function"], rows[f"{rule} scan by torch"]
        assert fla_row["answer"] == pytest.approx(torch_row["answer"], rel=0.01)


@pytest.mark.parametrize(("batch", "rows", "too_large"), [(None, 4, [16, 8]), (16, 16, None)])
def test_rows_are_halved_until_they_fit_unless_the_batch_size_is_given(timing, batch, rows, too_large):
    from gpu_cases import NO_GPU, Case, PreparedCase

    def prepare(machine, rows):
        if rows > 4:
            raise torch.OutOfMemoryError("too many")
        return PreparedCase(lambda: torch.zeros(()), {}, rows)

    row = timing.measure_case(Case("model", "340m", "large", False, prepare), NO_GPU, batch, 1)
    assert row["rows"] == rows and row.get("did_not_fit") == too_large
    assert row.get("error") == (None if too_large else "out of memory with 16 rows")


def test_error_of_a_case_is_in_its_row(timing):
    from gpu_cases import NO_GPU, Case

    def prepare(machine, rows):
        raise ImportError("flash_attn is not installed\nand more")

    row = timing.measure_case(Case("kernel", "tiny", "broken", False, prepare), NO_GPU, None, 1)
    assert row["error"] == "ImportError: flash_attn is not installed" and "seconds" not in row
