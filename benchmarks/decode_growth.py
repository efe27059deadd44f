"""Decoding time per token as the context grows, for each memory alone and for both.

    growth = CPU time per token after a context / after 256 tokens, of the same model
    price  = CPU time per token after a context / after 256 tokens, of softmax attention without a window

The models are those of experiments/small/complementarity_recall.yaml, untrained.  Models and lengths are measured
alternately, so that all see the same machine load, and the best round counts.  CPU time on one thread excludes the work
of other processes.

    OMP_NUM_THREADS=1 python benchmarks/decode_growth.py [tokens] [rounds]
"""

import itertools
import sys
import time
from pathlib import Path

import torch
from decode_speed import count_bytes, prefill_state, time_decoding

import hqlt_lab as lab
from hqlt_lab.experiment.load_experiment import load_experiment

STUDY = Path(__file__).parents[1] / "experiments/small/complementarity_recall.yaml"
LENGTHS = (256, 1024, 4096, 16384)


@torch.inference_mode()
def main(tokens: int, rounds: int) -> None:
    study = load_experiment(STUDY)
    vocabulary = lab.build("task", study.base["task"]).vocabulary
    models = {
        arm.name: lab.build_model(0, vocabulary=vocabulary, **study.make_cell(arm, {}, 0).model).eval()
        for arm in study.arms
    }
    sequence = torch.randint(0, vocabulary, (1, max(LENGTHS)), generator=torch.Generator().manual_seed(0))
    states = {
        (name, length): prefill_state(models[name], sequence[:, :length]) for name in models for length in LENGTHS
    }
    best = dict.fromkeys(states, float("inf"))
    for _, (name, length) in itertools.product(range(rounds), states):
        seconds = time_decoding(models[name], states[name, length], tokens, time.process_time)
        best[name, length] = min(best[name, length], seconds)
    for name, length in states:
        growth, price = (best[name, length] / best[baseline, LENGTHS[0]] for baseline in (name, "kv_only"))
        kilobytes = count_bytes(states[name, length]) / 1000
        print(
            f"{name:8} after {length:6,} tokens: growth {growth:5.2f}   price {price:5.2f}   state {kilobytes:8,.0f} kB"
        )


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    main(*arguments, *(4, 60)[len(arguments) :])
