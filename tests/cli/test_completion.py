"""What a shell is answered, by the protocol in which it asks."""

import json
import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from hqlt_lab.cli import main
from hqlt_lab.cli.bash import joined
from hqlt_lab.registry import KINDS, available, titles

HQLT = str(Path(sys.executable).parent / "hqlt")
STUDY = """
question: Which?
task: parity
arms: {plain: {}, other: {model.mixer: sum}}
cross: {model.width: [8, 16]}
tune: {train.lr: [0.1, 0.01]}
seeds: 2
"""
RULE = 'from hqlt_lab.registry import register\n\n\n@register("mixer", "mine")\nclass Mine: ...\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An experiment file, two cells of it, a part, and a YAML file that asks nothing."""
    made = tmp_path_factory.mktemp("completion")
    (made / "below").mkdir()
    (made / "below/study.yaml").write_text(STUDY)
    (made / "below/compose.yaml").write_text("services: {}\n")
    (made / "mine.py").write_text(RULE)
    for key, seed in (("3f2c91", 0), ("77aa00", 1)):
        cell = made / "runs/studies/study/cells" / key
        cell.mkdir(parents=True)
        (cell / "cell.json").write_text(json.dumps({"arm": "plain", "seed": seed}))
    (made / "runs/studies/study/cells.journal").touch()
    return made


def asked(folder, told):
    done = subprocess.run([HQLT], cwd=folder, env=os.environ | told, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def bash(folder, monkeypatch, capfd):
    """As bash asks, in this process: words are broken at =, and the last one is being typed."""

    def answers(line):
        words = line.replace("=", " = ").split()
        place = len(words) - (not line.endswith(" "))
        told = {"_HQLT_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(place)}
        for name, value in told.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["hqlt"])
        with chdir(folder), pytest.raises(SystemExit):
            main()
        printed = capfd.readouterr()
        assert printed.err == ""
        return printed.out.split()

    return answers


@pytest.mark.parametrize(
    ("line", "answers"),
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
def test_bash_is_answered(bash, line, answers):
    assert bash(line) == answers


def test_zsh_and_fish_are_told_what_things_are(folder):
    told = {"_HQLT_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "hqlt logs 7"}
    assert '"77aa00":"plain, seed 1"' in asked(folder, told)
    told = {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_TYPER_COMPLETE_ARGS": "hqlt run below/st"}
    assert asked(folder, told | {"_HQLT_COMPLETE": "complete_fish"}) == "below/study.yaml\tWhich?\n"


def test_words_that_bash_breaks_are_put_together():
    assert joined(["hqlt", "run", "--only", "arm", "=", "sum,seed", "=", "0"]) == [
        "hqlt",
        "run",
        "--only",
        "arm=sum,seed=0",
    ]


def test_the_shelves_say_what_the_registry_knows(tmp_path):
    assert {kind: titles(kind) for kind in KINDS} == {kind: available(kind) for kind in KINDS}
    (tmp_path / "mine.py").write_text(RULE)
    (tmp_path / "pyproject.toml").write_text('[tool.hqlt_lab]\nwith = ["mine.py"]\n')
    with chdir(tmp_path):
        assert set(titles("mixer")) - set(available("mixer")) == {"mine"}


def test_an_answer_loads_nothing_heavy(folder):
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
        told = {"_HQLT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        words = [sys.executable, "-c", script]
        done = subprocess.run(words, cwd=folder, env=os.environ | told, capture_output=True, text=True)
        assert done.stdout and not {"torch", "lightning", "mlflow", "optuna", "transformers"} & set(done.stderr.split())


def test_a_shell_can_be_taught():
    script = subprocess.run([HQLT], env=os.environ | {"_HQLT_COMPLETE": "source_bash"}, capture_output=True, text=True)
    assert "complete -o default -F _hqlt_completion hqlt" in script.stdout
