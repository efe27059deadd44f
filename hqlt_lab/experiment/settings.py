"""What a run is told besides its task and its model: how to learn, on what, and what counts."""

from dataclasses import dataclass, field
from typing import Literal

from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import too_small
from hqlt_lab.registry.settings import refuse


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How long and how fast to learn."""

    steps: int = 1000
    """Optimiser steps; in a world, steps of the world, and so wherever else in this section steps are counted."""
    batch_size: int = 128
    """Sequences per optimiser step, over all devices; in a world, episodes."""
    lr: float = 1e-3
    """Peak learning rate, reached after the warm-up."""
    warmup: int = 0
    """Steps in which the learning rate rises linearly from 0."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """How it goes on after the warm-up."""
    lr_floor: float = 0.0
    """What the cosine ends at, as a fraction of the peak."""
    lr_horizon: int | None = None
    """The step at which the cosine ends; null: the last step."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    """AdamW's two averages."""
    adam_eps: float = 1e-8
    """AdamW's epsilon."""
    weight_decay: float = 0.1
    """AdamW's decay."""
    decay: Literal["all", "matrices"] = "all"
    """Whether vectors (norms, biases, gates) decay too."""
    clip: float | None = 1.0
    """Largest gradient norm; null: no clipping."""
    accumulate: int = 1
    """Pieces a batch is cut into, one after the other, to save memory."""
    valid_every: int = 100
    """Steps between two looks at the validation sets."""
    stop_at: float | None = None
    """Stop once the selected metric reaches this; null: train to the last step."""
    report: Literal["last", "best_valid"] = "last"
    """Whether the last weights are tested, or those that did best on the validation set."""
    eval_batch_size: int = 256
    """Sequences per evaluation batch, per device."""
    checkpoint_every: int = 500
    """Steps between two checkpoints."""
    keep: Literal["last", "best", "none"] = "last"
    """Which checkpoint stays when a run is finished."""
    log_every: int = 10
    """Steps between two points of the training curves."""
    probe_every: int | None = None
    """Steps between two looks into the memories; null: one at every validation, 0: none."""
    compile: bool = False
    """Whether torch.compile is used."""
    recompute: bool = False
    """Whether a block's activations are computed again backwards instead of kept: less memory, a third more work."""

    def __post_init__(self) -> None:
        least = {"steps": 1, "batch_size": 1, "accumulate": 1, "valid_every": 1, "checkpoint_every": 1, "log_every": 1}
        least |= {"warmup": 0, "eval_batch_size": 1, "weight_decay": 0, "lr_horizon": 1, "probe_every": 0}
        wrong = too_small(self, least)
        if self.lr <= 0:
            wrong.append(f"lr: more than 0 is needed, got {self.lr}.")
        if not 0 <= self.lr_floor <= 1:
            wrong.append(f"lr_floor: a fraction of the peak between 0 and 1 is needed, got {self.lr_floor}.")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            wrong.append(f"betas: two numbers in [0, 1) are needed, got {self.betas}.")
        if self.clip is not None and self.clip <= 0:
            wrong.append(f"clip: more than 0 is needed, or null for none, got {self.clip}.")
        uneven = self.accumulate > 0 and self.batch_size % self.accumulate
        pieces = f"accumulate: a batch of {self.batch_size} does not divide into {self.accumulate} pieces."
        refuse(wrong, [pieces] if uneven else [])


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """What Lightning's Trainer is told: where to compute, not what."""

    devices: int = 1
    """Devices per node."""
    nodes: int = 1
    """Machines a single run spans."""
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    """What to compute on."""
    strategy: Literal["auto", "ddp", "fsdp2"] = "auto"
    """How several devices share the work: all have the whole model (auto, ddp), or each its share of it (fsdp2)."""
    precision: Literal["auto", "32", "bf16-mixed", "16-mixed", "64"] = "auto"
    """auto: bf16-mixed on a GPU, 32 on a CPU."""
    deterministic: bool = False
    """Refuse operations whose result may differ from run to run."""
    canary: bool = True
    """Compute the first step twice before training, and say whether it came out the same, bit by bit."""

    def __post_init__(self) -> None:
        if wrong := too_small(self, {"devices": 1, "nodes": 1}):
            raise ConfigError("\n".join(wrong))


