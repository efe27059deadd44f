"""Peak memory of a language-model loss, computed in chunks and with all logits at once.

    .venv/bin/python benchmarks/loss_memory.py [--tokens 8192] [--width 1024] [--vocabulary 32000]

Each method runs in its own process, so that the peaks are independent: the maximal resident size while the loss and
its gradients are computed, minus that of inputs and gradients.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

METHODS = ("chunks", "at once")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--way", choices=METHODS, help="only this one, here: peak bytes and seconds as JSON")
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure_memory(options.way, options.tokens, options.width, options.vocabulary)))
        return
    results = {
        method: json.loads(subprocess.check_output([sys.executable, *sys.argv, "--way", method])) for method in METHODS
    }
    for method, (peak, seconds) in results.items():
        print(f"{method:8} {peak / 2**20:8.0f} MB   {seconds:6.2f} s")
    print(f"memory   1 / {results['at once'][0] / results['chunks'][0]:.1f}")


def measure_memory(method: str, tokens: int, width: int, vocabulary: int) -> tuple[int, float]:
    """Return the peak bytes and the seconds of a loss and its gradients."""
    import torch
    import torch.nn.functional as F

    from hqlt_lab.ops.fused.linear_cross_entropy import cross_entropy

    def dense_cross_entropy(x: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(F.linear(x, weight), labels, reduction="none")

    loss_function = cross_entropy if method == "chunks" else dense_cross_entropy
    # scaled to logits of size 1, as in a model; with larger ones many exponentials are denormal numbers, which are slow
    x, weight = ((torch.randn(rows, width) * width**-0.25).requires_grad_() for rows in (tokens, vocabulary))
    labels = torch.randint(vocabulary, (tokens,))
    # allocate what both methods need: gradients, and what torch loads for the first matrix product
    x.grad, weight.grad = torch.ones_like(x), torch.ones_like(weight)
    loss_function(x[:2], weight, labels[:2]).sum().backward()
    before, start = peak_memory(), time.perf_counter()
    loss_function(x, weight, labels).sum().backward()
    return peak_memory() - before, time.perf_counter() - start


def peak_memory() -> int:
    """Return the maximal resident size of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
