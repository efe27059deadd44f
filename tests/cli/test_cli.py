"""The commands about components, run as a subprocess: list, show, new, check, doctor."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hqlt_lab.check.conformance import CHECKED_KINDS, check_component
from hqlt_lab.cli.templates import list_forms, write_component
from hqlt_lab.registry import KINDS, available, load_components, temporary_components

HQLT = Path(sys.executable).parent / "hqlt"


def run_hqlt(*arguments, folder=None, code=0):
    """Run `hqlt` and return its standard output, or its standard error if a failure is expected."""
    process = subprocess.run(
        [HQLT, *arguments], cwd=folder, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"}
    )
    assert process.returncode == code, process.stdout + process.stderr
    assert "Traceback" not in process.stderr
    return process.stdout if code == 0 else process.stderr


def test_list_shows_every_component():
    words = run_hqlt("list").split()
    assert all(name in words for kind in KINDS for name in available(kind))


def test_list_can_be_filtered_and_printed_as_json():
    components_by_kind = json.loads(run_hqlt("list", "update_rule", "*delta", "--json"))
    components = {component["name"]: component for component in components_by_kind["update_rule"]}
    assert {"tanh_delta", "delta", "gated_delta"} <= set(components)
    assert set(components["delta"]) == {"kind", "name", "summary", "file", "line", "options"}
    option = components["delta"]["options"]["max_beta"]
    assert option | {"help": ""} == {"type": "float", "required": False, "default": 1.0, "help": ""}
    assert option["help"]


def test_show_prints_documentation_options_and_file():
    output = run_hqlt("show", "timing", "delayed-stream")
    assert "as it leaves the softmax window" in output
    assert "components/timings/delayed_stream.py:" in output
    assert "gates: current | own = current" in output


def test_doctor_prints_the_backends_and_how_to_install_missing_packages():
    output = run_hqlt("doctor")
    assert "fast weights            torch" in output and "not fla: it needs a GPU" in output
    assert "pip install --no-build-isolation -c constraints.txt -e '.[flash]'" in output
    assert {"topic", "found", "note"} == set(json.loads(run_hqlt("doctor", "--json"))[0])


@pytest.mark.parametrize(
    ("kind", "form"), [(kind, form) for kind in CHECKED_KINDS for form in list_forms()[kind] or [None]]
)
def test_new_component_conforms_as_generated(kind, form, tmp_path):
    with temporary_components():
        file = write_component(kind, "my_component", tmp_path, form)
        load_components(file)
        check_component(kind, "my_component").assert_passed()
    assert len(file.read_text().splitlines()) < 60


def test_show_lists_the_metrics_of_a_task():
    assert "test/normalized_accuracy" in run_hqlt("show", "task", "parity")
    assert "test/bits_per_byte" in run_hqlt("show", "task", "language")  # although no corpus was prepared


def test_new_and_check_are_two_commands(tmp_path):
    assert "hqlt --with my_rule.py check update_rule my_rule" in run_hqlt(
        "new", "update_rule", "my_rule", folder=tmp_path
    )
    check = ("--with", "my_rule.py", "check", "update_rule", "my_rule", "--option", "keep=0.5", "--quick")
    assert "scan equals the reference" in run_hqlt(*check, folder=tmp_path)
    report = json.loads(run_hqlt(*check, "--json", folder=tmp_path))
    assert report[0]["passed"] and len(report[0]["results"]) >= 8


def test_nonlinear_update_rule_has_a_template(tmp_path):
    run_hqlt("new", "update_rule", "my_rule", "--form", "step", folder=tmp_path)
    assert "class MyRule(StepRule):" in (tmp_path / "my_rule.py").read_text()
    message = run_hqlt("new", "update_rule", "other", "--form", "steps", folder=tmp_path, code=2)
    assert message.startswith("--form: ")
    message = run_hqlt("new", "mixer", "other", "--form", "step", folder=tmp_path, code=2)
    assert message.startswith("--form: ")
    assert [file.name for file in tmp_path.iterdir()] == ["my_rule.py"]


def test_new_overwrites_nothing(tmp_path):
    (tmp_path / "mine.py").write_text("precious")
    assert "mine.py already exists." in run_hqlt("new", "mixer", "mine", folder=tmp_path, code=1)
    assert "mixer 'sum' already exists" in run_hqlt("new", "mixer", "sum", folder=tmp_path, code=1)
    assert "lower_case" in run_hqlt("new", "mixer", "My-Mixer", folder=tmp_path, code=1)
    assert "kind: " in run_hqlt("new", "mixr", "mine", folder=tmp_path, code=1)
    assert (tmp_path / "mine.py").read_text() == "precious"


def test_component_that_does_not_conform_fails_the_command(tmp_path):
    (tmp_path / "leaky.py").write_text(
        "from hqlt_lab.ops.memory_schedule import Schedule\n"
        "from hqlt_lab.registry import register\n\n\n"
        '@register("timing", "leaky")\n'
        "def leaky() -> Schedule:\n"
        '    """Leaky: tokens get lost."""\n'
        "    return Schedule(delay=5, window=3)\n"
    )
    assert "These components fail their checks: timing leaky." in run_hqlt(
        "--with", "leaky.py", "check", "timing", "leaky", "--quick", folder=tmp_path, code=3
    )


@pytest.mark.parametrize(
    ("arguments", "start", "code"),
    [
        (("show", "mixer", "vectr"), "mixer: ", 1),
        (("list", "mixers"), "kind: ", 1),
        (("check", "update_rule", "delta", "--option", "max_beta"), "--option: ", 2),
        (("check", "update_rule", "delta", "--option", "beta=2"), "update_rule.beta: ", 1),
        (("--with", "nowhere.py", "list"), "--with: ", 2),
    ],
)
def test_error_names_the_argument_and_has_an_exit_code(arguments, start, code):
    assert run_hqlt(*arguments, code=code).startswith(start)


def test_with_option_is_accepted_before_and_behind_the_command(tmp_path):
    run_hqlt("new", "mixer", "my_mixer", folder=tmp_path)
    message = run_hqlt("show", "mixer", "my_mixer", folder=tmp_path, code=1)
    assert "hqlt --with my_mixer.py" in message
    output = run_hqlt("--with", "my_mixer.py", "show", "mixer", "my_mixer", folder=tmp_path)
    assert output == run_hqlt("show", "mixer", "my_mixer", "--with", "my_mixer.py", folder=tmp_path)
    assert output == run_hqlt("show", "--with=my_mixer.py", "mixer", "my_mixer", folder=tmp_path)
