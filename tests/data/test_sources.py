"""Sources: every format yields the same documents from any number on, and skipped documents are counted."""

import gzip
import json
from itertools import islice

import pyarrow
import pytest
from pyarrow import parquet

from hqlt_lab.data.prepare import prepare_data
from hqlt_lab.data.prepare_options import PrepareRequest
from hqlt_lab.data.sources._base import INVALID_JSON
from hqlt_lab.data.sources.file_readers import lazy_documents
from hqlt_lab.data.sources.source_by_name import open_source
from hqlt_lab.errors import StoreError
from tests.data.conftest import TEXTS
from tests.issues import raises_issue

BYTES = [text.encode() for text in TEXTS]


def read_documents(source, first=0, **options):
    return list(open_source(PrepareRequest(source=str(source), **options)).iterate_documents(first))


@pytest.fixture(scope="module")
def json_lines():
    return "".join(json.dumps({"number": number, "text": text}) + "\n" for number, text in enumerate(TEXTS)).encode()


@pytest.fixture(scope="module")
def sources(tmp_path_factory, json_lines):
    """Write one set of documents as JSONL, compressed twice, as Parquet, as a folder of files, and as a dataset."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "a.jsonl").write_bytes(json_lines)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(json_lines))
    with pyarrow.output_stream(str(folder / "c.jsonl.zst"), compression="zstd") as handle:
        handle.write(json_lines)
    parquet.write_table(pyarrow.table({"text": TEXTS}), folder / "d.parquet", row_group_size=50)
    for number, text in enumerate(TEXTS):
        (folder / f"e/{number // 60}").mkdir(parents=True, exist_ok=True)
        (folder / f"e/{number // 60}/{number:03}.txt").write_bytes(text.encode())
    (folder / "f").mkdir()
    (folder / "f/train.jsonl").write_bytes(json_lines)
    return folder


@pytest.mark.parametrize("first", [0, 1, 60, 119, 120])
@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.parquet", "e", "hf:f"])
def test_every_format_yields_the_documents_from_any_number_on(sources, name, first):
    source = f"hf:{sources / name[3:]}" if name.startswith("hf:") else sources / name
    assert read_documents(source, first) == BYTES[first:]


def test_standard_library_can_be_read_as_a_source():
    source = open_source(PrepareRequest(source="python"))
    documents = list(islice(source.iterate_documents(), 3))
    assert documents[0].decode().startswith('"""Record of phased-in incompatible language changes.')
    assert source.description["files"] > 500 and list(islice(source.iterate_documents(2), 1)) == documents[2:]


def test_hidden_files_are_skipped(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("no")
    (tmp_path / "yes.txt").write_text("yes")
    assert read_documents(tmp_path) == [b"yes"]


@pytest.mark.parametrize("line", ["[" * 100_000, '{"text": ' * 100_000, '{"text": "cut', "\0\0"], ids=range(4))
def test_a_line_that_is_not_json_is_skipped_and_counted(tmp_path, line):
    file = tmp_path / "a.jsonl"
    file.write_text(f'\ufeff{{"text": "first"}}\n{line}\n{{"text": "last"}}\n')
    assert [document() for document in lazy_documents(file, "text")] == [b"first", INVALID_JSON, b"last"]


@pytest.mark.parametrize("name", ["b.jsonl.gz", "c.jsonl.zst", "d.parquet"])
def test_truncated_compressed_file_is_an_error(sources, tmp_path, name):
    content = (sources / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(StoreError, match=f"{name}: the file cannot be read; it may be truncated"):
        read_documents(tmp_path / name)


@pytest.mark.parametrize("name", ["a.jsonl", "d.parquet", "f"])
def test_error_for_a_missing_field_lists_the_available_ones(sources, name):
    source = f"hf:{sources / name}" if name == "f" else sources / name
    with raises_issue("text", "unknown_text_field"):
        read_documents(source, text="body")
    if name != "d.parquet":
        with raises_issue("text", "field_is_not_text"):
            read_documents(source, text="number")


def test_missing_file_and_unknown_dataset_are_errors(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with raises_issue("source", "source_not_found"):
        read_documents(tmp_path / "nothing")
    with raises_issue("source", "dataset_not_found"):
        read_documents("nobody/nothing")


def test_unreadable_documents_are_counted_and_the_others_are_kept(tmp_path):
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
    index = prepare_data(PrepareRequest(source=str(tmp_path / "mixed.jsonl")), tmp_path / "into", workers=1)
    assert sum(split.documents for split in index.splits.values()) == 40
    assert index.skipped == {"documents that are not UTF-8": 1, "empty documents": 4, "lines that are not JSON": 2}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b" \n"])
def test_source_without_documents_is_an_error_and_the_folder_stays_usable(tmp_path, content):
    (tmp_path / "a.txt").write_bytes(content)
    with raises_issue("source", "no_documents"):
        prepare_data(PrepareRequest(source=str(tmp_path / "a.txt")), tmp_path / "into", workers=1)
    (tmp_path / "a.txt").write_bytes(b"now there is something")
    request = PrepareRequest(source=str(tmp_path / "a.txt"), valid=0, test=0)
    assert prepare_data(request, tmp_path / "into", workers=1).splits["train"].documents == 1
