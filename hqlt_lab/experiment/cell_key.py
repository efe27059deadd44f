"""The key of a cell: a hash of all settings that can change the result.

These are task, model, train, agent, ops, seed and precision, and the selection metric if training depends on it
(`stop_at`, `report: best_valid`). Settings at their default, and components that no layer uses, are left out. The arm's
name, the devices, and logging and checkpoint settings are not in the key, so identical cells of two experiments have
the same key.
"""

from typing import Any

from hqlt_lab.experiment.cell import SETTINGS_NOT_IN_KEY, Cell
from hqlt_lab.experiment.fill_defaults import strip_component_defaults, strip_model_defaults, strip_settings_defaults
from hqlt_lab.hashing import hash_json


def cell_key(cell: Cell) -> str:
    """Return the key of a cell. Cells with the same key have the same result."""
    return hash_json({**settings_for_key(cell), "seed": cell.seed})


def settings_for_key(cell: Cell) -> dict[str, Any]:
    """Return all settings that can change the result, except the seed, without defaults."""
    train = strip_settings_defaults(cell.train, SETTINGS_NOT_IN_KEY)
    settings: dict[str, Any] = {
        "task": strip_component_defaults("task", cell.task),
        "model": strip_model_defaults(cell.model),
        "train": train,
    }
    if cell.trainer.precision != "auto":
        settings["precision"] = cell.trainer.precision
    if cell.agent is not None:
        settings["agent"] = strip_settings_defaults(cell.agent, ())
    if ops := strip_settings_defaults(cell.ops, ()):
        settings["ops"] = ops
    if cell.train.stop_at is not None or cell.train.report == "best_valid":
        settings["select"] = [cell.measure.select, cell.measure.direction]
    return settings
