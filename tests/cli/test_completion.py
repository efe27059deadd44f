"""Shell completion, through the protocol of each shell."""

import json
import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from hqlt_lab.cli import main
from hqlt_lab.cli.terminal.completion import join_at_equals
from hqlt_lab.registry import KINDS, available, list_names

HQLT = str(Path(sys.executable).parent / "hqlt")
STUDY = """
question: Which?
task: parity
arms: {plain: {}, other: {model.mixer: sum}}
cross: {model.width: [8, 16]}
tune: {train.lr: [0.1, 0.01]}
seeds: 2
"""
MIXER = 'from hqlt_lab.registry import register\n\n\n@register("mixer", "mine")\nclass Mine: ...\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an experiment file, two cells of it, a component, and a YAML file that is not an experiment."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "below").mkdir()
    (folder / "below/study.yaml").write_text(STUDY)
    (folder / "below/compose.yaml").write_text("services: {}\n")
    (folder / "mine.py").write_text(MIXER)
    for key, seed in (("3f2c91", 0), ("77aa00", 1)):
        cell = folder / "runs/studies/study/cells" / key
        cell.mkdir(parents=True)
        (cell / "cell.json").write_text(json.dumps({"arm": {"name": "plain", "levels": {}}, "seed": seed}))
    (folder / "runs/studies/study/cells.journal").touch()
    return folder


def completion_output(folder, environment):
    process = subprocess.run([HQLT], cwd=folder, env=os.environ | environment, capture_output=True, text=True)
    assert process.stderr == ""
    return process.stdout


@pytest.fixture
def complete_in_bash(folder, monkeypatch, capfd):
    """Complete a line in this process with the protocol of bash, which splits words at =."""

    def complete(line):
        words = line.replace("=", " = ").split()
        current_index = len(words) - (not line.endswith(" "))
        variables = {
            "_HQLT_COMPLETE": "complete_bash",
            "COMP_WORDS": "\n".join(words),
            "COMP_CWORD": str(current_index),
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["hqlt"])
        with chdir(folder), pytest.raises(SystemExit):
            main()
        output = capfd.readouterr()
        assert output.err == ""
        return output.out.split()

    return complete


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("hqlt eval", ["evaluate"]),
        ("hqlt show upd", ["update_rule"]),
        ("hqlt check back", ["backends"]),
        ("hqlt show timing del", ["delayed_chunk", "delayed_stream"]),
        ("hqlt --with mine.py show mixer m", ["mine"]),
        ("hqlt run ", ["below/study.yaml"]),
        ("hqlt logs 3", ["3f2c91"]),
        ("hqlt compare st", ["study"]),
        ("hqlt run below/study.yaml --only arm=o", ["other"]),
        ("hqlt status below/study.yaml --only ar", ["arm=plain", "arm=other"]),
        ("hqlt run below/study.yaml --only arm=other,width=", ["8", "16"]),
        ("hqlt run below/study.yaml --only lr=0.0", ["0.01"]),
        ("hqlt run below/study.yaml --set train.lr_f", ["train.lr_floor=0.0"]),
        ("hqlt run below/study.yaml --set trainer.precision=bf", ["bf16-mixed"]),
        ("hqlt run nowhere.yaml --only ar", []),
        ("hqlt show nothing x", []),
    ],
)
def test_bash_completes_the_line(complete_in_bash, line, completions):
    assert complete_in_bash(line) == completions


def test_zsh_and_fish_get_descriptions(folder):
    variables = {"_HQLT_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "hqlt logs 7"}
    assert '"77aa00":"plain, seed 1"' in completion_output(folder, variables)
    variables = {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_TYPER_COMPLETE_ARGS": "hqlt run below/st"}
    assert completion_output(folder, variables | {"_HQLT_COMPLETE": "complete_fish"}) == "below/study.yaml\tWhich?\n"


def test_words_that_bash_has_split_are_joined():
    assert join_at_equals(["hqlt", "run", "--only", "arm", "=", "sum,seed", "=", "0"]) == [
        "hqlt",
        "run",
        "--only",
        "arm=sum,seed=0",
    ]


def test_names_read_from_files_are_the_registered_names(tmp_path):
    assert {kind: list_names(kind) for kind in KINDS} == {kind: available(kind) for kind in KINDS}
    (tmp_path / "mine.py").write_text(MIXER)
    (tmp_path / "pyproject.toml").write_text('[tool.hqlt_lab]\nwith = ["mine.py"]\n')
    with chdir(tmp_path):
        assert set(list_names("mixer")) - set(available("mixer")) == {"mine"}


def test_completion_does_not_import_heavy_libraries(folder):
    script = """
import os, sys
sys.argv = ["hqlt"]
from hqlt_lab.cli import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
    for line in ("hqlt show mixer s", "hqlt run below/study.yaml --only s"):
        variables = {"_HQLT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        command = [sys.executable, "-c", script]
        process = subprocess.run(command, cwd=folder, env=os.environ | variables, capture_output=True, text=True)
        modules = set(process.stderr.split())
        assert process.stdout and not {"torch", "lightning", "mlflow", "optuna", "transformers"} & modules


def test_completion_script_is_printed_for_bash():
    script = subprocess.run([HQLT], env=os.environ | {"_HQLT_COMPLETE": "source_bash"}, capture_output=True, text=True)
    assert "complete -o default -F _hqlt_completion hqlt" in script.stdout
