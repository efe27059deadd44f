"""Training speed of the paper's models on a GPU, compared with fla's models and a Transformer, and of single kernels.

    python benchmarks/gpu.py [--size 340m|1.3b|all] [--batch 16] [--only TEXT] [--kernels-only] [--json FILE] [--list]

Measures tokens per second and peak memory of a training step (forward, cross-entropy, backward, fused AdamW; bfloat16
autocast), compared with the speed of each of the paper's four H100 and with the upper bound of the chip
(`hqlt_lab/model/analysis/roofline.py`).  Without --batch a model gets the paper's 16 rows, halved until they fit.  The
best of several steps counts.  A case that fails has its error in its row, and the others are still measured.

Without a GPU it lists what it would measure, and runs the smallest shapes with Triton's interpreter: this shows that
the script works, but not how fast it is.
"""

import argparse
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from gpu_cases import GPU, NO_GPU, Case, Machine
from gpu_kernels import kernel_cases
from gpu_models import model_cases
from gpu_table import print_cases, print_result
from gpu_timing import measure_case

from hqlt_lab.model.config import OpsConfig


def main() -> None:
    options = parse_arguments()
    warnings.filterwarnings("ignore", module="fla")  # about a missing GPU, and about models without convolutions
    has_gpu, ops = torch.cuda.is_available(), OpsConfig(scan=options.scan, attention=options.attention)
    if not has_gpu:
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported, which has not happened yet
    if options.list or not has_gpu:
        print_cases(list(select_cases(options, options.size)), options.batch, ops)
    if options.list:
        return
    if not has_gpu:
        print("\nThere is no GPU: the smallest shapes through Triton's interpreter, which says nothing about speed.\n")
        torch.set_num_threads(1)
        options.size, options.batch = "tiny", 1
    measure_cases(options, (GPU if has_gpu else NO_GPU)._replace(ops=ops, compile=options.compile))


def measure_cases(options: argparse.Namespace, machine: Machine) -> None:
    """Measure the selected cases; the file is written after each row, so that an interrupted run keeps its results."""
    rows = []
    for case in select_cases(options, options.size):
        rows.append(measure_case(case, machine, options.batch, options.rounds))
        print_result(rows[-1], machine)
        if options.json:
            options.json.write_text(json.dumps({"machine": describe_machine(machine), "rows": rows}, indent=2) + "\n")


def select_cases(options: argparse.Namespace, size: str) -> Iterator[Case]:
    """Yield the selected cases of one size or of both: models first, then kernels."""
    for model_size in ["340m", "1.3b"] if size == "all" else [size]:
        cases = [*([] if options.kernels_only else model_cases(model_size)), *kernel_cases(model_size)]
        yield from (case for case in cases if options.only in case.name)


def describe_machine(machine: Machine) -> dict[str, Any]:
    """Return the chip, dtype and software of this measurement."""
    return {"chip": machine.chip, "dtype": str(machine.dtype), "torch": torch.__version__, "compile": machine.compile}


def positive_int(text: str) -> int:
    """Parse a number of rows or rounds."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"at least 1 is needed, got {text!r}.")
    return int(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training speed and peak memory on a GPU.")
    parser.add_argument("--size", choices=["340m", "1.3b", "all"], default="all")
    parser.add_argument(
        "--batch", type=positive_int, help="rows of a batch; without it the paper's 16, or as many as fit"
    )
    parser.add_argument(
        "--rounds", type=positive_int, default=10, help="timed calls of each case, of which the best counts"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains this")
    parser.add_argument("--kernels-only", action="store_true", help="no models")
    parser.add_argument("--scan", default="auto", help="the backend that writes and reads the fast weights")
    parser.add_argument("--attention", default="auto", help="the backend of softmax")
    parser.add_argument("--compile", action="store_true", help="models through torch.compile")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write everything for programs")
    parser.add_argument("--list", action="store_true", help="tell what would be measured, and end")
    return parser.parse_args()


if __name__ == "__main__":
    main()
