"""Output of `gpu.py`: the list of cases, and a line for each result."""

import torch
from gpu_cases import GPU, SCALES, Case, Machine, paper_tokens_per_second
from gpu_models import ARMS, build_arm, describe_backends, upper_bounds
from gpu_timing import Row

from hqlt_lab.errors import HqltError
from hqlt_lab.formatting import format_bytes, format_count
from hqlt_lab.model.config import OpsConfig
from hqlt_lab.model.initialize import SkipInit

INDENT = " " * 8


def print_cases(cases: list[Case], batch: int | None, ops: OpsConfig) -> None:
    """Print the cases that would be measured on a GPU, with sizes, bounds and backends."""
    print("On a GPU this would be measured (rows x tokens):\n")
    for case in cases:
        rows = batch or SCALES[case.size].rows
        print(case_title(case.size, case.name, rows))
        if case.kind == "model" and case.name in ARMS:
            try:
                print_bounds(describe_case(case, rows, ops))
            except HqltError as error:
                print(f"{INDENT}{error}")


def describe_case(case: Case, rows: int, ops: OpsConfig) -> Row:
    """Return the row of one of our arms without measuring it, from a model on the meta device."""
    with torch.device("meta"), SkipInit():
        model = build_arm(case.size, case.name).set_backends(ops)
    length, parameters = SCALES[case.size].length, sum(parameter.numel() for parameter in model.parameters())
    row = {"parameters": parameters, "paper_tokens_per_second": paper_tokens_per_second(case)}
    return row | describe_backends(model, length, GPU) | upper_bounds(model, length, rows)


def print_bounds(row: Row) -> None:
    bounds = ", ".join(f"{format_count(speed)} on {chip}" for chip, speed in row["most_tokens_per_second"].items())
    paper = row["paper_tokens_per_second"]
    paper_note = f"; {format_count(paper)} on each H100 of the paper" if paper else ""
    print(f"{INDENT}{format_count(row['parameters'])} parameters; tokens/s at most {bounds}{paper_note}")
    print_backends(row)


def print_result(row: Row, machine: Machine) -> None:
    """Print time, speed and memory, compared with the paper and the bound, then the backends that were used."""
    line = case_title(row["size"], row["name"], row["rows"])
    if "error" in row:
        print(f"{line}   {row['error']}", flush=True)
        return
    speed, paper = row["tokens_per_second"], row["paper_tokens_per_second"]
    line += f" {1000 * row['seconds']:10.3f} ms {format_count(speed):>6} tokens/s"
    line += f"  {format_bytes(row['peak_bytes']):>8}" if "peak_bytes" in row else ""
    line += f"   on each H100 of the paper {format_count(paper)}" if paper else ""
    for chip, bound in row.get("most_tokens_per_second", {}).items():
        if chip.split("-")[0] in machine.chip:
            line += f"   {speed / bound:.0%} of the bound"
    print(line, flush=True)
    print_backends(row)


def print_backends(row: Row) -> None:
    for memory, choice in row.get("ops", {}).items():
        print(f"{INDENT}{memory}: {choice['by']} ({choice['why']})")


def case_title(size: str, name: str, rows: int) -> str:
    return f"{size:5} {name:44} {rows:3} x {SCALES[size].length:<5}"
