"""What can compute each memory, and what it can.

    fast weights    fla          Triton kernels of flash-linear-attention, on a GPU
                    torch        the lab's chunked scan, on every device
                    recurrent    one step at a time: the truth, slow
    softmax         flash_attn   flash-attention's kernels, on a GPU
                    sdpa         scaled_dot_product_attention of torch: causal, folded blocks, or with a mask
                    flex         torch's flex_attention, compiled for the schedule, on a GPU
                    blocks       the lab's bands and blocks, on every device
                    dense        one mask over everything: the truth, slow

All give the same, up to rounding; `hqlt check backends` shows it.  `choosing` says how a job finds its backend.
"""

import os
from collections.abc import Mapping

import torch

from hqlt_lab.ops.choosing import Backend, Job

SMALL = (torch.float16, torch.bfloat16)
NEEDS_GPU = "it needs a GPU"


def fla_cannot(job: Job) -> str:
    if job.obstacle:
        return job.obstacle
    if job.device != "cuda" and not interpreted():
        return NEEDS_GPU
    if job.dtype not in (*SMALL, torch.float32):
        return f"it does not compute in {name_of(job.dtype)}"
    return f"it takes keys of 256 channels at most, not {job.key}" if job.key > 256 else ""


def fla_should_not(job: Job) -> str:
    if job.device != "cuda":
        return "its kernels are interpreted here, for checks"
    if job.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest":
        return "its products of float32 are rounded to TF32"
    return ""


def flash_attn_cannot(job: Job) -> str:
    if job.device != "cuda":
        return NEEDS_GPU
    if job.obstacle or job.past:
        return job.obstacle or "there are keys from before the first query"
    if job.dtype not in SMALL:
        return f"it computes in bfloat16 and float16, not in {name_of(job.dtype)}"
    widest = max(job.key, job.value)
    return f"it takes heads of 256 channels at most, not {widest}" if widest > 256 else ""


def sdpa_should_not(job: Job) -> str:
    if job.device != "cuda":
        return "the lab's own forms are at least as fast here"
    return "with a mask it computes every pair of tokens" if job.masked else ""


def flex_cannot(job: Job) -> str:
    if job.obstacle:
        return job.obstacle
    if job.device != "cuda":
        return "on a CPU it has no backward" if job.learning else ""
    if job.dtype == torch.float64:
        return "its kernels are not made for float64"
    return f"it takes heads of 16 channels at least, not {job.key}" if job.key < 16 else ""


def flex_should_not(job: Job) -> str:
    if job.device != "cuda":
        return "it is not compiled here"
    return "a cache is looked into by few queries, of ever other numbers" if job.past else ""


SCANS: Mapping[str, Backend] = {  # the fastest first
    "fla": Backend(fla_cannot, fla_should_not, package="fla", get="pip install -c constraints.txt -e '.[gpu]'"),
    "torch": Backend(general=True),
    "recurrent": Backend(general=True),
}
ATTENTIONS: Mapping[str, Backend] = {
    "flash_attn": Backend(
        flash_attn_cannot,
        package="flash_attn",
        get="pip install --no-build-isolation -c constraints.txt -e '.[flash]'",
    ),
    "sdpa": Backend(should_not=sdpa_should_not),
    "flex": Backend(flex_cannot, flex_should_not),
    "blocks": Backend(general=True),
    "dense": Backend(general=True),
}
TRUTHS = ("recurrent", "dense")  # what the others are held against


def interpreted() -> bool:
    """Whether Triton's kernels run on CPU tensors, for checks."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
