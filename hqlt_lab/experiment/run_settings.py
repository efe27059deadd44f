"""Settings of a run besides task and model: training, trainer, agent, pruning, size matching and metrics.

Agents are trained with soft actor-critic on whole episodes. Steps, learning rate and batch size of an agent are in the
`train` section, as for all tasks; a step is then an environment step.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from hqlt_lab.errors import ConfigIssue, did_you_mean, format_names, join_sentences
from hqlt_lab.registry import check_minimums
from hqlt_lab.registry.settings_parsing import parse_nested, raise_if_invalid


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """Soft actor-critic settings: exploration, replay buffer and updates."""

    discount: float = 0.99
    """Discount factor of the return: gamma."""
    entropy: float = 0.1
    """Weight of the policy's entropy in the objective, per nat and step: alpha."""
    target_rate: float = 0.005
    """Fraction by which the target critics move toward the critics in each update: tau."""
    hidden: list[int] = field(default_factory=lambda: [256, 256])
    """Hidden layer widths of the policy and of each critic."""
    warmup_episodes: int = 10
    """Episodes with random actions before the first update."""
    updates_per_step: float = 0.25
    """Optimizer steps per environment step."""
    episodes_at_once: int = 1
    """Episodes collected in parallel between two rounds of updates."""
    replay: int = 1_000_000
    """Capacity of the replay buffer in steps; it holds the latest whole episodes."""

    def __post_init__(self) -> None:
        minimums = {"warmup_episodes": 1, "episodes_at_once": 1, "replay": 1, "entropy": 0}
        issues = check_minimums(self, minimums)
        if not 0 <= self.discount <= 1:
            message = f"a number from 0 to 1 is needed, got {self.discount}."
            issues.append(ConfigIssue("discount", "out_of_range", message))
        issues += [
            ConfigIssue(name, "not_positive", f"more than 0 is needed, got {getattr(self, name)}.")
            for name in ("target_rate", "updates_per_step")
            if getattr(self, name) <= 0
        ]
        if self.target_rate > 1:
            issues.append(ConfigIssue("target_rate", "out_of_range", f"at most 1 is allowed, got {self.target_rate}."))
        if any(width < 1 for width in self.hidden):
            issues.append(ConfigIssue("hidden", "out_of_range", f"widths of 1 or more are needed, got {self.hidden}."))
        raise_if_invalid(issues)


HeadTokens = Literal["all", "labeled"]
MEMORIES = ("fw", "kv")  # the fast weights, and softmax over the window


@dataclass(frozen=True, kw_only=True)
class MemoryTrainConfig:
    """Training of one memory: when it starts, and the learning rate of the parameters that only this memory has."""

    start_step: int = 0
    """Steps of training after which the memory is used; before, its answer is 0 and its parameters are frozen."""
    lr_scale: float = 1.0
    """Factor of the learning rate of its parameters; 0: they stay at their initial values."""

    def __post_init__(self) -> None:
        raise_if_invalid(check_minimums(self, {"start_step": 0, "lr_scale": 0}))


