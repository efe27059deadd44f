"""The title of an arm: its name and crossed levels, and the text by which they are shown."""

from collections.abc import Mapping
from typing import Any, Self

from hqlt_lab.experiment.apply_overrides import format_change, format_value


class ArmTitle(str):
    """Title of an arm. It is the text that is shown, such as "synchronous, mixer=sum", and carries what is in it.

    Titles are compared as text: an experiment with two arms of the same text is refused. No code splits the text.
    """

    _name: str
    _levels: Mapping[str, Any]

    def __new__(cls, name: str = "", levels: Mapping[str, Any] | None = None) -> Self:
        title = super().__new__(cls, ", ".join([name, *format_levels(levels or {})]))
        title._name, title._levels = name, dict(levels or {})
        return title

    def __getnewargs__(self) -> tuple[str, Mapping[str, Any]]:  # type: ignore[override]
        return self.name, self.levels  # for pickle and copy, which would pass the text

    @property
    def name(self) -> str:
        """The name of the arm in the file. It may contain commas and equals signs."""
        return self._name

    @property
    def levels(self) -> Mapping[str, Any]:
        """The crossed levels: path -> value."""
        return self._levels

    @property
    def level_labels(self) -> list[str]:
        """The crossed levels, such as ["mixer=sum", "window=8"]."""
        return format_levels(self.levels)

    @property
    def level_values(self) -> list[str]:
        """The values of the crossed levels as text, such as ["sum", "8"]."""
        return [format_value(value) for value in self.levels.values()]

    def drop_levels(self, other: "ArmTitle") -> "ArmTitle":
        """Return the title without the levels that another title has, too."""
        missing = object()
        levels = {path: value for path, value in self.levels.items() if other.levels.get(path, missing) != value}
        return ArmTitle(self.name, levels)

    def to_dict(self) -> dict[str, Any]:
        """Return name and levels for JSON. `from_dict` is the inverse."""
        return {"name": self.name, "levels": dict(self.levels)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "ArmTitle":
        """Rebuild a title from the result of `to_dict`. Raise ValueError if it is not one."""
        name, levels = stored["name"], stored["levels"]
        if not isinstance(name, str) or not isinstance(levels, Mapping):
            raise ValueError(f"{dict(stored)!r} does not have the name and the levels of an arm")
        return cls(name, dict(levels))


def format_levels(levels: Mapping[str, Any]) -> list[str]:
    """Return crossed levels as text, such as ["mixer=sum", "window=8"]."""
    return [format_change(path, value, levels) for path, value in levels.items()]
