"""Log records: plain lines on standard error of `hqlt`, the cell's log in a worker, and nothing on import."""

import ast
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hqlt_lab.cli import move_global_options_first
from hqlt_lab.cli.app import app
from hqlt_lab.cli.terminal.exit_codes import ExitCode, run_to_exit_code
from hqlt_lab.log_handler import log_to_stderr
from hqlt_lab.registry import temporary_components

ROOT = Path(__file__).parents[2]


def test_import_configures_no_logging():
    code = """
import logging, hqlt_lab
logging.getLogger("hqlt_lab.study").warning("unseen")
print([type(handler).__name__ for handler in logging.getLogger("hqlt_lab").handlers], logging.root.handlers)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (process.stdout, process.stderr) == ("['NullHandler'] []\n", "")


@pytest.mark.parametrize(
    ("options", "levels"),
    [((), ["INFO", "WARNING"]), (("-q",), ["WARNING"]), (("-v",), ["DEBUG", "INFO", "WARNING"])],
)
def test_command_line_sets_the_level(options, levels, tmp_path):
    file = tmp_path / "logs.py"
    lines = [f'logger.log(logging.{level}, "{level}")\n' for level in ("DEBUG", "INFO", "WARNING")]
    file.write_text("import logging\nlogger = logging.getLogger('hqlt_lab.mine')\n" + "".join(lines))
    with temporary_components():
        result = CliRunner().invoke(app, [*options, "--with", str(file), "schema"])
    assert result.stderr.split()[: len(levels)] == levels  # then a remark that the file has no component


def test_log_options_are_accepted_behind_the_command():
    assert move_global_options_first(["list", "-q", "--with", "a.py"]) == ["-q", "--with", "a.py", "list"]


def test_records_are_plain_lines_with_secrets_masked(capsys, monkeypatch):
    monkeypatch.setenv("MY_PASSWORD", "hunter2222")
    logger = logging.getLogger("hqlt_lab.any")
    with log_to_stderr(logging.INFO):
        logger.warning("The password is hunter2222, 100 %.")
    logger.warning("unseen")
    error = capsys.readouterr().err
    assert error.startswith("The password is ") and error.count("\n") == 1 and "hunter2222" not in error


def test_final_error_is_a_record_with_secrets_masked_that_quiet_does_not_hide(capsys, monkeypatch):
    monkeypatch.setenv("MY_PASSWORD", "hunter2222")
    assert run_to_exit_code(lambda: app(["-q", "plan", "hunter2222.yaml"], prog_name="hqlt")) == ExitCode.ERROR
    output = capsys.readouterr()
    assert "cannot be read" in output.err and "hunter2222" not in output.err and output.out == ""


def find_calls(file: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield the called function and the keyword arguments of each call in a file, as source text."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in node.keywords}


def test_no_module_prints_to_standard_error():
    files = [file for package in ("hqlt_lab", "registry", "components") for file in (ROOT / package).rglob("*.py")]
    printing = [
        str(file.relative_to(ROOT))
        for file in files
        for function, keywords in find_calls(file)
        if (function == "print" and "file=sys.stderr" in keywords) or function == "stderr_console.print"
    ]
    assert len(files) > 100 and not printing, "log a record instead: `logger.info`, `logger.warning`, `logger.error`"
