"""Several profiles side by side: the profiles of one folder of runs.

runs/profiles/profiles.md, .svg, .png     normalized scores, one row per test and one column per profile
"""

from dataclasses import dataclass
from pathlib import Path

from hqlt_lab.files import write_atomic
from hqlt_lab.formatting import dump_json
from hqlt_lab.memory_profile.memory_profile import MemoryProfile
from hqlt_lab.memory_profile.profile_figures import draw_comparison
from hqlt_lab.memory_profile.profile_tables import build_comparison_table, render_profile_markdown


@dataclass(frozen=True, repr=False)
class ProfileComparison:
    """Profiles that are compared, by name. A notebook displays their table."""

    profiles: tuple[MemoryProfile, ...]

    def __repr__(self) -> str:
        return self.to_markdown()

    def to_json(self) -> str:
        return dump_json([profile.to_dict() for profile in self.profiles]) + "\n"

    def to_markdown(self) -> str:
        return render_profile_markdown("Memory profiles", build_comparison_table(self.profiles))

    def save(self, folder: Path) -> list[Path]:
        """Write the table and the figure to a folder. Return the files."""
        contents: dict[str, str | bytes] = {"profiles.md": self.to_markdown()}
        if figure := draw_comparison(self.profiles):
            contents |= {"profiles.svg": figure.to_svg(), "profiles.png": figure.to_png()}
        for name, content in contents.items():
            write_atomic(folder / name, content)
        return [folder / name for name in contents]
