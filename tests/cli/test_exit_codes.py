"""Exit codes through the real entry point, and the messages of common user errors."""

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
from hqlt_lab.cli.terminal.exit_codes import ExitCode, run_to_exit_code

HQLT = str(Path(sys.executable).parent / "hqlt")
VALID_STUDY = "question: Does it run?\ntask: parity\n"
FILES = {
    "study.yaml": VALID_STUDY,
    "syntax.yaml": 'question: "Does\ntask: [\n',
    "binary.yaml": "\x00\x01",
    "empty.yaml": "",
    "no_task.yaml": "question: What?\n",
    "seeds.yaml": VALID_STUDY + "seeds: []\n",
    "key.yaml": VALID_STUDY + "model: {widht: 8}\n",
    "component.yaml": VALID_STUDY + "model: {mixer: smu}\n",
    "section.yaml": VALID_STUDY + "arm: {}\n",
    "text.yaml": "question: What?\ntask: {name: language, data: data/mine}\n"
    "measure: {select: valid/loss, direction: minimize}\n",
    "component.py": "a syntax error",
}
ERROR_MESSAGES = {
    "plan stduy.yaml": "stduy.yaml: ",
    "plan folder": "folder: ",
    "plan syntax.yaml": "syntax.yaml, line 1: ",
    "plan binary.yaml": "binary.yaml: ",
    "plan empty.yaml": "empty.yaml: ",
    "plan no_task.yaml": "no_task.yaml: task: ",
    "plan seeds.yaml": ": seeds: ",
    "plan key.yaml": ": model.widht: ",
    "plan component.yaml": ": model.mixer: ",
    "plan section.yaml": ": arm: ",
    "run text.yaml": "there are no prepared data. Prepare them with: hqlt data prepare SOURCE --into data/mine",
    "show mixr sum": "kind: ",
    "list mixer rubbish": "pattern: ",
    "ui": "runs: ",
    "ui study.yaml": "runs: ",
    "ui stduy.yaml": "stduy.yaml: ",
    "logs 3f2c91": "3f2c91",
    "evaluate study.yaml": "study: ",
    "lm-eval study.yaml": "tasks: ",
    "data show nowhere": "nowhere: ",
    "data prepare nowhere.txt --into data": "source: ",
    "run study.yaml --runs study.yaml": "the folder is not writable (Not a directory). Use another folder: --runs",
    # a folder in which not even root may write
    "new mixer mine --into /sys": "/sys/mine.py: ",
    "report study.yaml --save /sys/saved": "/sys/saved: ",
    "schema --into nowhere/schema.json": "nowhere/schema.json: ",
    "--with component.py list": "component.py, line 1: --with: ",
}
OPTION_MESSAGES = {
    "status study.yaml --only rubbish": "--only: ",
    "plan study.yaml --only arm=bse": "--only: ",
    "plan study.yaml --set rubbish": "--set: ",
    "plan study.yaml --set train.lr=[": "--set train.lr=[: ",
    "lm-eval study.yaml --tasks piqa --into nowhere/x.json": "--into: ",
    "report study.yaml --latex --html": "--latex, --html: ",
    "--with nowhere.py list": "--with: ",
    "run study.yaml --only arm=bse": "--only: ",
    "run study.yaml --set train.lr=fast": "--set train.lr: train.lr: ",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("errors")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "folder").mkdir()
    (folder / "folder/inside.yaml").write_text(VALID_STUDY)
    return folder


@pytest.mark.parametrize("line", ERROR_MESSAGES)
def test_user_error_is_a_sentence_with_a_remedy(line, folder, capfd):
    with chdir(folder):
        assert run_to_exit_code(lambda: app(line.split())) == ExitCode.ERROR
    assert ERROR_MESSAGES[line] in capfd.readouterr().err


@pytest.mark.parametrize("line", OPTION_MESSAGES)
def test_invalid_value_of_an_option_exits_with_2_and_prints_nothing_to_stdout(line, folder, capfd):
    with chdir(folder):
        assert run_to_exit_code(lambda: app(line.split())) == ExitCode.USAGE_ERROR
    output = capfd.readouterr()
    assert OPTION_MESSAGES[line] in output.err and output.out == ""


