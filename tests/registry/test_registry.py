"""The registry finds, builds and describes components, and explains invalid names and options."""

import subprocess
import sys
from typing import Literal

import pytest

from hqlt_lab import registry
from hqlt_lab.errors import RegistryError
from tests.issues import raises_issue


@pytest.fixture(autouse=True)
def clean_registry():
    with registry.temporary_components():
        yield


def for_tests(width: int, window: int | None = 4, pace: float = 0.5, order: Literal["up", "down"] = "up") -> dict:
    """A component for tests that returns its arguments.

    More documentation.
    """
    return {"width": width, "window": window, "pace": pace, "order": order}


@pytest.fixture
def spec():
    registry.register("mixer", "for_tests")(for_tests)
    return {"name": "for_tests"}


def test_component_gets_the_arguments_that_its_signature_names(spec):
    assert registry.build("mixer", spec, width=8, heads=2) == {"width": 8, "window": 4, "pace": 0.5, "order": "up"}


def test_options_are_the_parameters_that_the_lab_does_not_provide(spec):
    options = registry.options("mixer", "for_tests")
    assert list(options) == ["window", "pace", "order"]
    assert [str(option) for option in options.values()] == [
        "window: int | null = 4",
        "pace: float = 0.5",
        "order: up | down = up",
    ]


def test_describe_returns_summary_file_and_line(spec):
    entry = registry.describe("mixer", "for_tests")
    assert entry.summary == "A component for tests that returns its arguments."
    assert entry.file == __file__
    assert entry.line == for_tests.__code__.co_firstlineno


def test_names_can_be_listed_with_wildcards():
    names = registry.available("update_rule", "*delta*")
    assert {"tanh_delta", "delta", "gated_delta"} <= set(names) and all("delta" in name for name in names)
    assert {"delayed_chunk", "delayed_stream"} <= set(registry.available("timing", "delayed-*"))


def test_hyphens_are_accepted_for_underscores():
    assert registry.build("timing", "delayed-stream") == registry.build("timing", {"name": "delayed_stream"})


def test_null_is_accepted_for_an_optional_type_and_an_int_for_a_float(spec):
    component = registry.build("mixer", spec | {"window": None, "pace": 2}, width=8)
    assert component["window"] is None and component["pace"] == 2


@pytest.mark.parametrize(
    ("invalid_spec", "path", "code"),
    [
        ("dleta", "mixer", "unknown_component"),
        ("sums", "mixer", "unknown_component"),
        (None, "mixer", "unknown_component"),
        (False, "mixer", "unknown_component"),
        ({"window": 4}, "mixer", "component_without_name"),
        ({"name": "for_tests", "windw": 4}, "mixer.windw", "unknown_option"),
        ({"name": "for_tests", "width": 4}, "mixer.width", "unknown_option"),
        ({"name": "for_tests", "window": "4"}, "mixer.window", "option_of_wrong_type"),
        ({"name": "for_tests", "window": 1e3}, "mixer.window", "option_of_wrong_type"),
        ({"name": "for_tests", "window": 0.5}, "mixer.window", "option_of_wrong_type"),
        ({"name": "for_tests", "window": True}, "mixer.window", "option_of_wrong_type"),
        ({"name": "for_tests", "order": "left"}, "mixer.order", "option_of_wrong_type"),
    ],
)
def test_invalid_spec_is_an_error(spec, invalid_spec, path, code):
    with raises_issue(path, code, RegistryError):
        registry.build("mixer", invalid_spec, width=8)


@pytest.mark.parametrize(
    ("invalid_spec", "hint"),
    [
        ("sums", "'sum'?"),
        (False, "quote"),
        ({"name": "for_tests", "windw": 4}, "'window'?"),
        ({"name": "for_tests", "window": 1e3}, "1000."),
    ],
)
def test_hint_names_the_nearest_valid_name_or_value(spec, invalid_spec, hint):
    with pytest.raises(RegistryError) as error:
        registry.build("mixer", invalid_spec, width=8)
    assert hint in error.value.issues[0].hint.split()


def test_all_option_errors_are_reported_at_once_with_their_path(spec):
    with pytest.raises(RegistryError) as error:
        registry.build("mixer", spec | {"windw": 4, "pace": "fast"}, location="model.mixer", width=8)
    assert [issue.path for issue in error.value.issues] == ["model.mixer.windw", "model.mixer.pace"]


def test_missing_required_option_is_an_error():
    @registry.register("mixer", "requires_window")
    def requires_window(window: int) -> int:
        return window

    with raises_issue("mixer", "missing_option"):
        registry.build("mixer", "requires_window")


def test_error_of_a_component_is_prefixed_with_its_location():
    with raises_issue("model.update_rule.max_beta", "out_of_range"):
        registry.build("update_rule", {"name": "delta", "max_beta": 5}, location="model.update_rule", width=8, heads=2)


