"""Settings of the whole process: environment variables of libraries, threads, garbage collector, malloc, warnings.

Everything here changes the process for all code in it, so it is set in one place. A value that the user has set in the
environment is kept. Variables that pass data to child processes or to MLflow's server are not settings and are written
where the data are. This module imports no heavy library: `import hqlt_lab` uses it.
"""

import atexit
import gc
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

IMPORT_ENV = {
    # OpenMP threads sleep while they wait. The default is to spin, which made a training step up to 30 times slower
    # when two programs shared the cores. OpenMP reads this when torch is loaded.
    "OMP_WAIT_POLICY": "passive",
    # Some virtual machines report AMX support but crash at the first AMX instruction, which bfloat16 matrix products
    # use. float32 does not need AMX.
    "ONEDNN_MAX_CPU_ISA": "AVX10_1_512",
    # MLflow, the Hugging Face hub client and Ray collect usage statistics unless these variables are set.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_UPDATE_DOWNLOAD_COUNTS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
TRAINING_ENV = {
    # With this workspace cuBLAS is deterministic. torch reads the variable once, at the first matrix product on a GPU.
    # Lightning sets it only for deterministic cells, which is too late in a worker that trained another cell before.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
TOKENIZERS_ENV = {"TOKENIZERS_PARALLELISM": "false"}  # each worker process encodes with one thread
HUB_TOKENIZER_ENV = {**TOKENIZERS_ENV, "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1"}
RAY_ENV = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # cells that request no GPU see none
    "RAY_worker_niceness": "0",  # in a local cluster, which would run cells at low priority
}
MLFLOW_CLIENT_ENV = {
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # the sync thread retries by itself, and must not be blocked by retries in MLflow
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
MLFLOW_SQLITE_ENV = {
    "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool",  # a pooled connection would write to a file that was moved away
}

GC_THRESHOLD = 100_000
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # parameters of mallopt
INT_MAX = 2**31 - 1
TRIM_DISABLED = -1


def set_env_defaults(variables: dict[str, str]) -> None:
    """Set environment variables that are not set; call this before the library that reads them is imported."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def ignore_tqdm_warning() -> None:
    """Ignore that ipywidgets is missing: Lightning and Optuna import tqdm.auto, which warns of it in a notebook."""
    warnings.filterwarnings("ignore", "IProgress not found")


def set_visible_gpus(devices: str) -> None:
    """Restrict this process to these GPUs, such as "0,1"; call this before CUDA is initialized."""
    os.environ["CUDA_VISIBLE_DEVICES"] = devices


def set_cpu_threads(threads: int) -> None:
    """Set the CPU threads of torch in this process and in its child processes, such as those of a multi-device cell."""
    import torch

    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)


@contextmanager
def limit_torch_threads(threads: int) -> Iterator[None]:
    """Let torch use this number of CPU threads in this context."""
    import torch

    previous = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


@contextmanager
def reduce_gc_frequency() -> Iterator[None]:
    """Run the garbage collector rarely: importing torch creates half a million objects, and few cycles arise."""
    original_threshold = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD)
    atexit.register(freeze_gc_at_exit)
    try:
        yield
    finally:
        gc.set_threshold(*original_threshold)


def freeze_gc_at_exit() -> None:
    """Exclude all objects from the collection at interpreter exit, unless triton is loaded: it would report leaks."""
    if "triton" not in sys.modules:
        gc.freeze()


def freeze_imported_objects() -> None:
    """Exclude all present objects from garbage collection.

    Call it in a process before it forks: a collection in a child would copy every page that it shares with its parent.
    """
    gc.collect()
    gc.freeze()


def release_gpu_memory() -> None:
    """Return unused GPU memory; Lightning leaves reference cycles that hold memory which the next cell needs."""
    import torch

    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


def disable_malloc_trim() -> bool:
    """Let malloc keep freed memory for reuse (glibc's mallopt). Return whether this was possible.

    By default glibc returns large blocks to the system as soon as they are freed, and the next training step, which
    allocates blocks of the same sizes, pays for page faults again: up to ten times the cost of writing 64 MB.
    """
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return (
        mallopt is not None
        and bool(mallopt(M_MMAP_THRESHOLD, INT_MAX))
        and bool(mallopt(M_TRIM_THRESHOLD, TRIM_DISABLED))
    )
