"""Small language models for tests, trained for a few steps or untrained."""

from pathlib import Path

import torch

import hqlt_lab as lab
from hqlt_lab.data.tokenizers.load_tokenizer import create_tokenizer
from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.generation.text_model import TextModel
from hqlt_lab.train.fit import fit

EXPERIMENT_YAML = """
question: What is next?
task: {name: language, data: DATA, length: 48, eval_size: 4, vocabulary_size: 264}
model: {width: 16, heads: 2, layers: 2, mlp_width: 16, timing: {name: delayed_stream, window: 8}}
train: {steps: 4, batch_size: 4, valid_every: 4, lr: 0.03}
trainer: {accelerator: cpu, check_determinism: false}
arms: {only: {}}
seeds: 1
measure: {select: valid/loss, report: [test/bits_per_byte], direction: minimize}
"""


def train_language_cell(folder: Path, data: Path, *overrides: str) -> Path:
    """Train a cell on these data and return its folder; its vocabulary has 7 tokens more than the tokenizer."""
    file = folder / "file.yaml"
    file.write_text(EXPERIMENT_YAML.replace("DATA", str(data)))
    (planned,) = expand_plan(load_experiment(file, list(overrides)))
    fit(planned.cell, folder / planned.key)
    return folder / planned.key


def untrained_text_model(seed: int = 0, vocabulary: int = 264, **settings) -> TextModel:
    """Return a byte-level model in float64, with initial weights large enough that generated texts differ."""
    sizes = {"width": 16, "heads": 2, "layers": 2, "mlp_width": 16, "init_std": 0.5}
    model = lab.build_model(seed, vocabulary=vocabulary, **(sizes | settings)).double().eval().requires_grad_(False)
    tokenizer = create_tokenizer("bytes", 257, [])
    return TextModel(
        model=model, tokenizer=tokenizer, separator=tokenizer.separator, vocabulary=tokenizer.vocabulary,
        trained_length=48, name="untrained", device=torch.device("cpu"),
    )  # fmt: skip