def run_hqlt(folder, *arguments):
    return subprocess.run([HQLT, *arguments], cwd=folder, capture_output=True, text=True)


def test_success_exits_with_0_and_an_error_with_1(folder):
    process = run_hqlt(folder, "--version")
    assert (process.returncode, process.stdout.split()[0], process.stderr) == (ExitCode.SUCCESS, "hqlt_lab", "")
    process = run_hqlt(folder, "plan", "stduy.yaml")
    assert (process.returncode, process.stdout) == (ExitCode.ERROR, "")
    assert process.stderr.startswith(ERROR_MESSAGES["plan stduy.yaml"]) and process.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (("paln",), "hqlt"),
        (("plan",), "hqlt plan"),
        (("plan", "study.yaml", "--bogus"), "hqlt plan"),
        (("run", "x", "--limit", "0"), "hqlt run"),
        (("evaluate", "x", "--tasks", "piqa"), "hqlt evaluate"),
        (("lm-eval", "x", "--long", "2"), "hqlt lm-eval"),
    ],
)
def test_unknown_command_or_option_exits_with_2(arguments, command, folder, capfd):
    with chdir(folder):
        assert run_to_exit_code(lambda: app(list(arguments), prog_name="hqlt")) == ExitCode.USAGE_ERROR
    assert f"Try '{command} --help'" in capfd.readouterr().err


def test_ctrl_c_exits_with_130(folder):
    script = "import sys; from hqlt_lab.cli import main; sys.argv = ['hqlt', 'generate', 'x']; main()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], cwd=folder, preexec_fn=enable_sigint, **pipes) as process:
        wait_until_reading(process.pid)  # until it reads the prompt from standard input
        process.send_signal(signal.SIGINT)
        stderr = process.communicate(timeout=60)[1]
    assert process.returncode == ExitCode.INTERRUPTED
    assert stderr.startswith("Stopped.") and "Traceback" not in stderr


def enable_sigint():
    """Enable SIGINT, which a shell disables for processes in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_until_reading(pid):
    """Wait until the process sleeps in a read from its standard input."""
    for _ in range(600):
        if "pipe" in Path(f"/proc/{pid}/wchan").read_text():
            return
        time.sleep(0.05)
    raise TimeoutError


@pytest.mark.parametrize(
    "arguments", [("--version",), ("--help",), ("list", "launcher"), ("list", "launcher", "--json")]
)
def test_closed_pipe_exits_with_141(arguments, folder):
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = subprocess.run([HQLT, *arguments], cwd=folder, stdout=write_end, stderr=subprocess.PIPE, text=True)
    os.close(write_end)
    assert (process.returncode, process.stderr) == (ExitCode.BROKEN_PIPE, "")


def test_full_disk_is_reported_in_a_sentence(folder):
    with open("/dev/full", "w") as full:
        command = [HQLT, "list", "launcher"]
        process = subprocess.run(command, cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True)
    assert process.returncode == ExitCode.ERROR and process.stderr.startswith("No space left on device.")


def test_report_before_the_first_run_suggests_the_run_command(folder, capfd):
    with chdir(folder):
        assert run_to_exit_code(lambda: app(["report", "study.yaml"])) == ExitCode.SUCCESS
    assert "No cell of this study has been trained. Train it with\n    hqlt run study.yaml" in capfd.readouterr().err


def test_command_restores_the_garbage_collector_threshold(monkeypatch, capsys):
    threshold = gc.get_threshold()
    monkeypatch.setattr(sys, "argv", ["hqlt", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert gc.get_threshold() == threshold and "Usage" in capsys.readouterr().out


@pytest.mark.slow
def test_no_leak_is_reported_if_triton_is_loaded():
    pytest.importorskip("triton")
    script = "import sys, triton; from hqlt_lab.cli import main; sys.argv = ['hqlt', 'list', 'mixer']; main()"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert process.returncode == 0 and "vector" in process.stdout and process.stderr == ""
