"""Settings of the process: environment variables, threads, garbage collector, malloc."""

import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hqlt_lab.process_settings import GC_THRESHOLD, IMPORT_ENV, limit_torch_threads, reduce_gc_frequency

ROOT = Path(__file__).parents[2]

SCRIPT = """
import resource, torch
from hqlt_lab.process_settings import disable_malloc_trim
torch.set_num_threads(1)
if {keep}:
    assert disable_malloc_trim()
for _ in range(6):
    blocks = [torch.ones(2**24) for _ in range(4)]
    del blocks
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
blocks = [torch.ones(2**24) for _ in range(4)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
def test_reusing_freed_blocks_causes_no_page_faults():
    def count_page_faults(keep):
        command = [sys.executable, "-c", SCRIPT.format(keep=keep)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert count_page_faults(True) < count_page_faults(False) / 10


@pytest.mark.parametrize("value, expected", [(None, "passive"), ("active", "active")])
def test_importing_the_package_sets_the_variables_that_the_user_has_not_set(value, expected):
    environment = {name: value for name, value in os.environ.items() if name not in IMPORT_ENV}
    environment |= {} if value is None else {"OMP_WAIT_POLICY": value}
    script = f"import os, hqlt_lab; print(os.environ['OMP_WAIT_POLICY'], set({list(IMPORT_ENV)}) <= set(os.environ))"
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == [expected, "True"]


def test_number_of_torch_threads_is_restored():
    threads = torch.get_num_threads()
    with pytest.raises(RuntimeError), limit_torch_threads(threads + 1):
        assert torch.get_num_threads() == threads + 1
        raise RuntimeError
    assert torch.get_num_threads() == threads


def test_garbage_collector_settings_are_restored():
    threshold = gc.get_threshold()
    with reduce_gc_frequency():
        assert gc.get_threshold()[0] == GC_THRESHOLD
    assert gc.get_threshold() == threshold


# These write variables that carry data, not settings: to child processes, to bash and to MLflow.
WRITERS_OF_DATA = {
    "hqlt_lab/api/tracking.py",
    "hqlt_lab/cli/terminal/completion.py",
    "hqlt_lab/track/ui/mlflow_asgi_app.py",
    "registry/plugins.py",
}
PROCESS_SETTINGS = re.compile(
    r"os\.environ(\[[^\]]*\](, os\.environ\[[^\]]*\])? = |\.(setdefault|update|pop)\(| \|= )"
    r"|\bgc\.\w+\(|mallopt|set_num(_interop)?_threads\("
)


def test_only_one_module_changes_settings_of_the_process():
    files = [file for folder in ("hqlt_lab", "registry", "components") for file in (ROOT / folder).rglob("*.py")]
    writers = {file.relative_to(ROOT).as_posix() for file in files if PROCESS_SETTINGS.search(file.read_text())}
    assert writers - WRITERS_OF_DATA == {"hqlt_lab/process_settings.py"}
