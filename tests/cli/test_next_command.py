"""What a run leaves for later runs: the suggested commands, and the copy of the experiment file in the study."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from hqlt_lab.cli.app import app
from hqlt_lab.cli.commands.plan import show_remaining
from hqlt_lab.cli.terminal.exit_codes import ExitCode
from hqlt_lab.registry import temporary_components
from hqlt_lab.track.provenance import source_hash
from tests.cli.test_study_commands import run_command
from tests.study.conftest import FAULTY, TINY

RETRAIN_COMMENT = "# retrain cells trained with older code"
MACHINE_OPTIONS = ("--workers", "1", "--set", "launcher.retries=0")


def run_as_new_process(*arguments: str) -> str:
    """Run a command with empty caches and no user components, as in a new process."""
    source_hash.cache_clear()
    with temporary_components():
        return run_command(*arguments)


@pytest.fixture(scope="module")
def study_folder(tmp_path_factory) -> Iterator[Path]:
    """The working directory, in which a study with a user component was run."""
    folder = tmp_path_factory.mktemp("next")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "study.yaml").write_text(f"{TINY}arms: {{a: {{}}, mine: {{model.mixer: faulty}}}}\nseeds: 2\n")
        (folder / "component.py").write_text(FAULTY.read_text())
        output = run_as_new_process("--with", "component.py", "run", "study.yaml", "--set", "seeds=1", *MACHINE_OPTIONS)
        (folder / "output.txt").write_text(output)
        yield folder


def test_study_file_does_not_contain_the_machine_options(study_folder):
    assert "2 to train, 1 at a time" in (study_folder / "output.txt").read_text()
    config = yaml.safe_load((study_folder / "runs/studies/study/study.yaml").read_text())
    assert config["launcher"] == {"workers": 2, "threads": 1} and config["seeds"] == 1


def test_suggested_command_retrains_the_cells_of_older_code(study_folder):
    assert RETRAIN_COMMENT not in (study_folder / "output.txt").read_text()
    with (study_folder / "component.py").open("a") as file:
        file.write("# changed\n")
    arguments = ("--with", "component.py", "run", "study.yaml", "--set", "seeds=1")
    (command,) = re.findall(rf"^ +hqlt (.*?) +{RETRAIN_COMMENT}$", run_as_new_process(*arguments), re.MULTILINE)
    assert shlex.split(command) == [*arguments, "--again", "--only", "arm=mine"]
    output = run_as_new_process(*shlex.split(command))
    assert "1 of 2 cells are finished; 1 to train" in output and RETRAIN_COMMENT not in output


def test_run_after_failures_says_so_and_suggests_the_command_that_retries_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = re.sub(r"^launcher: .*$", "launcher: {workers: 1, threads: 1, retries: 0}", TINY, flags=re.MULTILINE)
    arms = "arms: {a: {}, b: {model.mixer: {name: faulty, how: raise}}}\nseeds: 2\n"
    (tmp_path / "study.yaml").write_text(base + arms)
    (tmp_path / "component.py").write_text(FAULTY.read_text())
    arguments = ["--with", "component.py", "run", "study.yaml"]

    def run_with_failures(*arguments):
        with temporary_components():
            result = CliRunner().invoke(app, arguments)
        assert result.exit_code == ExitCode.PARTIAL_FAILURE, result.output
        return result.output

    run_with_failures(*arguments)
    output = run_with_failures(*arguments, "--set", "train.log_every=3")
    assert "4 of 4 cells are finished, 2 failed; nothing is left to train." in output
    (command,) = re.findall(r"^ +hqlt (.*?) +# retry cells that failed or diverged$", output, re.MULTILINE)
    assert shlex.split(command) == [*arguments, "--set", "train.log_every=3", "--again", "--only", "arm=b"]
    assert "2 of 4 cells are finished; 2 to train" in run_with_failures(*shlex.split(command))


def test_plan_says_how_many_settled_cells_failed_or_diverged(capsys):
    show_remaining([("a", "done"), ("a", "done"), ("b", "failed"), ("b", "diverged")], [])
    assert capsys.readouterr().out == ("4 of 4 cells are finished, 1 failed, 1 diverged; nothing is left to train.\n")
