"""Prepared data and texts from somebody who means ill."""

import gzip
import json
import shutil

import pytest

from hqlt_lab.data.encoders.choose import load_encoder
from hqlt_lab.data.index import Index, read_index
from hqlt_lab.data.sources import readers
from hqlt_lab.errors import ConfigError, StoreError


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"files": {"../../etc/passwd": {"size": 1, "sha256": ""}}}, "is a file of another folder"),
        ({"files": {"/dev/zero": {"size": 0, "sha256": ""}}}, "/dev/zero is a file of another folder"),
        ({"dtype": "O"}, "its splits, dtype or shard_tokens are none"),
        ({"shard_tokens": 0}, "its splits, dtype or shard_tokens are none"),
        ({"shard_tokens": 1, "files": {}}, "shards of train are missing"),
    ],
    ids=str,
)
def test_an_index_names_files_of_its_own_folder(change, says, folder, tmp_path, monkeypatch):
    there = shutil.copytree(folder, tmp_path / "there")
    told = json.loads((there / "index.json").read_text()) | change
    monkeypatch.setattr(Index, "digest", told["digest"])  # whoever changes an index can compute its digest
    (there / "index.json").write_text(json.dumps(told))
    with pytest.raises(StoreError, match=says):
        read_index(there)


@pytest.mark.parametrize("name", ["bomb.txt.gz", "bomb.jsonl.gz"])
def test_a_packed_file_that_unpacks_without_end_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "LARGEST", 1 << 20)
    (tmp_path / name).write_bytes(gzip.compress(bytes(1 << 22)))
    with pytest.raises(StoreError, match="a document of it has more than 1,048,576 bytes"):
        [promise() for promise in readers.promises(tmp_path / name, "text")]


def test_a_tokenizer_s_own_code_is_not_run(tmp_path):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w')\nclass Evil: pass\n")
    told = {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(told))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}))
    with pytest.raises(ConfigError, match="it is no folder with a tokenizer"):
        load_encoder("evil", tmp_path)
    assert not (tmp_path / "PWNED").exists()
