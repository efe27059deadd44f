"""Malicious indexes, compressed files and tokenizers are rejected."""

import gzip
import json
import shutil

import pytest

from hqlt_lab.data.corpus_index import CorpusIndex, read_index
from hqlt_lab.data.sources import file_readers
from hqlt_lab.data.tokenizers.load_tokenizer import load_tokenizer
from hqlt_lab.errors import StoreError
from tests.issues import raises_issue


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"files": {"../../etc/passwd": {"size": 1, "sha256": ""}}}, "is a file of another folder"),
        ({"files": {"/dev/zero": {"size": 0, "sha256": ""}}}, "/dev/zero is a file of another folder"),
        ({"dtype": "O"}, "its splits, dtype or shard_tokens are invalid"),
        ({"shard_tokens": 0}, "its splits, dtype or shard_tokens are invalid"),
        ({"shard_tokens": 1, "files": {}}, "shards of train are missing"),
    ],
    ids=str,
)
def test_index_with_foreign_paths_or_inconsistent_fields_is_an_error(change, message, folder, tmp_path, monkeypatch):
    copy = shutil.copytree(folder, tmp_path / "copy")
    index = json.loads((copy / "index.json").read_text()) | change
    monkeypatch.setattr(CorpusIndex, "digest", index["digest"])  # an attacker can compute the digest of a changed index
    (copy / "index.json").write_text(json.dumps(index))
    with pytest.raises(StoreError, match=message):
        read_index(copy)


@pytest.mark.parametrize("name", ["bomb.txt.gz", "bomb.jsonl.gz"])
def test_decompression_bomb_is_an_error(name, tmp_path, monkeypatch):
    monkeypatch.setattr(file_readers, "MAX_DOCUMENT_BYTES", 1 << 20)
    (tmp_path / name).write_bytes(gzip.compress(bytes(1 << 22)))
    with pytest.raises(StoreError, match="the file has a document of more than 1,048,576 bytes"):
        [read_document() for read_document in file_readers.lazy_documents(tmp_path / name, "text")]


def test_code_in_a_tokenizer_folder_is_not_executed(tmp_path):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w')\nclass Evil: pass\n")
    config = {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}))
    with raises_issue("tokenizer", "tokenizer_not_found"):
        load_tokenizer("evil", tmp_path)
    assert not (tmp_path / "PWNED").exists()
