"""What a run leaves for the next one: the command to type, and the study's own file."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hqlt_lab.registry import temporarily
from hqlt_lab.track.provenance import of_source, parts_of
from tests.cli.test_studies import typed
from tests.study.conftest import FAULTY, TINY

OLD = "# what older code has trained, anew"
HERE = ("--workers", "1", "--set", "launcher.retries=0")


def as_a_new_process(*words: str) -> str:
    """Typed where no part was read yet."""
    of_source.cache_clear()
    parts_of.cache_clear()
    with temporarily():
        return typed(*words)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Path]:
    """A folder in which a study with a part of one's own was run."""
    folder = tmp_path_factory.mktemp("next")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "study.yaml").write_text(f"{TINY}arms: {{a: {{}}, mine: {{model.mixer: faulty}}}}\nseeds: 2\n")
        (folder / "part.py").write_text(FAULTY.read_text())
        told = as_a_new_process("--with", "part.py", "run", "study.yaml", "--set", "seeds=1", *HERE)
        (folder / "said.txt").write_text(told)
        yield folder


def test_a_study_does_not_keep_how_this_machine_trained_it(place):
    assert "2 to train, 1 at a time" in (place / "said.txt").read_text()
    kept = yaml.safe_load((place / "runs/studies/study/study.yaml").read_text())
    assert kept["launcher"] == {"workers": 2, "threads": 1} and kept["seeds"] == 1


def test_what_older_code_has_trained_is_trained_anew_by_the_command_that_is_told(place):
    assert OLD not in (place / "said.txt").read_text()
    with (place / "part.py").open("a") as part:
        part.write("# mended\n")
    again = ("--with", "part.py", "run", "study.yaml", "--set", "seeds=1")
    (command,) = re.findall(rf"^ +hqlt (.*?) +{OLD}$", as_a_new_process(*again), re.MULTILINE)
    assert shlex.split(command) == [*again, "--again", "--only", "arm=mine"]
    told = as_a_new_process(*shlex.split(command))
    assert "1 of 2 cells are settled; 1 to train" in told and OLD not in told
