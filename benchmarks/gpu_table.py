"""What `gpu.py` prints: a list of what it would measure, and a line for each result."""

import torch
from gpu_cases import GPU, SCALES, Case, Machine, in_the_paper
from gpu_models import ARMS, composition, computed_by, most
from gpu_timing import Row

from hqlt_lab.errors import HqltError
from hqlt_lab.model.config import OpsConfig
from hqlt_lab.model.initialise import Undrawn
from hqlt_lab.words import in_bytes, in_numbers

INDENT = " " * 8


def show_list(cases: list[Case], batch: int | None, ops: OpsConfig) -> None:
    """What would be measured on a GPU, with what is known before: sizes, bounds, backends."""
    print("On a GPU this would be measured (rows x tokens):\n")
    for case in cases:
        rows = batch or SCALES[case.size].rows
        print(title(case.size, case.name, rows))
        if case.kind == "model" and case.name in ARMS:
            try:
                show_known(known(case, rows, ops))
            except HqltError as error:
                print(f"{INDENT}{error}")


def known(case: Case, rows: int, ops: OpsConfig) -> Row:
    """Of one of our arms, before it is built."""
    with torch.device("meta"), Undrawn():
        model = composition(case.size, case.name).use(ops)
    length, parameters = SCALES[case.size].length, sum(parameter.numel() for parameter in model.parameters())
    told = {"parameters": parameters, "paper_tokens_per_second": in_the_paper(case)}
    return told | computed_by(model, length, GPU) | most(model, length, rows)


def show_known(row: Row) -> None:
    bounds = ", ".join(f"{in_numbers(speed)} on {chip}" for chip, speed in row["most_tokens_per_second"].items())
    paper = row["paper_tokens_per_second"]
    beside = f"; {in_numbers(paper)} on each H100 of the paper" if paper else ""
    print(f"{INDENT}{in_numbers(row['parameters'])} parameters; tokens/s at most {bounds}{beside}")
    show_backends(row)


def show_result(row: Row, machine: Machine) -> None:
    """Time, speed and memory, beside the paper and the bound; then what computed it and why."""
    line = title(row["size"], row["name"], row["rows"])
    if "error" in row:
        print(f"{line}   {row['error']}", flush=True)
        return
    speed, paper = row["tokens_per_second"], row["paper_tokens_per_second"]
    line += f" {1000 * row['seconds']:10.3f} ms {in_numbers(speed):>6} tokens/s"
    line += f"  {in_bytes(row['peak_bytes']):>8}" if "peak_bytes" in row else ""
    line += f"   on each H100 of the paper {in_numbers(paper)}" if paper else ""
    for chip, bound in row.get("most_tokens_per_second", {}).items():
        if chip.split("-")[0] in machine.chip:
            line += f"   {speed / bound:.0%} of the bound"
    print(line, flush=True)
    show_backends(row)


def show_backends(row: Row) -> None:
    for memory, choice in row.get("ops", {}).items():
        print(f"{INDENT}{memory}: {choice['by']} ({choice['why']})")


def title(size: str, name: str, rows: int) -> str:
    return f"{size:5} {name:44} {rows:3} x {SCALES[size].length:<5}"
