"""Names to makers: what is found, what is refused, and in which words."""

import subprocess
import sys
from typing import Literal

import pytest

from hqlt_lab import registry
from hqlt_lab.errors import ConfigError, RegistryError


@pytest.fixture(autouse=True)
def clean_book():
    with registry.temporarily():
        yield


def for_tests(width: int, window: int | None = 4, pace: float = 0.5, order: Literal["up", "down"] = "up") -> dict:
    """A part for tests: it returns what it was given.

    More words.
    """
    return {"width": width, "window": window, "pace": pace, "order": order}


@pytest.fixture
def part():
    registry.register("mixer", "for_tests")(for_tests)
    return {"name": "for_tests"}


def test_a_part_gets_what_its_signature_names(part):
    assert registry.build("mixer", part, width=8, heads=2) == {"width": 8, "window": 4, "pace": 0.5, "order": "up"}


def test_options_are_the_signature_without_what_the_lab_hands_over(part):
    known = registry.options("mixer", "for_tests")
    assert list(known) == ["window", "pace", "order"]
    assert [str(option) for option in known.values()] == [
        "window: int | null = 4",
        "pace: float = 0.5",
        "order: up | down = up",
    ]


def test_describe_tells_idea_file_and_line(part):
    entry = registry.describe("mixer", "for_tests")
    assert entry.idea == "A part for tests: it returns what it was given."
    assert entry.file == __file__
    assert entry.line == for_tests.__code__.co_firstlineno


def test_names_can_be_listed_with_wildcards():
    found = registry.available("update_rule", "*delta*")
    assert {"bounded_delta", "delta", "gated_delta"} <= set(found) and all("delta" in name for name in found)
    assert {"delayed_chunk", "delayed_stream"} <= set(registry.available("timing", "delayed-*"))


def test_hyphens_are_underscores():
    assert registry.build("timing", "delayed-stream") == registry.build("timing", {"name": "delayed_stream"})


def test_null_and_whole_numbers_are_accepted_where_the_type_says_so(part):
    made = registry.build("mixer", part | {"window": None, "pace": 2}, width=8)
    assert made["window"] is None and made["pace"] == 2


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("dleta", "mixer: no mixer is called 'dleta'."),
        ("sums", "Did you mean 'sum'? Available: for_tests, fw_only, kv_only, "),
        (None, "mixer: no mixer is called None."),
        ({"window": 4}, "mixer: a mixer is given by its name, or as {name: ..., option: ...}; got {'window': 4}."),
        (
            {"name": "for_tests", "windw": 4},
            "has no option 'windw'. Did you mean 'window'? Options: window, pace, order.",
        ),
        ({"name": "for_tests", "width": 4}, "mixer 'for_tests' has no option 'width'."),
        ({"name": "for_tests", "window": "4"}, "mixer.window: mixer 'for_tests' takes int | null here, got '4'."),
        (False, "no mixer is called False. YAML reads yes, no, on and off as true and false: quote the name"),
        ({"name": "for_tests", "window": 1e3}, "takes int | null here, got 1000.0. Write 1000."),
        ({"name": "for_tests", "window": 0.5}, "takes int | null here, got 0.5."),
        ({"name": "for_tests", "window": True}, "takes int | null here, got True."),
        ({"name": "for_tests", "order": "left"}, "mixer.order: mixer 'for_tests' takes up | down here, got 'left'."),
    ],
)
def test_a_mistake_is_told_with_the_nearest_right_thing(part, spec, says):
    with pytest.raises(RegistryError) as told:
        registry.build("mixer", spec, width=8)
    assert says in str(told.value)


def test_all_mistakes_are_told_at_once_with_their_path(part):
    with pytest.raises(RegistryError) as told:
        registry.build("mixer", part | {"windw": 4, "pace": "fast"}, at="model.mixer", width=8)
    assert [line.split(" ")[0] for line in str(told.value).splitlines()] == ["model.mixer:", "model.mixer.pace:"]


def test_a_required_option_is_asked_for():
    @registry.register("mixer", "needy")
    def needy(window: int) -> int:
        return window

    with pytest.raises(RegistryError, match=r"mixer: mixer 'needy' needs the option 'window' \(int\)."):
        registry.build("mixer", "needy")


def test_a_parts_own_complaint_gains_its_place():
    with pytest.raises(ConfigError, match=r"^model\.update_rule\.max_beta: a number in \(0, 2\] is needed, got 5\.$"):
        registry.build("update_rule", {"name": "delta", "max_beta": 5}, at="model.update_rule", width=8, heads=2)


