"""What a token costs as the text grows: each memory alone, and both, beside themselves after 256 tokens.

    growth = processor time per token after a text / after 256 tokens, of the same model
    price = the same / after 256 tokens, of softmax over everything

Models are those of experiments/small/complementarity_recall.yaml, untrained.  Models and lengths take turns, so that
all meet the same machine, and the best turn counts; processor time on one thread, so that others' work is not in it.

    OMP_NUM_THREADS=1 python benchmarks/decode_growth.py [tokens] [turns]
"""

import itertools
import sys
import time
from pathlib import Path

import torch
from decode_speed import bytes_of, read, seconds

import hqlt_lab as lab
from hqlt_lab.experiment.experiment import load

STUDY = Path(__file__).parents[1] / "experiments/small/complementarity_recall.yaml"
LENGTHS = (256, 1024, 4096, 16384)


@torch.inference_mode()
def main(tokens: int, turns: int) -> None:
    study = load(STUDY)
    vocabulary = lab.build("task", study.base["task"]).vocabulary
    models = {
        arm.name: lab.build_model(0, vocabulary=vocabulary, **study.cell(arm, {}, 0).model).eval() for arm in study.arms
    }
    text = torch.randint(0, vocabulary, (1, max(LENGTHS)), generator=torch.Generator().manual_seed(0))
    states = {(name, length): read(models[name], text[:, :length]) for name in models for length in LENGTHS}
    best = dict.fromkeys(states, float("inf"))
    for _, (name, length) in itertools.product(range(turns), states):
        taken = seconds(models[name], states[name, length], tokens, time.process_time)
        best[name, length] = min(best[name, length], taken)
    for name, length in states:
        growth, price = (best[name, length] / best[other, LENGTHS[0]] for other in (name, "kv_only"))
        kept = bytes_of(states[name, length]) / 1000
        print(f"{name:8} after {length:6,} tokens: growth {growth:5.2f}   price {price:5.2f}   state {kept:8,.0f} kB")


if __name__ == "__main__":
    asked = [int(word) for word in sys.argv[1:]]
    main(*asked, *(4, 60)[len(asked) :])
