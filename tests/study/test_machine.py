"""Who gets which GPU: a pure function, so it can be tested where there is none."""

import subprocess
import sys
from fractions import Fraction

import pytest

from hqlt_lab.errors import ConfigError
from hqlt_lab.study.machine import Machine, assign, at_once, share
from hqlt_lab.study.member import visible

WHOLE, HALF, QUARTER = Fraction(1), Fraction(1, 2), Fraction(1, 4)


def test_a_cell_without_gpus_never_waits():
    assert assign(Fraction(0), []) == ()
    assert assign(Fraction(0), [Fraction(0)]) == ()


def test_several_whole_gpus_are_taken_or_none():
    assert assign(Fraction(2), [WHOLE, HALF, WHOLE, WHOLE]) == (0, 2)
    assert assign(Fraction(2), [WHOLE, HALF, Fraction(0)]) is None
    assert assign(WHOLE, []) is None


def test_a_part_goes_where_least_is_left_so_that_others_stay_whole():
    assert assign(QUARTER, [WHOLE, HALF]) == (1,)
    assert assign(HALF, [WHOLE, QUARTER]) == (0,)
    assert assign(HALF, [QUARTER, QUARTER]) is None


@pytest.mark.parametrize("need", [1, 2, 0.5, 0.25, 0.1, 0.3])
def test_as_many_fit_as_the_machine_says_and_no_gpu_is_overbooked(need):
    machine, free = Machine(cores=8, memory=2**36, gpus=4), [WHOLE] * 4
    part = share(need)
    taken = 0
    while (gpus := assign(part, free)) is not None:
        taken += 1
        for index in gpus:
            free[index] -= min(part, WHOLE)
    assert taken == at_once(machine, part)
    assert min(free) >= 0


def test_ten_tenths_are_one():
    assert sum([share(0.1)] * 10) == 1


def test_cells_without_gpus_share_cores_and_memory():
    assert at_once(Machine(cores=8, memory=2**36, gpus=0), Fraction(0)) == 8
    assert at_once(Machine(cores=64, memory=5 * 2**30, gpus=0), Fraction(0)) == 5
    assert at_once(Machine(cores=1, memory=0, gpus=0), Fraction(0)) == 1


def test_what_cannot_be_had_is_told():
    with pytest.raises(ConfigError, match="a cell needs 4 GPUs, and there are 2"):
        at_once(Machine(cores=8, memory=2**36, gpus=2), share(4))
    with pytest.raises(ConfigError, match=r"1.5 is neither a part of one GPU nor a number of whole ones"):
        share(1.5)


def test_a_worker_is_a_fork_of_what_has_all_libraries():
    script = "import sys, os, hqlt_lab.study.warm as w; print(*sys.modules); print('flush', flush=True)"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {"torch", "lightning.pytorch", "hqlt_lab.train.fit", "hqlt_lab.components.mixers.vector"} <= set(told)


def test_a_worker_sees_the_gpus_that_we_were_given(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible((0, 2)) == "0,2"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    assert visible((0, 2)) == "4,7"
    assert visible(()) == ""
