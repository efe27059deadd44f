"""How much memory the loss of a language model takes: in chunks, and with all logits at once.

    .venv/bin/python benchmarks/loss_memory.py [--tokens 8192] [--width 1024] [--vocabulary 32000]

Each way in a process of its own, so that its peak is its own: the process's largest size while a loss and its
gradients are computed, beyond what inputs and gradients take.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

WAYS = ("chunks", "at once")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--way", choices=WAYS, help="only this one, here: peak bytes and seconds as JSON")
    asked = parser.parse_args()
    if asked.way:
        print(json.dumps(measured(asked.way, asked.tokens, asked.width, asked.vocabulary)))
        return
    found = {way: json.loads(subprocess.check_output([sys.executable, *sys.argv, "--way", way])) for way in WAYS}
    for way, (peak, seconds) in found.items():
        print(f"{way:8} {peak / 2**20:8.0f} MB   {seconds:6.2f} s")
    print(f"memory   1 / {found['at once'][0] / found['chunks'][0]:.1f}")


def measured(way: str, tokens: int, width: int, vocabulary: int) -> tuple[int, float]:
    """Peak bytes and seconds of a loss and its gradients."""
    import torch
    import torch.nn.functional as F

    from hqlt_lab.ops.cross_entropy import cross_entropy

    def at_once(x: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(F.linear(x, weight), labels, reduction="none")

    work = cross_entropy if way == "chunks" else at_once
    # logits of size 1, as a model's are: exponentials of far smaller ones are denormal numbers, which are slow
    x, weight = ((torch.randn(rows, width) * width**-0.25).requires_grad_() for rows in (tokens, vocabulary))
    labels = torch.randint(vocabulary, (tokens,))
    # what every way has: gradients, and what torch loads for the first product
    x.grad, weight.grad = torch.ones_like(x), torch.ones_like(weight)
    work(x[:2], weight, labels[:2]).sum().backward()
    before, start = peak(), time.perf_counter()
    work(x, weight, labels).sum().backward()
    return peak() - before, time.perf_counter() - start


def peak() -> int:
    """The most bytes that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
