"""GPU allocation consists of pure functions, so it can be tested without GPUs."""

import subprocess
import sys
from fractions import Fraction

import pytest

from hqlt_lab.study.executors.local_executor import cuda_visible_devices
from hqlt_lab.study.executors.resources import MachineResources, allocate_gpus, gpu_fraction, max_concurrent_cells
from tests.issues import raises_issue

WHOLE, HALF, QUARTER = Fraction(1), Fraction(1, 2), Fraction(1, 4)


def test_a_cell_without_gpus_never_waits():
    assert allocate_gpus(Fraction(0), []) == ()
    assert allocate_gpus(Fraction(0), [Fraction(0)]) == ()


def test_request_for_several_gpus_is_satisfied_completely_or_not_at_all():
    assert allocate_gpus(Fraction(2), [WHOLE, HALF, WHOLE, WHOLE]) == (0, 2)
    assert allocate_gpus(Fraction(2), [WHOLE, HALF, Fraction(0)]) is None
    assert allocate_gpus(WHOLE, []) is None


def test_fractional_request_is_placed_on_the_fullest_gpu_that_has_room():
    assert allocate_gpus(QUARTER, [WHOLE, HALF]) == (1,)
    assert allocate_gpus(HALF, [WHOLE, QUARTER]) == (0,)
    assert allocate_gpus(HALF, [QUARTER, QUARTER]) is None


@pytest.mark.parametrize("requested_gpus", [1, 2, 0.5, 0.25, 0.1, 0.3])
def test_number_of_allocations_is_max_concurrent_cells_and_no_gpu_is_oversubscribed(requested_gpus):
    machine, free = MachineResources(cores=8, free_memory=2**36, gpus=4), [WHOLE] * 4
    request = gpu_fraction(requested_gpus)
    allocations = 0
    while (gpus := allocate_gpus(request, free)) is not None:
        allocations += 1
        for index in gpus:
            free[index] -= min(request, WHOLE)
    assert allocations == max_concurrent_cells(machine, request)
    assert min(free) >= 0


def test_ten_tenths_are_one():
    assert sum([gpu_fraction(0.1)] * 10) == 1


def test_cells_without_gpus_share_cores_and_memory():
    assert max_concurrent_cells(MachineResources(cores=8, free_memory=2**36, gpus=0), Fraction(0)) == 8
    assert max_concurrent_cells(MachineResources(cores=64, free_memory=5 * 2**30, gpus=0), Fraction(0)) == 5
    assert max_concurrent_cells(MachineResources(cores=1, free_memory=0, gpus=0), Fraction(0)) == 1


def test_impossible_gpu_requests_are_rejected():
    with raises_issue("trainer.devices", "too_few_gpus"):
        max_concurrent_cells(MachineResources(cores=8, free_memory=2**36, gpus=2), gpu_fraction(4))
    with raises_issue("launcher.gpus", "invalid_gpu_fraction"):
        gpu_fraction(1.5)


def test_preload_module_imports_all_libraries_and_components():
    module = "hqlt_lab.study.executors.forkserver_preload"
    script = f"import sys, {module}; print(*sys.modules); print('flush', flush=True)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"torch", "lightning.pytorch", "hqlt_lab.train.fit", "hqlt_lab.components.mixers.vector"} <= set(
        result.stdout.split()
    )


def test_worker_gpus_are_relative_to_cuda_visible_devices_of_the_coordinator(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert cuda_visible_devices((0, 2)) == "0,2"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    assert cuda_visible_devices((0, 2)) == "4,7"
    assert cuda_visible_devices(()) == ""