def test_name_of_another_component_cannot_be_registered():
    with raises_issue("update_rule", "name_registered_twice") as error:
        registry.available("update_rule")
        registry.register("update_rule", "delta")(for_tests)
    (issue,) = error.value.issues  # the built-in component keeps its name
    assert "Delta" in issue.message and "for_tests" in issue.hint


def test_clash_of_names_names_file_and_line_of_both(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    definition = "from hqlt_lab.registry import register\n\n@register('mixer', 'clash')\nclass Mine: ...\n"
    (tmp_path / "one.py").write_text(definition)
    (tmp_path / "two.py").write_text(f"\n{definition}")
    registry.load_components("one.py")
    with raises_issue("mixer", "name_registered_twice") as error:
        registry.load_components("two.py")
    (issue,) = error.value.issues
    assert "one.py, line 3" in issue.message and "two.py, line 4" in issue.hint


def test_same_definition_can_be_registered_again(spec):
    registry.register("mixer", "for_tests")(for_tests)
    assert "for_tests" in registry.available("mixer")


@pytest.mark.parametrize("name", ["Delta", "my-rule", "my rule", ""])
def test_name_that_is_not_a_lower_case_identifier_is_rejected(name):
    with raises_issue("mixer", "invalid_component_name"):
        registry.register("mixer", name)


def test_unknown_kind_is_an_error():
    with raises_issue("kind", "unknown_kind"):
        registry.available("mixr")


def test_temporary_component_is_removed_at_the_end():
    with registry.temporary_components():
        registry.register("mixer", "gone")(for_tests)
        assert "gone" in registry.available("mixer")
    assert "gone" not in registry.available("mixer")


COMPONENT = """
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.registry import register

@register("timing", "mine")
def mine(window: int = 4) -> Schedule:
    "Mine: a timing."
    return Schedule(window=window)
"""


def test_file_can_be_loaded_twice(tmp_path):
    (tmp_path / "mine.py").write_text(COMPONENT)
    registry.load_components(tmp_path / "mine.py")
    registry.load_components(tmp_path / "mine.py")
    assert registry.build("timing", "mine").window == 4
    assert (tmp_path / "mine.py").resolve() in registry.list_loaded_files()


def test_missing_file_folder_and_broken_file_are_errors(tmp_path):
    with raises_issue("--with", "file_not_found"):
        registry.load_components(tmp_path / "none.py")
    with raises_issue("--with", "file_is_folder"):
        registry.load_components(tmp_path)
    (tmp_path / "broken.py").write_text("import math\n\n1 / 0\n")
    with raises_issue("--with", "file_cannot_be_run") as error:
        registry.load_components(tmp_path / "broken.py")
    assert error.value.issues[0].line == 3
    assert (tmp_path / "broken.py").resolve() not in registry.list_loaded_files()


def test_components_listed_in_pyproject_are_loaded(tmp_path):
    (tmp_path / "mine.py").write_text(COMPONENT)
    (tmp_path / "pyproject.toml").write_text('[tool.hqlt_lab]\nwith = ["mine.py"]\n')
    assert "mine" in run("print(registry.available('timing'))", tmp_path)


def test_pyproject_that_lists_a_missing_file_is_an_error(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.hqlt_lab]\nwith = ["mien.py"]\n')
    assert "pyproject.toml: tool.hqlt_lab.with: there is no file 'mien.py'" in run(
        "registry.available('timing')", tmp_path
    )


def test_pyproject_with_a_string_in_place_of_a_list_is_an_error(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.hqlt_lab]\nwith = "mine.py"\n')
    assert "pyproject.toml: tool.hqlt_lab.with: " in run("registry.available('timing')", tmp_path)


def test_unknown_key_in_pyproject_is_an_error(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.hqlt_lab]\nwiht = ["mine.py"]\n')
    output = run("registry.available('timing')", tmp_path)
    assert "pyproject.toml: tool.hqlt_lab.wiht: " in output


def test_components_of_an_installed_package_are_loaded_by_entry_point(tmp_path):
    (tmp_path / "external.py").write_text(COMPONENT)
    info = tmp_path / "external-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: external\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hqlt_lab.components]\nexternal = external\n")
    assert "mine" in run("print(registry.available('timing'))", tmp_path)


def run(code, folder):
    """Run code in a new process, since declared components are loaded only once per process."""
    script = f"import sys; sys.path.insert(0, {str(folder)!r}); from hqlt_lab import registry; {code}"
    result = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True)
    return result.stdout + result.stderr


def test_builtin_components_first_loaded_inside_temporary_components_stay_registered(tmp_path):
    code = (
        "\nwith registry.temporary_components():\n    registry.available('timing')\nprint(registry.available('timing'))"
    )
    assert "synchronous" in run(code, tmp_path)


def test_exported_files_are_loaded_in_subprocesses(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(COMPONENT)
    monkeypatch.setenv("HQLT_WITH", "")
    registry.export_to_subprocesses([tmp_path / "mine.py"])
    (tmp_path / "elsewhere").mkdir()
    assert "mine" in run("print(registry.available('timing'))", tmp_path / "elsewhere")
