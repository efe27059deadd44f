"""--json is one document on standard output and nothing else, with the keys its help names; piped text is plain."""

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
from hqlt_lab.cli.exits import NotAllWell
from hqlt_lab.reference.command_line import verbs
from hqlt_lab.words import in_json

STUDY = """
question: Does it speak?
task: {name: language, data: data, length: 16, eval_size: 2}
model: {width: 8, heads: 1, layers: 1, mlp_width: 8, timing: {name: synchronous, window: 4}, positions: none}
train: {steps: 2, batch_size: 2, valid_every: 2}
trainer: {accelerator: cpu}
launcher: {workers: 1, threads: 1}
seeds: 1
measure: {select: valid/loss, report: [test/loss], direction: minimize}
"""
PREPARE = "data prepare python --into data --limit-documents 20 --valid 0.2 --test 0.2 --workers 1"
LINES = {
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
    "hqlt status": "status study.yaml",
    "hqlt report": "report study.yaml",
    "hqlt logs": "logs KEY",
    "hqlt evaluate": "evaluate KEY",
    "hqlt compare": "compare KEY KEY",
    "hqlt generate": "generate KEY --prompt x --tokens 2",
    "hqlt export": "export KEY exported",
    "hqlt forget": "forget study.yaml --yes",
}
LISTED = {"check", "doctor", "plan", "status", "evaluate", "generate", "forget"}  # an entry per cell, part or prompt
LONG = ("hqlt run", "hqlt check", "hqlt evaluate")  # for the kit and for MLflow
TRIED = [pytest.param(words, marks=[pytest.mark.slow] if words in LONG else []) for words in LINES]
ANSI = re.compile(r"\x1b|[╭╰│█━⠋]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What is typed here finds a prepared text and a study of one cell."""
    made = tmp_path_factory.mktemp("json")
    (made / "study.yaml").write_text(STUDY)
    for line in (PREPARE, "train study.yaml"):
        said_by(made, line)
    return made


def said_by(folder, line):
    """What a command prints to standard output and to standard error."""
    with chdir(folder):
        key = next((cell.parent.name for cell in folder.glob("runs/single/*/*/cell.json")), "")
        done = CliRunner().invoke(app, line.replace("KEY", key).split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def test_every_verb_that_has_json_is_tried_here():
    having = {
        words: next(one.help for one in verb.params if one.name == "as_json")
        for words, verb in verbs(typer.main.get_command(app), "hqlt")
        if any(one.name == "as_json" for one in verb.params)
    }
    assert set(having) == set(LINES)


@pytest.mark.parametrize("words", TRIED)
def test_json_is_all_that_is_printed_and_has_the_keys_it_promises(words, folder):
    told = json.loads(said_by(folder, f"{LINES[words]} --json")[0], parse_constant=pytest.fail)
    verb = dict(verbs(typer.main.get_command(app), "hqlt"))[words]
    promised = re.findall(r"\w+", next(one.help for one in verb.params if one.name == "as_json"))
    assert isinstance(told, list) == (words.split()[-1] in LISTED and words != "hqlt data check")
    entry = told if isinstance(told, dict) else told[0] if told else {}
    entry = entry["timing"][0] if words == "hqlt list" else entry
    assert set(entry) <= set(promised), "the help of --json names every key"


@pytest.mark.parametrize("words", TRIED)
def test_what_is_piped_is_plain(words, folder):
    out, err = said_by(folder, LINES[words])
    assert out and not ANSI.search(out + err)


@pytest.mark.parametrize(
    ("told", "bold", "coloured"),
    [
        ({}, False, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False, False),
    ],
)
def test_colours_follow_the_environment(told, bold, coloured):
    script = "from hqlt_lab.cli.screen import console, aside, warn; console.print('[bold]x'); warn('y')"
    script += "\nwith aside.status('z'): pass"
    plain = {name: value for name, value in os.environ.items() if "COLOR" not in name}
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, env=plain | {"TERM": "xterm"} | told, capture_output=True, text=True, check=True)
    assert ("\x1b[1m" in done.stdout, "\x1b[33m" in done.stdout) == (bold, coloured)
    assert "z" not in done.stderr  # nothing moves where nobody looks


def test_lines_in_a_pipe_are_whole(folder):
    (line,) = [line for line in said_by(folder, "list timing")[0].splitlines() if "delayed_chunk" in line]
    assert "within a chunk softmax sees the chunk so far, the fast weights all chunks before it." in line


def test_damaged_data_are_told_by_json_too(folder):
    said_by(folder, PREPARE)
    file = next((folder / "data").glob("train*.tokens"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with chdir(folder):
        done = CliRunner().invoke(app, ["data", "check", "data", "--json"])
    file.write_bytes(whole)
    assert isinstance(done.exception, NotAllWell)
    assert file.name in json.loads(done.stdout)["damaged"][0]


def test_a_number_that_is_none_is_null():
    assert json.loads(in_json({"loss": float("nan"), "most": [float("inf"), 1.5]})) == {
        "loss": None,
        "most": [None, 1.5],
    }
