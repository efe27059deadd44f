"""The command line, as a newcomer types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hqlt_lab.check.kit import CHECKED, check_part
from hqlt_lab.cli.templates import forms, write
from hqlt_lab.registry import KINDS, available, include, temporarily

HQLT = Path(sys.executable).parent / "hqlt"


def hqlt(*words, folder=None, code=0):
    done = subprocess.run(
        [HQLT, *words], cwd=folder, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"}
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


def test_list_shows_every_part():
    words = hqlt("list").split()
    assert all(name in words for kind in KINDS for name in available(kind))


def test_list_can_be_narrowed_and_read_by_programs():
    listed = json.loads(hqlt("list", "update_rule", "*delta", "--json"))
    parts = {part["name"]: part for part in listed["update_rule"]}
    assert {"bounded_delta", "delta", "gated_delta"} <= set(parts)
    assert parts["delta"]["options"]["max_beta"] | {"says": ""} == {
        "type": "float",
        "required": False,
        "default": 1.0,
        "says": "",
    }
    assert parts["delta"]["options"]["max_beta"]["says"].startswith("The largest strength of a write")


def test_show_tells_words_options_and_place():
    shown = hqlt("show", "timing", "delayed-stream")
    assert "as it leaves the softmax window" in shown
    assert "components/timings/delayed_stream.py:" in shown
    assert "gates: current | travel = current" in shown


def test_doctor_tells_what_is_used_and_how_to_get_what_is_missing():
    told = hqlt("doctor")
    assert "fast weights            torch" in told and "not fla: it needs a GPU" in told
    assert "pip install --no-build-isolation -c constraints.txt -e '.[flash]'" in told
    assert {"topic", "found", "note"} == set(json.loads(hqlt("doctor", "--json"))[0])


@pytest.mark.parametrize(("kind", "form"), [(kind, form) for kind in CHECKED for form in (None, *forms()[kind])])
def test_a_new_part_conforms_as_generated(kind, form, tmp_path):
    with temporarily():
        file = write(kind, "my_part", tmp_path, form)
        include(file)
        check_part(kind, "my_part").assert_passed()
    assert len(file.read_text().splitlines()) < 60


def test_show_lists_what_a_task_measures():
    assert "test/normalised_accuracy" in hqlt("show", "task", "parity")
    assert "test/bits_per_byte" in hqlt("show", "task", "language")  # though no text was prepared


def test_new_and_check_are_two_commands(tmp_path):
    assert "hqlt --with my_rule.py check update_rule my_rule" in hqlt("new", "update_rule", "my_rule", folder=tmp_path)
    check = ("--with", "my_rule.py", "check", "update_rule", "my_rule", "--option", "keep=0.5", "--quick")
    assert "scan is the reference" in hqlt(*check, folder=tmp_path)
    report = json.loads(hqlt(*check, "--json", folder=tmp_path))
    assert report[0]["passed"] and len(report[0]["lines"]) >= 8


def test_a_rule_that_is_not_linear_has_a_template_too(tmp_path):
    hqlt("new", "update_rule", "my_rule", "--form", "step", folder=tmp_path)
    assert "class MyRule(StepRule):" in (tmp_path / "my_rule.py").read_text()
    told = hqlt("new", "update_rule", "other", "--form", "steps", folder=tmp_path, code=1)
    assert "--form steps: update_rule has no such form. Did you mean 'step'? Forms: step." in told
    told = hqlt("new", "mixer", "other", "--form", "step", folder=tmp_path, code=1)
    assert "--form step: mixer has no such form. Leave --form out." in told
    assert [file.name for file in tmp_path.iterdir()] == ["my_rule.py"]


def test_new_overwrites_nothing(tmp_path):
    (tmp_path / "mine.py").write_text("precious")
    assert "mine.py exists already." in hqlt("new", "mixer", "mine", folder=tmp_path, code=1)
    assert "mixer 'sum' exists already" in hqlt("new", "mixer", "sum", folder=tmp_path, code=1)
    assert "lower_case" in hqlt("new", "mixer", "My-Mixer", folder=tmp_path, code=1)
    assert "Did you mean 'mixer'?" in hqlt("new", "mixr", "mine", folder=tmp_path, code=1)
    assert (tmp_path / "mine.py").read_text() == "precious"


def test_a_part_that_does_not_conform_fails_the_command(tmp_path):
    (tmp_path / "leaky.py").write_text(
        "from hqlt_lab.ops.schedule import Schedule\n"
        "from hqlt_lab.registry import register\n\n\n"
        '@register("timing", "leaky")\n'
        "def leaky() -> Schedule:\n"
        '    """Leaky: tokens get lost."""\n'
        "    return Schedule(delay=5, window=3)\n"
    )
    assert "These do not conform: timing leaky." in hqlt(
        "--with", "leaky.py", "check", "timing", "leaky", "--quick", folder=tmp_path, code=3
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("show", "mixer", "vectr"), "mixer: no mixer is called 'vectr'. Did you mean 'vector'?"),
        (("list", "mixers"), "No kind of part is called 'mixers'. Did you mean 'mixer'?"),
        (("check", "update_rule", "delta", "--option", "max_beta"), "'max_beta': an option is given as name=value."),
        (("check", "update_rule", "delta", "--option", "beta=2"), "has no option 'beta'. Did you mean 'max_beta'?"),
        (("--with", "nowhere.py", "list"), "--with nowhere.py: there is no such file."),
    ],
)
def test_a_mistake_is_a_sentence_and_an_exit_code(words, says):
    assert says in hqlt(*words, code=1)


def test_parts_of_ones_own_are_taken_before_and_behind_the_verb(tmp_path):
    hqlt("new", "mixer", "my_mixer", folder=tmp_path)
    missed = hqlt("show", "mixer", "my_mixer", folder=tmp_path, code=1)
    assert "my_mixer.py is here, and was not included: hqlt --with my_mixer.py" in missed
    before = hqlt("--with", "my_mixer.py", "show", "mixer", "my_mixer", folder=tmp_path)
    assert before == hqlt("show", "mixer", "my_mixer", "--with", "my_mixer.py", folder=tmp_path)
    assert before == hqlt("show", "--with=my_mixer.py", "mixer", "my_mixer", folder=tmp_path)
