"""Damage is found and named; the verbs say what is there."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from hqlt_lab.cli.app import app
from hqlt_lab.data.corpus import open_corpus
from hqlt_lab.errors import StoreError


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def typed(*words):
    return CliRunner().invoke(app, ["data", *map(str, words)])


@pytest.mark.parametrize("name", ["train-00001.tokens", "valid-00000.starts"])
def test_a_file_that_is_cut_off_or_gone_is_refused_when_the_data_are_opened(copy, name):
    size = (copy / name).stat().st_size
    (copy / name).write_bytes((copy / name).read_bytes()[:-2])
    with pytest.raises(StoreError, match=f"{name}: it has {size - 2} bytes, and was written with {size}"):
        open_corpus(copy)
    (copy / name).unlink()
    with pytest.raises(StoreError, match=f"{name}: the file is missing"):
        open_corpus(copy)


def test_check_names_every_file_that_is_damaged(copy):
    assert "are as they were written" in typed("check", copy).output
    for name in ("train-00001.tokens", "test-00000.starts"):
        content = bytearray((copy / name).read_bytes())
        content[3] ^= 1
        (copy / name).write_bytes(content)
    (copy / "valid-00000.tokens").unlink()
    told = str(typed("check", copy).exception)
    assert told.count("it is damaged") == 2 and "train-00001.tokens: it is damaged" in told
    assert "test-00000.starts: it is damaged" in told and "valid-00000.tokens: the file is missing" in told


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda told: told[:-20], "index.json: it is damaged"),
        (lambda told: "[]", "index.json: it is damaged"),
        (lambda told: told.replace('"vocabulary": 257', '"vocabulary": 300'), "it was changed by hand"),
        (lambda told: told.replace('"format": 1', '"format": 2'), "this is format 2, and this version of the lab"),
    ],
)
def test_an_index_that_is_damaged_is_refused(copy, change, words):
    file = copy / "index.json"
    file.write_text(change(file.read_text()))
    with pytest.raises(StoreError, match=words):
        open_corpus(copy)


def test_show_says_what_there_is(folder):
    told = typed("show", folder).output
    assert "Document 0:" in told and open_corpus(folder).digest in told and "stories.jsonl" in told
    told = json.loads(typed("show", folder, "--json").output)
    assert told["splits"]["train"]["documents"] == open_corpus(folder).documents("train")
    assert told["vocabulary"] == 257 and told["separator"] == 256 and told["versions"]["numpy"]


def test_prepare_says_what_was_left_out_and_what_is_empty(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_bytes(b"some text")
    (tmp_path / "texts/b.bin").write_bytes(b"\xff\xff")
    told = typed("prepare", tmp_path / "texts", "--into", tmp_path / "into", "--workers", 1).output
    assert "1 documents that are not UTF-8" in told
    assert "valid and test: so few documents need a larger share" in told