@dataclass(frozen=True, kw_only=True)
class WindowRange:
    """Softmax windows of which one is drawn in every training step, all with the same probability."""

    low: int
    """Shortest window in tokens."""
    high: int
    """Longest window in tokens."""

    def __post_init__(self) -> None:
        issues = check_minimums(self, {"low": 1})
        if self.low > self.high:
            issues.append(ConfigIssue("high", "range_in_wrong_order", f"{self.high} is below low, {self.low}."))
        raise_if_invalid(issues)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Training length, optimizer, validation and checkpoint settings."""

    steps: int = 1000
    """Optimizer steps; for an agent environment steps, as in all other settings of this section that count steps."""
    epochs: int | None = None
    """Passes over a finite training set (task.rows or task.segments), instead of `steps`; null: use `steps`."""
    batch_size: int = 128
    """Sequences per optimizer step, over all devices; for an agent episodes."""
    lr: float = 1e-3
    """Peak learning rate, reached after the warm-up."""
    warmup: int = 0
    """Steps of linear learning-rate warm-up from 0."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """Learning-rate schedule after the warm-up."""
    lr_floor: float = 0.0
    """Final learning rate of the cosine or linear schedule, as a fraction of the peak."""
    lr_horizon: int | None = None
    """Step at which the cosine or linear schedule ends; null: the last step."""
    lr_interval: Literal["step", "epoch"] = "step"
    """Whether the schedule changes the learning rate at each step or only between epochs."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    """AdamW's beta1 and beta2."""
    adam_eps: float = 1e-8
    """AdamW's epsilon."""
    weight_decay: float = 0.1
    """AdamW's weight decay."""
    decay: Literal["all", "matrices"] = "all"
    """Which parameters decay: all, or only matrices (no norms, biases and gates)."""
    clip: float | None = 1.0
    """Maximum gradient norm; null: no clipping."""
    accumulate: int = 1
    """Number of micro-batches per batch (gradient accumulation), to save memory."""
    valid_every: int = 100
    """Steps between two validations."""
    stop_at: float | None = None
    """Stop when the selection metric reaches this value; null: train to the last step."""
    report: Literal["last", "best_valid"] = "last"
    """Which weights are tested: the last ones, or those with the best validation result."""
    eval_batch_size: int = 256
    """Sequences per evaluation batch, per device."""
    checkpoint_every: int = 500
    """Steps between two checkpoints."""
    keep: Literal["last", "best", "none"] = "last"
    """Which checkpoint to keep when a run is finished."""
    log_every: int = 10
    """Steps between two points of the training curves."""
    probe_every: int | None = None
    """Steps between two probes of the memories; null: at every validation, 0: never."""
    memories: dict[str, Any] = field(default_factory=dict)
    """Training settings of a memory, such as {kv: {start_step: 500, lr_scale: 0.5}}; the default start is step 0."""
    window: dict[str, Any] | None = None
    """Draw the softmax window of each training step, such as {low: 8, high: 64}; null: as declared by the timing."""
    head: HeadTokens = "all"
    """Tokens whose logits are computed: all, or only those with a label, which saves time if they are few."""
    compile: bool = False
    """Use torch.compile."""
    recompute: bool = False
    """Recompute activations in the backward pass (activation checkpointing): less memory, a third more compute."""

    def __post_init__(self) -> None:
        minimums = {"steps": 1, "batch_size": 1, "accumulate": 1, "valid_every": 1, "checkpoint_every": 1}
        minimums |= {"log_every": 1, "warmup": 0, "eval_batch_size": 1, "weight_decay": 0, "lr_horizon": 1}
        minimums |= {"probe_every": 0, "epochs": 1}
        issues = check_minimums(self, minimums)
        if self.lr <= 0:
            issues.append(ConfigIssue("lr", "not_positive", f"more than 0 is needed, got {self.lr}."))
        if not 0 <= self.lr_floor <= 1:
            message = f"a fraction of the peak between 0 and 1 is needed, got {self.lr_floor}."
            issues.append(ConfigIssue("lr_floor", "out_of_range", message))
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            issues.append(ConfigIssue("betas", "out_of_range", f"two numbers in [0, 1) are needed, got {self.betas}."))
        if self.clip is not None and self.clip <= 0:
            message = f"more than 0 is needed, or null for none, got {self.clip}."
            issues.append(ConfigIssue("clip", "not_positive", message))
        uneven_batch = ConfigIssue(
            "accumulate",
            "batch_not_divisible",
            f"a batch of {self.batch_size} does not divide into {self.accumulate} micro-batches.",
        )
        is_uneven = self.accumulate > 0 and self.batch_size % self.accumulate
        conflicts = [uneven_batch] if is_uneven else []
        if self.window is not None and self.compile:
            message = "the model would be compiled again for each drawn window."
            conflicts.append(ConfigIssue("window", "window_with_compile", message, "Leave train.compile out."))
        if self.head == "labeled" and self.compile:
            message = "the number of labels differs between batches, and the model would be compiled again for each."
            conflicts.append(ConfigIssue("head", "labeled_head_with_compile", message, "Leave train.compile out."))
        if self.lr_interval == "epoch" and self.epochs is None:
            message = "the training is measured in steps, so it has no epochs."
            conflicts.append(ConfigIssue("lr_interval", "interval_without_epochs", message, "Set train.epochs."))
        issues += self._normalize_nested_settings()
        raise_if_invalid(issues, conflicts)

    def _normalize_nested_settings(self) -> list[ConfigIssue]:
        """Parse `memories` and `window` and store them without defaults.  Return their issues."""
        issues: list[ConfigIssue] = []
        memories: dict[str, Any] = {}
        for name, settings in self.memories.items():
            if name not in MEMORIES:
                hint = join_sentences(did_you_mean(str(name), MEMORIES), f"Memories: {format_names(MEMORIES)}.")
                issues.append(ConfigIssue(f"memories.{name}", "unknown_memory", f"no memory is called {name!r}.", hint))
                continue
            parsed, nested_issues = parse_nested(MemoryTrainConfig, settings, f"memories.{name}")
            issues += nested_issues
            if parsed is not None:
                memories[name] = {key: value for key, value in asdict(parsed).items() if value != DEFAULT_MEMORY[key]}
        if self.window is not None:
            issues += parse_nested(WindowRange, self.window, "window")[1]
        if not issues:
            memories = {name: memories[name] for name in MEMORIES if memories.get(name)}
            object.__setattr__(self, "memories", memories)
        return issues

    def memory(self, name: str) -> MemoryTrainConfig:
        """Return the training settings of a memory, "fw" or "kv"."""
        return MemoryTrainConfig(**self.memories.get(name, {}))

    @property
    def window_range(self) -> WindowRange | None:
        """The softmax windows that are drawn in training; None if the window is that of the timing."""
        return None if self.window is None else WindowRange(**self.window)


