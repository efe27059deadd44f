"""The battery of a memory profile: one experiment file per test, in the folder `battery`.

To add a test, write its file and add its name to BATTERY.  Its section `model` has the sizes, and other settings that
are the same for all compositions.  The metrics of `measure.report` are the rows of the profile; a metric that ends with
`length_A_B` is a slice of the test by length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hqlt_lab.errors import ConfigError, did_you_mean, format_names, join_sentences
from hqlt_lab.experiment.yaml.read_experiment_files import read_source

BATTERY = ("parity", "s3_words", "recall_8", "recall_16", "copying", "selective_copying")  # in the order of the table
BATTERY_FOLDER = Path(__file__).parent / "battery"


@dataclass(frozen=True)
class BatteryTest:
    """A test of the battery: an experiment without components."""

    name: str
    config: dict[str, Any]  # sections of its file

    @property
    def fixed_settings(self) -> dict[str, Any]:
        """The settings of the model that are the same for every composition, such as its sizes."""
        return dict(self.config["model"])


def load_battery(names: Sequence[str] = ()) -> list[BatteryTest]:
    """Return the tests with these names, or all, in the order of the battery."""
    for name in names:
        if name not in BATTERY:
            hint = join_sentences(did_you_mean(name, BATTERY), f"Tests: {format_names(BATTERY)}.")
            raise ConfigError.at("--test", "unknown_profile_test", f"the battery has no test {name!r}.", hint)
    selected = [name for name in BATTERY if not names or name in names]
    return [BatteryTest(name, read_source(BATTERY_FOLDER / f"{name}.yaml").config) for name in selected]
