"""Small language models, trained for a moment or not at all."""

from pathlib import Path

import torch

import hqlt_lab as lab
from hqlt_lab.data.encoders.choose import make_encoder
from hqlt_lab.experiment.experiment import load
from hqlt_lab.experiment.plan import plan
from hqlt_lab.generation.text_model import TextModel
from hqlt_lab.train.fit import fit

FILE = """
question: What is next?
task: {name: language, data: DATA, length: 48, eval_size: 4, vocabulary_size: 264}
model: {width: 16, heads: 2, layers: 2, mlp_width: 16, timing: {name: delayed_stream, window: 8}}
train: {steps: 4, batch_size: 4, valid_every: 4, lr: 0.03}
trainer: {accelerator: cpu, canary: false}
arms: {only: {}}
seeds: 1
measure: {select: valid/loss, report: [test/bits_per_byte], direction: minimize}
"""


def trained(folder: Path, data: Path, *changes: str) -> Path:
    """The folder of a cell that has learned these data; its model has 7 tokens more than the tokenizer."""
    file = folder / "file.yaml"
    file.write_text(FILE.replace("DATA", str(data)))
    (one,) = plan(load(file, list(changes)))
    fit(one.cell, folder / one.key)
    return folder / one.key


def untrained(seed: int = 0, vocabulary: int = 264, **settings) -> TextModel:
    """Any composition on bytes, in float64, with weights large enough that its texts are not all the same."""
    sizes = {"width": 16, "heads": 2, "layers": 2, "mlp_width": 16, "init_std": 0.5}
    model = lab.build_model(seed, vocabulary=vocabulary, **(sizes | settings)).double().eval().requires_grad_(False)
    encoder = make_encoder("bytes", 257, [])
    return TextModel(
        model=model, encoder=encoder, separator=encoder.separator, vocabulary=encoder.vocabulary,
        trained_length=48, name="untrained", device=torch.device("cpu"),
    )  # fmt: skip