def test_a_taken_name_is_refused():
    with pytest.raises(
        RegistryError, match=r"'delta' is already registered by hqlt_lab\.components\.update_rules\.delta\.Delta; "
    ):
        registry.available("update_rule")
        registry.register("update_rule", "delta")(for_tests)


def test_the_same_definition_may_be_registered_again(part):
    registry.register("mixer", "for_tests")(for_tests)
    assert "for_tests" in registry.available("mixer")


@pytest.mark.parametrize("name", ["Delta", "my-rule", "my rule", ""])
def test_a_name_is_an_identifier(name):
    with pytest.raises(RegistryError, match="a name is lower_case letters"):
        registry.register("mixer", name)


def test_an_unknown_kind_is_told():
    with pytest.raises(RegistryError, match=r"No kind of part is called 'mixr'\. Did you mean 'mixer'\?"):
        registry.available("mixr")


def test_what_was_registered_temporarily_is_forgotten():
    with registry.temporarily():
        registry.register("mixer", "gone")(for_tests)
        assert "gone" in registry.available("mixer")
    assert "gone" not in registry.available("mixer")


PART = """
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.registry import register

@register("timing", "mine")
def mine(window: int = 4) -> Schedule:
    "Mine: a timing."
    return Schedule(window=window)
"""


def test_a_file_can_be_included_once_or_twice(tmp_path):
    (tmp_path / "mine.py").write_text(PART)
    registry.include(tmp_path / "mine.py")
    registry.include(tmp_path / "mine.py")
    assert registry.build("timing", "mine").window == 4
    assert (tmp_path / "mine.py").resolve() in registry.included()


def test_a_missing_file_and_a_broken_one_are_told(tmp_path):
    with pytest.raises(RegistryError, match="there is no such file"):
        registry.include(tmp_path / "none.py")
    with pytest.raises(RegistryError, match="it is a folder"):
        registry.include(tmp_path)
    (tmp_path / "broken.py").write_text("import math\n\n1 / 0\n")
    with pytest.raises(RegistryError, match=r"cannot be run \(ZeroDivisionError: division by zero, line 3\)"):
        registry.include(tmp_path / "broken.py")
    assert (tmp_path / "broken.py").resolve() not in registry.included()


def test_the_working_folders_pyproject_brings_parts(tmp_path):
    (tmp_path / "mine.py").write_text(PART)
    (tmp_path / "pyproject.toml").write_text('[tool.hqlt_lab]\nwith = ["mine.py"]\n')
    assert "mine" in run("print(registry.available('timing'))", tmp_path)


def test_a_pyproject_that_lists_a_file_that_is_not_there_is_told(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.hqlt_lab]\nwith = ["mien.py"]\n')
    assert "pyproject.toml: [tool.hqlt_lab] with lists 'mien.py'" in run("registry.available('timing')", tmp_path)


def test_a_pyproject_that_lists_no_files_is_told(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.hqlt_lab]\nwith = "mine.py"\n')
    assert "takes a list of files, got 'mine.py'" in run("registry.available('timing')", tmp_path)


def test_a_word_of_the_pyproject_that_means_nothing_is_told(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.hqlt_lab]\nwiht = ["mine.py"]\n')
    told = run("registry.available('timing')", tmp_path)
    assert "pyproject.toml: [tool.hqlt_lab] knows `with` alone, and has wiht." in told


def test_an_installed_package_brings_parts_by_entry_point(tmp_path):
    (tmp_path / "theirs.py").write_text(PART)
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hqlt_lab.components]\ntheirs = theirs\n")
    assert "mine" in run("print(registry.available('timing'))", tmp_path)


def run(code, folder):
    """In a fresh process, since a folder's parts are loaded once."""
    script = f"import sys; sys.path.insert(0, {str(folder)!r}); from hqlt_lab import registry; {code}"
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_a_shelf_that_is_first_opened_temporarily_is_not_forgotten(tmp_path):
    code = "\nwith registry.temporarily():\n    registry.available('timing')\nprint(registry.available('timing'))"
    assert "synchronous" in run(code, tmp_path)


def test_files_are_handed_on_to_processes_that_are_started_from_here(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(PART)
    monkeypatch.setenv("HQLT_WITH", "")
    registry.hand_on([tmp_path / "mine.py"])
    (tmp_path / "elsewhere").mkdir()
    assert "mine" in run("print(registry.available('timing'))", tmp_path / "elsewhere")
