"""One thing to train, completely told: what is stored with a run and what rebuilds it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hqlt_lab.experiment.agent import AgentConfig
from hqlt_lab.experiment.settings import MeasureConfig, TrainConfig, TrainerConfig
from hqlt_lab.model.config import OpsConfig
from hqlt_lab.registry import settings_from

# what says where and how to compute or to keep, but cannot change the result
KEEPING = ("checkpoint_every", "keep", "log_every", "probe_every")
NOT_IN_THE_KEY = ("accumulate", "eval_batch_size", "compile", "recompute", *KEEPING)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A run's settings, every default filled in.  Parts are mappings with their name and all options."""

    task: Mapping[str, Any]
    model: Mapping[str, Any]  # the fields of ModelConfig, without the vocabulary, which is the task's
    train: TrainConfig = field(default_factory=TrainConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    ops: OpsConfig = field(default_factory=OpsConfig)
    agent: AgentConfig | None = None  # None: the task has examples, and nobody acts
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    seed: int = 0
    arm: str = ""
    axes: Mapping[str, Any] = field(default_factory=dict)  # crossed and tuned paths, and their values here

    def with_model(self, **settings: Any) -> "Cell":
        """The same with other settings of the model."""
        return replace(self, model={**self.model, **settings})

    def as_dict(self) -> dict[str, Any]:
        """For JSON and YAML; `cell_from` is the way back."""
        return asdict(self)


def cell_from(stored: Mapping[str, Any]) -> Cell:
    """The cell that `as_dict` wrote down."""
    made = {"train": TrainConfig, "trainer": TrainerConfig, "ops": OpsConfig, "measure": MeasureConfig}
    sections: dict[str, Any] = {name: settings_from(maker, stored[name]) for name, maker in made.items()}
    acting = stored.get("agent")
    sections["agent"] = None if acting is None else settings_from(AgentConfig, acting)
    return Cell(**(dict(stored) | sections))


def digest(told: Any) -> str:
    """A short name for a nested mapping, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
