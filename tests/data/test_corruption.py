"""Corrupt data are detected and named, and the `hqlt data` commands describe the data."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from hqlt_lab.cli.app import app
from hqlt_lab.data.corpus_reader import open_corpus
from hqlt_lab.errors import StoreError


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def invoke_data(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


@pytest.mark.parametrize("name", ["train-00001.tokens", "valid-00000.starts"])
def test_opening_data_with_a_truncated_or_missing_file_is_an_error(copy, name):
    size = (copy / name).stat().st_size
    (copy / name).write_bytes((copy / name).read_bytes()[:-2])
    with pytest.raises(StoreError, match=f"{name}: the file has {size - 2} bytes instead of {size}"):
        open_corpus(copy)
    (copy / name).unlink()
    with pytest.raises(StoreError, match=f"{name}: the file is missing"):
        open_corpus(copy)


def test_check_names_every_damaged_file(copy):
    assert "are correct" in invoke_data("check", copy).output
    for name in ("train-00001.tokens", "test-00000.starts"):
        content = bytearray((copy / name).read_bytes())
        content[3] ^= 1
        (copy / name).write_bytes(content)
    (copy / "valid-00000.tokens").unlink()
    message = str(invoke_data("check", copy).exception)
    assert message.count("the file is damaged") == 2 and "train-00001.tokens: the file is damaged" in message
    assert "test-00000.starts: the file is damaged" in message and "valid-00000.tokens: the file is missing" in message


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda text: text[:-20], "index.json: the file is damaged"),
        (lambda text: "[]", "index.json: the file is damaged"),
        (lambda text: text.replace('"vocabulary": 257', '"vocabulary": 300'), "the file was edited"),
        (
            lambda text: text.replace('"format": 1', '"format": 2'),
            "the file has format 2, but this version of hqlt_lab",
        ),
    ],
)
def test_damaged_index_is_an_error(copy, edit, message):
    file = copy / "index.json"
    file.write_text(edit(file.read_text()))
    with pytest.raises(StoreError, match=message):
        open_corpus(copy)


def test_show_describes_the_data(folder):
    output = invoke_data("show", folder).output
    assert "Document 0:" in output and open_corpus(folder).digest in output and "stories.jsonl" in output
    index = json.loads(invoke_data("show", folder, "--json").output)
    assert index["splits"]["train"]["documents"] == open_corpus(folder).num_documents("train")
    assert index["vocabulary"] == 257 and index["separator"] == 256 and index["versions"]["numpy"]


def test_prepare_reports_skipped_documents_and_empty_splits(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_bytes(b"some text")
    (tmp_path / "texts/b.bin").write_bytes(b"\xff\xff")
    output = invoke_data("prepare", tmp_path / "texts", "--into", tmp_path / "into", "--workers", 1).output
    assert "1 documents that are not UTF-8" in output
    assert "valid and test contain no documents. Hold out more" in output
