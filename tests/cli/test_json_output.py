"""--json prints one document with the keys that its help text lists; output in a pipe is plain."""

import json
import os
import re
import subprocess
import sys
from contextlib import chdir

import pytest
import typer
from typer.testing import CliRunner

from hqlt_lab.cli.app import app
from hqlt_lab.cli.terminal.exit_codes import PartialFailure
from hqlt_lab.formatting import dump_json
from hqlt_lab.reference_pages.command_line import walk_commands
from tests.evaluation.local_datasets import write_local_datasets

STUDY = """
question: Does it run?
task: {name: language, data: data, length: 16, eval_size: 2}
model: {width: 8, heads: 1, layers: 1, mlp_width: 8, timing: {name: synchronous, window: 4}, positions: none}
train: {steps: 2, batch_size: 2, valid_every: 2}
trainer: {accelerator: cpu}
launcher: {workers: 1, threads: 1}
seeds: 1
measure: {select: valid/loss, report: [test/loss], direction: minimize}
"""
PREPARE = "data prepare python --into data --limit-documents 20 --valid 0.2 --test 0.2 --workers 1"
COMMAND_LINES = {
    "hqlt data prepare": PREPARE,
    "hqlt data show": "data show data --compress 100",
    "hqlt data check": "data check data",
    "hqlt list": "list timing",
    "hqlt show": "show timing synchronous",
    "hqlt check": "check timing synchronous --quick",
    "hqlt doctor": "doctor",
    "hqlt plan": "plan study.yaml",
    "hqlt train": "train study.yaml",
    "hqlt run": "run study.yaml",
    "hqlt profile": "profile --name tiny --test recall_8 --set train.steps=2 --set task.eval_size=2 --set seeds=1",
    "hqlt status": "status study.yaml",
    "hqlt report": "report study.yaml",
    "hqlt logs": "logs KEY",
    "hqlt evaluate": "evaluate KEY",
    "hqlt lm-eval": "lm-eval KEY --tasks piqa --local local --length 64",
    "hqlt compare": "compare KEY KEY",
    "hqlt generate": "generate KEY --prompt x --tokens 2",
    "hqlt export": "export KEY exported",
    "hqlt forget": "forget study.yaml --yes",
}
# commands that print a list, with an entry per cell, component or prompt
LIST_COMMANDS = {"check", "doctor", "plan", "status", "evaluate", "lm-eval", "generate", "forget"}
# they run conformance checks, use MLflow or import lm-eval
SLOW_COMMANDS = ("hqlt run", "hqlt profile", "hqlt check", "hqlt evaluate", "hqlt lm-eval")
JSON_COMMANDS = [
    pytest.param(command, marks=[pytest.mark.slow] if command in SLOW_COMMANDS else []) for command in COMMAND_LINES
]
ANSI = re.compile(r"\x1b|[╭╰│█━⠋]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a prepared corpus and a study of one cell, which is trained."""
    folder = tmp_path_factory.mktemp("json")
    (folder / "study.yaml").write_text(STUDY)
    write_local_datasets(folder / "local", ("piqa",))
    for line in (PREPARE, "train study.yaml"):
        command_output(folder, line)
    return folder


def command_output(folder, line):
    """Run a command; return its standard output and its standard error."""
    with chdir(folder):
        key = next((cell.parent.name for cell in folder.glob("runs/single/*/*/cell.json")), "")
        result = CliRunner().invoke(app, line.replace("KEY", key).split(), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def json_help_by_command():
    """Return the help text of --json of every command that has this option."""
    return {
        name: parameter.help
        for name, command in walk_commands(typer.main.get_command(app), "hqlt")
        for parameter in command.params
        if parameter.name == "as_json"
    }


def test_every_command_with_json_is_tested_here():
    assert set(json_help_by_command()) == set(COMMAND_LINES)


@pytest.mark.parametrize("command", JSON_COMMANDS)
def test_json_is_all_that_is_printed_and_has_the_keys_of_its_help(command, folder):
    stdout, _ = command_output(folder, f"{COMMAND_LINES[command]} --json")
    document = json.loads(stdout, parse_constant=pytest.fail)
    documented_keys = re.findall(r"\w+", json_help_by_command()[command])
    assert isinstance(document, list) == (command.split()[-1] in LIST_COMMANDS and command != "hqlt data check")
    entry = document if isinstance(document, dict) else document[0] if document else {}
    entry = entry["timing"][0] if command == "hqlt list" else entry
    assert set(entry) <= set(documented_keys), "the help of --json lists every key"


@pytest.mark.parametrize("command", JSON_COMMANDS)
def test_output_in_a_pipe_is_plain(command, folder):
    stdout, stderr = command_output(folder, COMMAND_LINES[command])
    assert stdout and not ANSI.search(stdout + stderr)


@pytest.mark.parametrize(
    ("variables", "is_bold", "is_colored"),
    [
        ({}, False, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False, False),
    ],
)
def test_colors_follow_the_environment_variables(variables, is_bold, is_colored):
    script = """
import logging
from hqlt_lab.cli.terminal.console import ColoredHandler, console, stderr_console
from hqlt_lab.log_handler import log_to_stderr
console.print("[bold]x")
with log_to_stderr(logging.INFO, ColoredHandler()):
    logging.getLogger("hqlt_lab.any").warning("y")
with stderr_console.status("z"):
    pass
"""
    plain = {name: value for name, value in os.environ.items() if "COLOR" not in name}
    process = subprocess.run(
        [sys.executable, "-c", script],
        env=plain | {"TERM": "xterm"} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("\x1b[1m" in process.stdout, "\x1b[33m" in process.stderr) == (is_bold, is_colored)
    assert "z" not in process.stderr  # no progress display without a terminal


def test_lines_in_a_pipe_are_not_cropped(folder):
    (line,) = [line for line in command_output(folder, "list timing")[0].splitlines() if "delayed_chunk" in line]
    assert "softmax sees the current chunk up to the token, the fast weights hold all earlier chunks." in line


def test_damaged_data_are_reported_as_json(folder):
    command_output(folder, PREPARE)
    file = next((folder / "data").glob("train*.tokens"))
    contents = file.read_bytes()
    file.write_bytes(contents[:-1] + bytes([contents[-1] ^ 1]))
    with chdir(folder):
        result = CliRunner().invoke(app, ["data", "check", "data", "--json"])
    file.write_bytes(contents)
    assert isinstance(result.exception, PartialFailure)
    assert file.name in json.loads(result.stdout)["damaged"][0]


def test_nan_and_infinity_are_null_in_json():
    assert json.loads(dump_json({"loss": float("nan"), "most": [float("inf"), 1.5]})) == {
        "loss": None,
        "most": [None, 1.5],
    }
