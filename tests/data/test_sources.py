"""Sources: every format gives the same documents, from any number on, and says what it leaves out."""

import gzip
import json
from itertools import islice

import pyarrow
import pytest
from pyarrow import parquet

from hqlt_lab.data.prepare import prepare
from hqlt_lab.data.request import Request
from hqlt_lab.data.sources.choose import open_source
from hqlt_lab.errors import ConfigError, StoreError
from tests.data.conftest import TEXTS

BYTES = [text.encode() for text in TEXTS]


def found(source, first=0, **words):
    return list(open_source(Request(source=str(source), **words)).documents(first))


@pytest.fixture(scope="module")
def lines():
    return "".join(json.dumps({"number": number, "text": text}) + "\n" for number, text in enumerate(TEXTS)).encode()


@pytest.fixture(scope="module")
def sources(tmp_path_factory, lines):
    """The same documents as JSON lines, packed in two ways, as Parquet, as a folder of files, and as a dataset."""
    home = tmp_path_factory.mktemp("sources")
    (home / "a.jsonl").write_bytes(lines)
    (home / "b.jsonl.gz").write_bytes(gzip.compress(lines))
    with pyarrow.output_stream(str(home / "c.jsonl.zst"), compression="zstd") as handle:
        handle.write(lines)
    parquet.write_table(pyarrow.table({"text": TEXTS}), home / "d.parquet", row_group_size=50)
    for number, text in enumerate(TEXTS):
        (home / f"e/{number // 60}").mkdir(parents=True, exist_ok=True)
        (home / f"e/{number // 60}/{number:03}.txt").write_bytes(text.encode())
    (home / "f").mkdir()
    (home / "f/train.jsonl").write_bytes(lines)
    return home


@pytest.mark.parametrize("first", [0, 1, 60, 119, 120])
@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.parquet", "e", "hf:f"])
def test_every_format_gives_the_documents_from_any_number_on(sources, name, first):
    place = f"hf:{sources / name[3:]}" if name.startswith("hf:") else sources / name
    assert found(place, first) == BYTES[first:]


def test_the_standard_library_is_always_there():
    source = open_source(Request(source="python"))
    first = list(islice(source.documents(), 3))
    assert first[0].decode().startswith('"""Record of phased-in incompatible language changes.')
    assert source.description["files"] > 500 and list(islice(source.documents(2), 1)) == first[2:]


def test_hidden_files_are_left_out(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("no")
    (tmp_path / "yes.txt").write_text("yes")
    assert found(tmp_path) == [b"yes"]


@pytest.mark.parametrize("name", ["b.jsonl.gz", "c.jsonl.zst", "d.parquet"])
def test_a_file_that_is_cut_off_is_an_error_and_no_shorter_file(sources, tmp_path, name):
    packed = (sources / name).read_bytes()
    (tmp_path / name).write_bytes(packed[: len(packed) // 2])
    with pytest.raises(StoreError, match=f"{name}: it cannot be read, it may be cut off"):
        found(tmp_path / name)


@pytest.mark.parametrize("name", ["a.jsonl", "d.parquet", "f"])
def test_a_field_that_is_not_there_is_named_with_those_that_are(sources, name):
    place = f"hf:{sources / name}" if name == "f" else sources / name
    with pytest.raises(ConfigError, match=r"there is no (field|column) 'body'. (Fields|Columns): .*text"):
        found(place, text="body")
    if name != "d.parquet":
        with pytest.raises(ConfigError, match=r"this is no text, but 0. Choose another with --text"):
            found(place, text="number")


def test_a_source_that_is_nowhere_says_what_there_is(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"there is no such file or folder"):
        found(tmp_path / "nothing")
    with pytest.raises(ConfigError, match=r"nobody/nothing: it is no file or folder here, and the dataset cannot be"):
        found("nobody/nothing")


def test_what_cannot_be_read_is_counted_and_everything_else_is_kept(tmp_path):
    good = [json.dumps({"text": f"good {number}"}).encode() for number in range(40)]
    bad = [
        b"{half",
        b"",
        b'{"text": ""}',
        b'{"text": null}',
        b'{"text": " \\n"}',
        b'{"text": "\\ud800"}',
        b'{"text": "\xff"}',
    ]
    (tmp_path / "mixed.jsonl").write_bytes(b"\n".join([*good[:20], *bad, *good[20:]]))
    index = prepare(Request(source=str(tmp_path / "mixed.jsonl")), tmp_path / "into", workers=1)
    assert sum(split.documents for split in index.splits.values()) == 40
    assert index.skipped == {"documents that are not UTF-8": 1, "empty documents": 4, "lines that are no JSON": 2}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b" \n"])
def test_a_source_without_a_document_is_an_error_and_leaves_the_folder_free(tmp_path, content):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ConfigError, match=r"no document is left to train on. Documents that were read: 1. Left out: 1"):
        prepare(Request(source=str(tmp_path / "a.txt")), tmp_path / "into", workers=1)
    (tmp_path / "a.txt").write_bytes(b"now there is something")
    request = Request(source=str(tmp_path / "a.txt"), valid=0, test=0)
    assert prepare(request, tmp_path / "into", workers=1).splits["train"].documents == 1
