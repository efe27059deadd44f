"""How fast the paper's models train on a GPU, beside fla's and a flash-attention Transformer; and their kernels alone.

    python benchmarks/gpu.py [--size 340m|1.3b|all] [--batch 16] [--only TEXT] [--kernels-only] [--json FILE] [--list]

Tokens per second of a training step (forward, cross-entropy, backward, fused AdamW; bfloat16 autocast) and its peak
memory, beside what each of the paper's four H100 did and the most that the chip could do
(`hqlt_lab/model/roofline.py`).  Without --batch a model gets the paper's 16 rows, or half as many until they fit.  The
best of several steps counts.  What fails tells why in its row, and the others are measured all the same.

Without a GPU it tells what it would measure, and takes the smallest shapes through Triton's interpreter instead: that
shows that the script works, and says nothing about speed.
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
from gpu_table import show_list, show_result
from gpu_timing import measured

from hqlt_lab.model.config import OpsConfig


def main() -> None:
    asked = arguments()
    warnings.filterwarnings("ignore", module="fla")  # of machines without a GPU, and of models without convolutions
    there, ops = torch.cuda.is_available(), OpsConfig(scan=asked.scan, attention=asked.attention)
    if not there:
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported, which nobody did yet
    if asked.list or not there:
        show_list(list(cases(asked, asked.size)), asked.batch, ops)
    if asked.list:
        return
    if not there:
        print("\nThere is no GPU: the smallest shapes through Triton's interpreter, which says nothing about speed.\n")
        torch.set_num_threads(1)
        asked.size, asked.batch = "tiny", 1
    measure(asked, (GPU if there else NO_GPU)._replace(ops=ops, compile=asked.compile))


def measure(asked: argparse.Namespace, machine: Machine) -> None:
    """All that was asked for; the file is written after each row, so that a run that is ended leaves what it has."""
    rows = []
    for case in cases(asked, asked.size):
        rows.append(measured(case, machine, asked.batch, asked.rounds))
        show_result(rows[-1], machine)
        if asked.json:
            asked.json.write_text(json.dumps({"machine": about(machine), "rows": rows}, indent=2) + "\n")


def cases(asked: argparse.Namespace, size: str) -> Iterator[Case]:
    """Models first, then kernels, of one size or of both."""
    for one in ["340m", "1.3b"] if size == "all" else [size]:
        found = [*([] if asked.kernels_only else model_cases(one)), *kernel_cases(one)]
        yield from (case for case in found if asked.only in case.name)


def about(machine: Machine) -> dict[str, Any]:
    """What measured."""
    return {"chip": machine.chip, "dtype": str(machine.dtype), "torch": torch.__version__, "compile": machine.compile}


def counted(word: str) -> int:
    """A number of rows or rounds."""
    if not word.isdigit() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"at least 1 is needed, got {word!r}.")
    return int(word)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training speed and peak memory on a GPU.")
    parser.add_argument("--size", choices=["340m", "1.3b", "all"], default="all")
    parser.add_argument("--batch", type=counted, help="rows of a batch; without it the paper's 16, or as many as fit")
    parser.add_argument("--rounds", type=counted, default=10, help="timed calls of each case, of which the best counts")
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
