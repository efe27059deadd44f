"""The largest deviation of two tensors, relative to the largest value, and the tolerances.

Many layers compute in float32 whatever their dtype is, so results in float64 are compared with float32's tolerance.
"""

import math

import torch
from torch import Tensor

from hqlt_lab.check.conformance_report import CheckFailed

VALUE_TOLERANCE = 1e-4  # of results that differ only in rounding, in float64 and float32
CAUSALITY_TOLERANCES = {torch.float64: VALUE_TOLERANCE, torch.float32: VALUE_TOLERANCE, torch.bfloat16: 3e-2}
DTYPE_TOLERANCES = {
    torch.float64: VALUE_TOLERANCE,
    torch.float32: VALUE_TOLERANCE,
    torch.bfloat16: 0.2,
    torch.float16: 0.05,
}


def largest_deviation(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference divided by the largest expected value; infinity if it is not finite."""
    if actual.shape != expected.shape:
        raise CheckFailed(f"the shapes {list(actual.shape)} and {list(expected.shape)} differ.")
    if not expected.numel():
        return 0.0
    difference = (actual.double() - expected.double()).abs().max().item()
    deviation = difference / (expected.double().abs().max().item() or 1.0)
    return deviation if math.isfinite(deviation) else math.inf


def require_equal(label: str, deviation: float, tolerance: float = VALUE_TOLERANCE) -> None:
    """Raise CheckFailed if a deviation is above the tolerance."""
    if deviation == math.inf:
        raise CheckFailed(f"{label}: some values are not finite.")
    if deviation > tolerance:
        raise CheckFailed(f"{label} by {deviation:.1e} of the largest value (tolerance {tolerance:.0e}).")


def describe_deviation(deviation: float, tolerance: float = VALUE_TOLERANCE) -> str:
    """Return a text such as "largest deviation 3e-08, tolerance 1e-05"."""
    return f"largest deviation {deviation:.0e}, tolerance {tolerance:.0e}" if deviation else "equal in every bit"


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
