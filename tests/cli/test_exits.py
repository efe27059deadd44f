"""How commands end: every exit code through the real entry point, and twenty mistakes of a first hour."""

import gc
import os
import signal
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path

import pytest

from hqlt_lab.cli import main
from hqlt_lab.cli.app import app
from hqlt_lab.cli.exits import Exit, ending

HQLT = str(Path(sys.executable).parent / "hqlt")
GOOD = "question: Does it run?\ntask: parity\n"
FILES = {
    "study.yaml": GOOD,
    "syntax.yaml": 'question: "Does\ntask: [\n',
    "binary.yaml": "\x00\x01",
    "empty.yaml": "",
    "no_task.yaml": "question: What?\n",
    "seeds.yaml": GOOD + "seeds: []\n",
    "key.yaml": GOOD + "model: {widht: 8}\n",
    "part.yaml": GOOD + "model: {mixer: smu}\n",
    "section.yaml": GOOD + "arm: {}\n",
    "text.yaml": "question: What?\ntask: {name: language, data: data/mine}\n"
    "measure: {select: valid/loss, direction: minimize}\n",
    "part.py": "this is no Python",
}
MISTAKES = {
    "plan stduy.yaml": "stduy.yaml: cannot be read (No such file or directory). Did you mean 'study.yaml'?",
    "plan folder": "folder: cannot be read (Is a directory). It is a folder; the files in it: folder/inside.yaml.",
    "plan syntax.yaml": 'syntax.yaml, line 1: the quote " is not closed.',
    "plan binary.yaml": "binary.yaml: is not YAML:",
    "plan empty.yaml": "empty.yaml: is empty. An experiment begins with its question and its task",
    "plan no_task.yaml": "task: what is learned? Name a task, such as {name: parity}.",
    "plan seeds.yaml": "seeds: a number of seeds or a list of them is needed, got [].",
    "plan key.yaml": "model.widht: there is no such setting. Did you mean 'width'?",
    "plan part.yaml": "mixer: no mixer is called 'smu'. Did you mean 'sum'?",
    "plan section.yaml": "arm: there is no such section. Did you mean 'arms'?",
    "run text.yaml": "there are no prepared data. Make some with: hqlt data prepare SOURCE --into data/mine",
    "status study.yaml --only rubbish": "--only rubbish: a choice is given as name=value, such as arm=NAME or seed=0.",
    "plan study.yaml --only arm=bse": "--only arm=bse: there is no such value. Did you mean 'base'?",
    "plan study.yaml --set rubbish": "--set rubbish: a setting is given as path=value, such as train.lr=0.001.",
    "plan study.yaml --set train.lr=[": "--set train.lr=[: '[': cannot be read as a value",
    "show mixr sum": "No kind of part is called 'mixr'. Did you mean 'mixer'?",
    "list mixer rubbish": "Nothing is called 'rubbish'. `hqlt list` shows everything.",
    "ui": "runs: there are no runs to look at. Begin with: hqlt run FILE",
    "ui study.yaml": "runs: there are no runs to look at. Begin with: hqlt run study.yaml",
    "ui stduy.yaml": "stduy.yaml: cannot be read (No such file or directory). Did you mean 'study.yaml'?",
    "logs 3f2c91": "3f2c91: one cell is needed, by its folder, its key or its MLflow run; under runs there is none.",
    "evaluate study.yaml": "study: none of these cells is trained under runs. Train them with `hqlt run`.",
    "data show nowhere": "nowhere: there are no prepared data.",
    "data prepare nowhere.txt --into data": "nowhere.txt: there is no such file or folder.",
    "run study.yaml --runs study.yaml": "nothing can be written here (Not a directory). Name another folder: --runs",
    # there not even root may write
    "new mixer mine --into /sys": "/sys/mine.py: Permission denied. Name a place that is open to you: --runs, --into",
    "report study.yaml --save /sys/saved": "/sys/saved: Operation not permitted. Name a place that is open to you",
    "schema --into nowhere/schema.json": "nowhere/schema.json: No such file or directory.",
    "report study.yaml --latex --html": "--latex --html: one form at a time is printed; --save FOLDER writes all",
    "--with nowhere.py list": "--with nowhere.py: there is no such file.",
    "--with part.py list": "part.py: it cannot be run (SyntaxError: invalid syntax, line 1).",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("mistakes")
    for name, text in FILES.items():
        (made / name).write_text(text)
    (made / "folder").mkdir()
    (made / "folder/inside.yaml").write_text(GOOD)
    return made


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_a_sentence_that_says_what_to_do(line, folder, capfd):
    with chdir(folder):
        assert ending(lambda: app(line.split())) == Exit.MISTAKE
    assert MISTAKES[line] in capfd.readouterr().err


def hqlt(folder, *words):
    return subprocess.run([HQLT, *words], cwd=folder, capture_output=True, text=True)


def test_done_is_0_and_a_mistake_is_1(folder):
    told = hqlt(folder, "--version")
    assert (told.returncode, told.stdout.split()[0], told.stderr) == (Exit.DONE, "hqlt_lab", "")
    told = hqlt(folder, "plan", "stduy.yaml")
    assert (told.returncode, told.stdout) == (Exit.MISTAKE, "") and told.stderr == MISTAKES["plan stduy.yaml"] + "\n"


@pytest.mark.parametrize(
    "words", [("paln",), ("plan",), ("plan", "study.yaml", "--bogus"), ("run", "x", "--limit", "0")]
)
def test_a_verb_or_option_that_there_is_not_is_2(words, folder, capfd):
    with chdir(folder):
        assert ending(lambda: app(list(words), prog_name="hqlt")) == Exit.USAGE
    assert f"Try 'hqlt{' ' + words[0] if words[1:] or words == ('plan',) else ''} --help'" in capfd.readouterr().err


def test_ctrl_c_is_130(folder):
    script = "import sys; from hqlt_lab.cli import main; sys.argv = ['hqlt', 'generate', 'x']; main()"
    held = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], cwd=folder, preexec_fn=hear_ctrl_c, **held) as process:
        wait_until_it_reads(process.pid)  # it waits for a prompt
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == Exit.STOPPED and said.startswith("Stopped.") and "Traceback" not in said


