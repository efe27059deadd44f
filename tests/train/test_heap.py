"""Freed memory is kept for the next step."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from hqlt_lab.train.heap import keep_freed_memory
torch.set_num_threads(1)
if {keep}:
    assert keep_freed_memory()
for _ in range(6):
    blocks = [torch.ones(2**24) for _ in range(4)]
    del blocks
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
blocks = [torch.ones(2**24) for _ in range(4)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc")
def test_blocks_that_were_freed_are_not_paid_for_again():
    def pages(keep):
        command = [sys.executable, "-c", SCRIPT.format(keep=keep)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert pages(True) < pages(False) / 10