DEFAULT_MEMORY = asdict(MemoryTrainConfig())


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """Lightning Trainer settings: devices, precision and determinism."""

    devices: int = 1
    """Devices per node."""
    nodes: int = 1
    """Number of machines per run."""
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    """Hardware to use."""
    strategy: Literal["auto", "ddp", "fsdp2"] = "auto"
    """Multi-device strategy: replicate the model on each device (auto, ddp), or shard it (fsdp2)."""
    precision: Literal["auto", "32", "bf16-mixed", "16-mixed", "64"] = "auto"
    """auto: bf16-mixed on a GPU, 32 on a CPU."""
    deterministic: bool = False
    """Raise an error for operations that are not deterministic."""
    check_determinism: bool = True
    """Compute the first step twice before training, and record whether the results are bit-identical."""

    def __post_init__(self) -> None:
        raise_if_invalid(check_minimums(self, {"devices": 1, "nodes": 1}))


@dataclass(frozen=True, kw_only=True)
class PruneConfig:
    """Pruning: when to stop a tuned cell that is worse than most others of its arm."""

    after: int = 0
    """Optimizer steps before a cell can be pruned."""
    finished: int = 4
    """Cells of the arm that must be finished before any is pruned."""

    def __post_init__(self) -> None:
        raise_if_invalid(check_minimums(self, {"after": 0, "finished": 1}))


MATCH_QUANTITIES = ("parameters", "state", "flops")
MATCH_SETTINGS = ("mlp_width", "width")


@dataclass(frozen=True, kw_only=True)
class MatchConfig:
    """Size matching: the size that is equal in all arms, and the setting that is solved for it."""

    on: Literal["parameters", "state", "flops"]
    """Size to match: parameters, bytes of state after the longest training sequence, or training FLOPs per token."""
    by: Literal["mlp_width", "width"] | None = None
    """Model setting that is solved; null: width for the state, else mlp_width."""
    within: float = 0.01
    """Largest allowed deviation from the reference arm, as a fraction."""

    @property
    def solved_setting(self) -> str:
        """The model setting that is solved for each arm."""
        return self.by or ("width" if self.on == "state" else "mlp_width")

    def __post_init__(self) -> None:
        message = f"a fraction between 0 and 1 is needed, such as 0.01; got {self.within}."
        invalid_tolerance = ConfigIssue("within", "out_of_range", message)
        no_effect = ConfigIssue("by", "match_has_no_effect", "the state does not depend on mlp_width.", "Use width.")
        raise_if_invalid(
            [] if 0 < self.within < 1 else [invalid_tolerance],
            [no_effect] if self.on == "state" and self.by == "mlp_width" else [],
        )


ERROR_METRICS = ("brier_score", "ter", "wer", "cer", "mse", "mae")  # metrics of lm-eval that are minimized


@dataclass(frozen=True, kw_only=True)
class MeasureConfig:
    """Metrics for selection and for the report."""

    select: str = "valid/normalized_accuracy"
    """Validation metric by which hyperparameters are selected; never a test metric."""
    report: list[str] = field(default_factory=lambda: ["test/normalized_accuracy"])
    """Metrics in the table of the report."""
    direction: Literal["maximize", "minimize"] = "maximize"
    """Whether the selection metric is maximized or minimized; set minimize for a loss."""
    statistic: Literal["median", "mean", "best"] = "median"
    """How several seeds are summarized."""
    solved: float | None = None
    """Value of the first reported metric from which the task counts as solved; null: never."""
    margin: float = 0.0
    """Smallest difference that matters, in units of the first reported metric; 0: arms are never called equivalent."""
    interval: Literal["t", "bootstrap"] = "t"
    """Confidence interval of a mean over seeds; the bootstrap needs 10 seeds, with fewer t is used."""

    @property
    def primary_metric(self) -> str:
        """The first reported metric, or the selection metric if none is reported."""
        return self.report[0] if self.report else self.select

    @property
    def validation_metric(self) -> str | None:
        """The primary metric on the validation split; None if training does not measure it, such as one of lm-eval."""
        split, _, name = self.primary_metric.partition("/")
        return f"valid/{name}" if split in ("test", "valid") and name else None

    def metric_direction(self, metric: str) -> Literal["maximize", "minimize"]:
        """Return whether a metric is maximized or minimized, by its name; `direction` holds for unknown names."""
        if (
            any(name in metric for name in ("loss", "perplexity", "bits_per_byte", "l1_distance"))
            or metric.split("/")[-1] in ERROR_METRICS
        ):
            return "minimize"
        if "eval/" in metric:  # all other lm-eval metrics are accuracies
            return "maximize"
        return "maximize" if metric.split("/")[1:2] and "accuracy" in metric else self.direction

    def __post_init__(self) -> None:
        issues = check_minimums(self, {"margin": 0})
        if self.select.startswith("test/"):
            issues.append(
                ConfigIssue(
                    "select",
                    "selection_on_test_set",
                    f"{self.select!r} is a test metric, and selection never uses the test set.",
                    f"Use {self.select.replace('test/', 'valid/', 1)!r}.",
                )
            )
        expected = self.metric_direction(self.select)
        better = {"minimize": "lower", "maximize": "higher"}[expected]
        conflict = ConfigIssue(
            "direction",
            "wrong_direction",
            f"cells are selected by {self.select}, for which {better} is better.",
            f"Set it to {expected}.",
        )
        raise_if_invalid(issues, [conflict] if expected != self.direction else [])
