"""Files: writes are atomic, and every kind of damage to a JSON file becomes a StoreError that names the file."""

import ast
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from hqlt_lab.errors import StoreError
from hqlt_lab.files import decode_json, read_json, write_atomic

ROOT = Path(__file__).parents[2]
PARSERS = ("json.loads", "json.load", "json.JSONDecoder")
DIRECT_PARSERS = {  # the reader itself, and modules that parse only what the same process has just serialized
    "hqlt_lab/files.py",
    "hqlt_lab/evaluation/lm_eval_tasks.py",
    "hqlt_lab/rundir/cell_file.py",
    "hqlt_lab/track/provenance.py",
}
DAMAGED_CONTENTS = {
    "empty": b"",
    "truncated": b'{"a": 1',
    "zeros": b"\0" * 64,
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "another type": b"[1, 2]",
    "null": b"null",
    "deep lists": b"[" * 100_000,
    "deep mappings": b'{"a":' * 100_000,
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": -Infinity}',
    "number out of range": b'{"a": 1e999}',
}


@pytest.mark.parametrize("content", DAMAGED_CONTENTS.values(), ids=DAMAGED_CONTENTS)
def test_damaged_json_file_raises_a_store_error_that_names_the_file(tmp_path, content):
    file = tmp_path / "settings.json"
    file.write_bytes(content)
    with pytest.raises(StoreError) as error:
        read_json(file, dict, remedy="Ask for a copy.")
    assert str(file) in str(error.value) and str(error.value).endswith("Ask for a copy.")


def test_missing_json_file_raises_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "settings.json", dict)


def test_metrics_may_be_nan_where_the_reader_allows_it(tmp_path):
    file = tmp_path / "metrics.json"
    file.write_text(json.dumps({"loss": math.nan, "norm": math.inf}))
    metrics = read_json(file, dict, allow_nan=True)
    assert math.isnan(metrics["loss"]) and metrics["norm"] == math.inf


def test_intact_json_is_read_as_it_was_written(tmp_path):
    file, content = tmp_path / "settings.json", {"a": [1, 2.5, None, True], "b": {"é": "ü"}}
    file.write_text(json.dumps(content, ensure_ascii=False))
    assert read_json(file, dict) == read_json(str(file), dict) == decode_json(file.read_bytes(), dict) == content


def test_only_listed_modules_parse_json_without_the_reader():
    offenders = set()
    for file in [file for folder in ("hqlt_lab", "registry", "components") for file in (ROOT / folder).rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            is_parser = isinstance(node, ast.Attribute) and ast.unparse(node) in PARSERS
            is_import = isinstance(node, ast.ImportFrom) and node.module == "json"
            if is_parser or is_import:
                offenders.add(file.relative_to(ROOT).as_posix())
    assert offenders == DIRECT_PARSERS


def test_a_file_is_replaced_and_not_written_in_place(tmp_path):
    file = tmp_path / "state.json"
    file.write_text("old")
    with file.open() as reader:
        write_atomic(file, "new")
        assert (reader.read(), file.read_text()) == ("old", "new")
    assert list(tmp_path.iterdir()) == [file]


def test_a_write_that_fails_keeps_the_old_file_and_leaves_no_temporary_one(tmp_path):
    file = tmp_path / "state.json"
    file.write_text("old")
    # a limit on the size of files has the effect of a full disk: a part is written, then comes an error
    script = (
        "import resource; from pathlib import Path; from hqlt_lab.files import write_atomic; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)); write_atomic(Path({str(file)!r}), 'new' * 100)"
    )
    process = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True)
    assert "OSError" in process.stderr
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]
