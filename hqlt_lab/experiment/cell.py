"""The complete settings of one training run. They are stored with the run and are enough to rebuild it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.run_settings import AgentConfig, MeasureConfig, TrainConfig, TrainerConfig
from hqlt_lab.model.config import OpsConfig
from hqlt_lab.registry import parse_settings

# Settings that change where or how a run is computed and stored, but not its result. They are not in the cell key.
LOGGING_SETTINGS = ("checkpoint_every", "keep", "log_every", "probe_every")
SETTINGS_NOT_IN_KEY = ("accumulate", "eval_batch_size", "compile", "recompute", "head", *LOGGING_SETTINGS)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Settings of a run with all defaults filled in. A component is a mapping with its name and all options."""

    task: Mapping[str, Any]
    model: Mapping[str, Any]  # the fields of ModelConfig except the vocabulary, which the task defines
    train: TrainConfig = field(default_factory=TrainConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    ops: OpsConfig = field(default_factory=OpsConfig)
    agent: AgentConfig | None = None  # None: the task is not an environment
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    seed: int = 0
    arm: ArmTitle = field(default_factory=ArmTitle)
    axes: Mapping[str, Any] = field(default_factory=dict)  # crossed and tuned paths -> their values in this cell

    def replace_model_settings(self, **settings: Any) -> "Cell":
        """Return a copy with these model settings replaced."""
        return replace(self, model={**self.model, **settings})

    def to_dict(self) -> dict[str, Any]:
        """Return a nested dict for JSON or YAML. `cell_from_dict` is the inverse."""
        return asdict(self) | {"arm": self.arm.to_dict()}


def cell_from_dict(stored: Mapping[str, Any]) -> Cell:
    """Rebuild a cell from the result of `Cell.to_dict`."""
    section_types = {"train": TrainConfig, "trainer": TrainerConfig, "ops": OpsConfig, "measure": MeasureConfig}
    sections: dict[str, Any] = {
        name: parse_settings(settings_type, stored[name]) for name, settings_type in section_types.items()
    }
    agent = stored.get("agent")
    sections["agent"] = None if agent is None else parse_settings(AgentConfig, agent)
    return Cell(**(dict(stored) | sections | {"arm": ArmTitle.from_dict(stored["arm"])}))
