"""A memory profile as a value, and its file profile.json.

The file has the composition that was profiled and the scores of the tests that were run.  Profiles are compared by
these files alone, without reading studies or building models.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hqlt_lab.errors import ConfigError, StoreError
from hqlt_lab.files import check_numbers, check_types, decode_json, read_json, translate_damage, write_atomic
from hqlt_lab.formatting import dump_json
from hqlt_lab.memory_profile.composition import Composition
from hqlt_lab.memory_profile.load_battery import BATTERY
from hqlt_lab.memory_profile.profile_scores import ProfileScore

if TYPE_CHECKING:
    from hqlt_lab.report.figures.report_figure import ReportFigure

PROFILE_FILE = "profile.json"
SCORE_TYPES: dict[str, tuple[type, ...]] = {
    "test": (str,), "metric": (str,), "mean": (int, float, type(None)), "low": (int, float, type(None)),
    "high": (int, float, type(None)), "values": (list,), "chance": (int, float), "threshold": (int, float, type(None)),
    "solved": (int,), "ended": (int,), "seeds": (int,), "lengths": (list, type(None)),
    "trained_length": (int, type(None)), "state_bytes": (int,), "unfinished": (dict,),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class MemoryProfile:
    """What a composition learned in the battery. A notebook displays its table."""

    name: str
    composition: str  # components on one line
    settings: Mapping[str, Any]  # what identifies the composition: model, layer_period, allow, and changed training
    notes: tuple[str, ...] = ()  # sentences on settings that the battery replaces, or that were changed
    scores: tuple[ProfileScore, ...] = ()  # in the order of the battery

    def with_scores(self, test: str, scores: Iterable[ProfileScore]) -> "MemoryProfile":
        """Return the profile with new scores of one test."""
        merged = [*(score for score in self.scores if score.test != test), *scores]
        return replace(self, scores=tuple(sorted(merged, key=lambda score: BATTERY.index(score.test))))

    def __repr__(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.to_markdown())}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as JSON data; each score also has its normalized mean."""
        scores = [asdict(score) | {"normalized": score.normalized} for score in self.scores]
        return {
            "name": self.name,
            "composition": self.composition,
            "settings": self.settings,
            "notes": self.notes,
            "scores": scores,
        }

    def to_json(self) -> str:
        return dump_json(self.to_dict()) + "\n"

    def to_markdown(self) -> str:
        from hqlt_lab.memory_profile.profile_tables import build_profile_table, render_profile_markdown

        return render_profile_markdown(f"Memory profile: {self.name}", build_profile_table(self))

    def draw_figure(self) -> "ReportFigure | None":
        """Draw the profile; None if no test has a score."""
        from hqlt_lab.memory_profile.profile_figures import draw_profile

        return draw_profile(self)

    def save(self, folder: Path) -> list[Path]:
        """Write the profile into its folder: profile.json, profile.md and the figure. Return the files."""
        folder.mkdir(parents=True, exist_ok=True)
        contents: dict[str, str | bytes] = {PROFILE_FILE: self.to_json(), "profile.md": self.to_markdown()}
        if figure := self.draw_figure():
            contents |= {"profile.svg": figure.to_svg(), "profile.png": figure.to_png()}
        for name, content in contents.items():
            write_atomic(folder / name, content)
        return [folder / name for name in contents]


def identify_settings(composition: Composition, overrides: Iterable[str]) -> dict[str, Any]:
    """Return what must be equal for two runs to belong to one profile, as JSON data."""
    settings = {
        "model": composition.model,
        "layer_period": composition.layer_period,
        "allow": composition.allow,
        "overrides": list(overrides),
    }
    return decode_json(dump_json(settings), dict)


def open_profile(
    name: str, composition: Composition, notes: Iterable[str], overrides: Iterable[str], folder: Path
) -> MemoryProfile:
    """Return the profile in a folder, or one without scores; raise ConfigError if it is of another composition."""
    settings = identify_settings(composition, overrides)
    profile = MemoryProfile(name=name, composition=str(composition), settings=settings, notes=tuple(notes))
    if not (folder / PROFILE_FILE).is_file():
        return profile
    stored = load_profile(folder)
    if stored.settings != settings:
        raise ConfigError.at(
            "--name",
            "profile_of_other_composition",
            f"the profile {name!r} in {folder} has other components, or other settings of the battery: "
            f"{stored.composition}.",
            "Give this one another name.",
        )
    return replace(profile, scores=stored.scores)


def load_profile(folder: Path) -> MemoryProfile:
    """Read the profile of a folder; raise StoreError if its file is damaged."""
    file = folder / PROFILE_FILE
    content = read_json(file, dict)
    with translate_damage(file):
        check_types(
            content,
            {"name": (str,), "composition": (str,), "settings": (dict,), "notes": (list,), "scores": (list,)},
        )
        scores = tuple(parse_score(score) for score in content["scores"])
        texts = [content["name"], content["composition"], *content["notes"]]
        if not all(isinstance(text, str) and text.isprintable() for text in texts):
            raise ValueError("a text is not printable")
    known = tuple(score for score in scores if score.test in BATTERY)  # others are of an earlier battery
    return MemoryProfile(
        name=content["name"],
        composition=content["composition"],
        settings=content["settings"],
        notes=tuple(content["notes"]),
        scores=known,
    )


def parse_score(content: Mapping[str, Any]) -> ProfileScore:
    """Return a score from JSON data."""
    check_types(content, SCORE_TYPES)
    values = {name: content[name] for name in SCORE_TYPES}
    if values["lengths"] is not None:
        low, high = values["lengths"]
        check_types({"low": low, "high": high}, {"low": (int,), "high": (int,)})
        values["lengths"] = (low, high)
    check_numbers({str(index): value for index, value in enumerate(values["values"])})
    values["values"] = tuple(values["values"])
    return ProfileScore(**values)


def load_profiles(folder: Path) -> list[MemoryProfile]:
    """Return the profiles in the folders of this folder, by name; raise StoreError if there are none."""
    profiles = [load_profile(file.parent) for file in sorted(folder.glob(f"*/{PROFILE_FILE}"))]
    if not profiles:
        raise StoreError(f"{folder}: there are no profiles. Make one with `hqlt profile FILE`.")
    return profiles