def hear_ctrl_c():
    """Also where the tests run in the background, whose shell lets nothing of it hear Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_until_it_reads(pid):
    """Until the process sleeps in a read of its standard input."""
    for _ in range(600):
        if "pipe" in Path(f"/proc/{pid}/wchan").read_text():
            return
        time.sleep(0.05)
    raise TimeoutError


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("list", "launcher"), ("list", "launcher", "--json")])
def test_a_reader_that_stops_reading_is_141(words, folder):
    reads, writes = os.pipe()
    os.close(reads)
    told = subprocess.run([HQLT, *words], cwd=folder, stdout=writes, stderr=subprocess.PIPE, text=True)
    os.close(writes)
    assert (told.returncode, told.stderr) == (Exit.UNREAD, "")


def test_a_full_disk_is_a_sentence(folder):
    with open("/dev/full", "w") as full:
        told = subprocess.run([HQLT, "list", "launcher"], cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True)
    assert told.returncode == Exit.MISTAKE and told.stderr.startswith("No space left on device.")


def test_a_report_before_the_first_run_says_how_to_begin(folder, capfd):
    with chdir(folder):
        assert ending(lambda: app(["report", "study.yaml"])) == Exit.DONE
    assert "Nothing of it was trained yet. Begin with\n    hqlt run study.yaml" in capfd.readouterr().err


def test_a_command_leaves_the_collector_as_it_found_it(monkeypatch, capsys):
    usual = gc.get_threshold()
    monkeypatch.setattr(sys, "argv", ["hqlt", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert gc.get_threshold() == usual and "Usage" in capsys.readouterr().out


@pytest.mark.slow
def test_nothing_is_called_a_leak_where_triton_is_loaded():
    pytest.importorskip("triton")
    script = "import sys, triton; from hqlt_lab.cli import main; sys.argv = ['hqlt', 'list', 'mixer']; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and "vector" in done.stdout and done.stderr == ""