@dataclass(frozen=True, kw_only=True)
class PruneConfig:
    """When a tuned cell that does worse than most others of its arm is given up."""

    after: int = 0
    """Optimiser steps that every cell may take."""
    finished: int = 4
    """Cells of the arm that must be done before any is given up."""

    def __post_init__(self) -> None:
        if wrong := too_small(self, {"after": 0, "finished": 1}):
            raise ConfigError("\n".join(wrong))


ON = ("parameters", "state", "flops")
BY = ("mlp_width", "width")


@dataclass(frozen=True, kw_only=True)
class MatchConfig:
    """In what all arms are to be equally large."""

    on: Literal["parameters", "state", "flops"]
    """What agrees: parameters, bytes of state after the longest training row, or FLOPs per token of training on it."""
    by: Literal["mlp_width", "width"] | None = None
    """The model's setting that is solved; null: mlp_width, and width for the state."""
    within: float = 0.01
    """How far an arm may be off, as a fraction of its reference."""

    @property
    def setting(self) -> str:
        """What is solved."""
        return self.by or ("width" if self.on == "state" else "mlp_width")

    def __post_init__(self) -> None:
        wrong = []
        if not 0 < self.within < 1:
            wrong.append(f"within: a fraction between 0 and 1 is needed, such as 0.01; got {self.within}.")
        useless = self.on == "state" and self.by == "mlp_width"
        refuse(wrong, ["by: the state does not depend on mlp_width. Use width."] if useless else [])


ERRORS = ("brier_score", "ter", "wer", "cer", "mse", "mae")  # what lm-eval calls so is better when it is small


@dataclass(frozen=True, kw_only=True)
class MeasureConfig:
    """What counts."""

    select: str = "valid/normalised_accuracy"
    """What hyper-parameters are chosen by; never a test metric."""
    report: list[str] = field(default_factory=lambda: ["test/normalised_accuracy"])
    """What the table shows."""
    direction: Literal["maximize", "minimize"] = "maximize"
    """Which way what is selected by is better; of a loss that is small, and must be said."""
    statistic: Literal["median", "mean", "best"] = "median"
    """What stands for several seeds."""
    solved: float | None = None
    """The first reported metric counts as solved from here on; null: nothing is called solved."""
    margin: float = 0.0
    """The smallest difference to the baseline that is called better or worse, in units of the first reported metric."""
    interval: Literal["t", "bootstrap"] = "t"
    """How the interval of a mean over seeds is made; the bootstrap needs 10 seeds, with fewer it is t."""

    @property
    def first(self) -> str:
        """The metric that decides."""
        return self.report[0] if self.report else self.select

    def way(self, metric: str) -> Literal["maximize", "minimize"]:
        """Which way a reported metric is better: losses are small, accuracies large, whatever is selected on."""
        if any(word in metric for word in ("loss", "perplexity", "bits_per_byte")) or metric.split("/")[-1] in ERRORS:
            return "minimize"
        if "eval/" in metric:  # accuracies, by lm-eval's own names
            return "maximize"
        return "maximize" if metric.split("/")[1:2] and "accuracy" in metric else self.direction

    def __post_init__(self) -> None:
        wrong = too_small(self, {"margin": 0})
        if self.select.startswith("test/"):
            wrong.append(
                f"select: {self.select!r} is a test metric, and selection never sees the test set. "
                f"Use {self.select.replace('test/', 'valid/', 1)!r}."
            )
        size = {"minimize": "small", "maximize": "large"}[way := self.way(self.select)]
        against = f"direction: {self.select} is better when it is {size}, and is what is selected by. Say {way}."
        refuse(wrong, [against] if way != self.direction else [])
