"""Preparing data gives identical bytes for any number of workers and interruptions, and changes no other files."""

import fcntl
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hqlt_lab.data.corpus_reader import open_corpus
from hqlt_lab.data.pipeline.chunks import assign_split
from hqlt_lab.data.pipeline.folder_lock import claim_folder
from hqlt_lab.data.prepare import prepare_data
from hqlt_lab.data.prepare_options import PrepareRequest
from hqlt_lab.errors import ConfigError, StoreError
from tests.data.conftest import TEXTS
from tests.issues import raises_issue

HQLT = str(Path(sys.executable).parent / "hqlt")
PREPARE_PYTHON = ("data", "prepare", "python", "--valid", "0.05", "--test", "0.05", "--shard-tokens", "3000000")
# files whose appearance marks the moment of a kill, in the order in which they are created
KILL_MOMENTS = (
    "prepare.lock",
    "work/request.json",
    "tokenizer",
    "work/0000000.*",
    "work/*.chunk",
    "work/0000002.chunk",
    "work/chunk_stats.json",
    "test-00000.starts*",
    "train-00000.tokens.writing",
    "train-00001.tokens",
    "index.json*",
)


def read_files(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def start_prepare(folder, workers=2):
    command = [HQLT, *PREPARE_PYTHON, "--into", str(folder), "--workers", str(workers)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_prepare_at(folder, moment):
    """Kill -9 the parent process when a file appears, and return its workers, which must exit by themselves."""
    process = start_prepare(folder)
    workers = []
    while process.poll() is None and not list(folder.glob(moment)):
        time.sleep(0.0005)
    if process.poll() is None:
        workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return workers


@pytest.fixture(scope="module")
def uninterrupted_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted") / "python"
    assert start_prepare(folder, workers=1).wait() == 0
    return read_files(folder)


def test_prepared_folder_has_several_shards_and_no_work_files(uninterrupted_files):
    names = set(uninterrupted_files)
    assert {
        "index.json",
        "train-00003.tokens",
        "train-00003.starts",
        "valid-00000.tokens",
        "test-00000.tokens",
    } <= names
    assert len(uninterrupted_files["train-00000.tokens"]) == 6_000_000
    assert not any(name.startswith("work") for name in names)


def test_files_are_identical_after_a_kill_at_every_moment(uninterrupted_files, tmp_path):
    folder = tmp_path / "python"
    orphans = [worker for moment in KILL_MOMENTS for worker in kill_prepare_at(folder, moment)]
    assert orphans, "no kill came while workers were tokenizing"
    assert start_prepare(folder, workers=3).wait() == 0
    assert read_files(folder) == uninterrupted_files
    assert psutil.wait_procs(orphans, timeout=10)[1] == [], "workers outlive their parent process"


@pytest.mark.slow
@pytest.mark.parametrize("moment", KILL_MOMENTS)
def test_files_are_identical_after_one_kill(uninterrupted_files, tmp_path, moment):
    kill_prepare_at(tmp_path / "python", moment)
    assert start_prepare(tmp_path / "python").wait() == 0
    assert read_files(tmp_path / "python") == uninterrupted_files


class InterruptionError(Exception):
    pass


@pytest.fixture
def interrupted(tmp_path):
    """A request for three documents of one chunk each, interrupted after the first chunk, and its folder."""
    (tmp_path / "texts").mkdir()
    for number in range(3):
        (tmp_path / f"texts/{number}.txt").write_bytes(b"%d" % number * 4_000_000)
    request = PrepareRequest(source=str(tmp_path / "texts"), valid=0, test=0)

    def interrupt_after_first_chunk(step, stats):
        if stats:
            raise InterruptionError

    with pytest.raises(InterruptionError):
        prepare_data(request, tmp_path / "into", 1, interrupt_after_first_chunk)
    return request, tmp_path / "into"


def test_finished_chunks_are_not_tokenized_again(interrupted):
    request, folder = interrupted
    assert (folder / "work/0000000.chunk").exists()
    (Path(request.source) / "0.txt").write_bytes(b"x" * 4_000_000)  # would change the tokens if it were read again
    prepare_data(request, folder, 1)
    assert (folder / "train-00000.tokens").read_bytes()[2:6] == b"0\x000\x00"


def test_truncated_chunk_is_tokenized_again(interrupted):
    request, folder = interrupted
    file = folder / "work/0000000.chunk"
    file.write_bytes(file.read_bytes()[:1000])
    index = prepare_data(request, folder, 1)
    assert index.splits["train"] == (3, 12_000_003, 12_000_000)


def test_resuming_with_a_changed_source_is_an_error(interrupted):
    request, folder = interrupted
    (Path(request.source) / "3.txt").write_text("one more")
    with pytest.raises(
        StoreError, match=r"the folder contains other data. files was 3, and is now 4. bytes was 12000000, and is now"
    ):
        prepare_data(request, folder, 1)


def test_resuming_with_other_options_is_an_error_that_names_them(folder, stories):
    request = PrepareRequest(source=str(stories), tokenizer="bpe", valid=0.2, test=0.1, shard_tokens=100)
    before = read_files(folder)
    with pytest.raises(StoreError, match=r"tokenizer was bytes, and is now bpe. vocabulary was None, and is now 4096."):
        prepare_data(request, folder, 1)
    assert read_files(folder) == before


def test_documents_that_differ_in_white_space_only_are_in_one_split():
    for text in TEXTS:
        for changed in (text.replace(" ", "\n  "), f"\t{text}\u00a0\n", text.replace(" ", "")):
            assert assign_split(changed.encode(), 0.3, 0.3) == assign_split(text.encode(), 0.3, 0.3)
    assert len({assign_split(text.encode(), 0.3, 0.3) for text in TEXTS}) == 3


def test_the_index_records_the_rule_of_the_split_and_another_rule_is_not_resumed(stories, tmp_path):
    request = PrepareRequest(source=str(stories), valid=0.2, test=0.1)
    prepare_data(request, tmp_path / "data", 1)
    file = tmp_path / "data" / "index.json"
    index = json.loads(file.read_text())
    assert index["options"].pop("split_by") == "text without white space"
    file.write_text(json.dumps(index))  # as an earlier version wrote it
    assert open_corpus(tmp_path / "data").digest == index["digest"]
    with pytest.raises(StoreError):
        prepare_data(request, tmp_path / "data", 1)


def test_repeating_a_finished_request_changes_nothing(folder, stories):
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    request = PrepareRequest(source=str(stories), valid=0.2, test=0.1, shard_tokens=100)
    assert prepare_data(request, folder, 1).digest == json.loads((folder / "index.json").read_text())["digest"]
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_second_process_in_the_same_folder_is_an_error(folder, stories):
    with (folder / "prepare.lock").open() as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another `hqlt data prepare` is writing to this folder"):
            prepare_data(PrepareRequest(source=str(stories)), folder, 1)


def test_all_invalid_settings_are_reported_together():
    with pytest.raises(ConfigError) as error:
        PrepareRequest(source="python", valid=-0.1, test=1.2, limit_documents=0, shard_tokens=0)
    paths = [(issue.path, *issue.other_paths) for issue in error.value.issues]
    assert paths == [("valid",), ("valid", "test"), ("limit_documents",), ("shard_tokens",)]


def test_split_of_a_document_does_not_depend_on_other_documents(folder, stories, tmp_path):
    texts = stories.read_text().splitlines(keepends=True)
    (tmp_path / "fewer.jsonl").write_text("".join(texts[::2]))
    request = PrepareRequest(source=str(tmp_path / "fewer.jsonl"), valid=0.2, test=0.1)
    prepare_data(request, tmp_path / "into", 1)
    for split in ("valid", "test"):
        few, all_documents = (read_documents(data, split) for data in (tmp_path / "into", folder))
        assert few and few < all_documents


def read_documents(folder, split):
    shards = [file.read_bytes() for file in sorted(folder.glob(f"{split}-*.tokens"))]
    return set(b"".join(shards)[2:].split(b"\x00\x01"))


def test_folder_with_foreign_files_is_not_changed(stories, tmp_path):
    for name in ("work", "tokenizer"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"contains other files \(tokenizer.* work\)"):
        prepare_data(PrepareRequest(source=str(stories)), tmp_path, workers=1)
    assert (tmp_path / "work/thesis.txt").read_text() == (tmp_path / "tokenizer/thesis.txt").read_text() == "mine"


def test_preparing_works_after_a_kill_before_the_request_was_saved(stories, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "prepare.lock").touch()
    assert prepare_data(PrepareRequest(source=str(stories)), tmp_path, workers=1).splits["train"].documents


def test_preparing_inside_the_source_folder_is_an_error(tmp_path):
    (tmp_path / "one.txt").write_text("text")
    with pytest.raises(StoreError, match="inside the source"):
        prepare_data(PrepareRequest(source=str(tmp_path)), tmp_path / "tokens", workers=1)


def test_nan_share_is_an_error():
    with raises_issue("valid", "out_of_range"):
        PrepareRequest(source="python", valid=float("nan"))


def test_temporary_looking_file_in_a_foreign_folder_is_not_removed(stories, tmp_path):
    (tmp_path / "novel.writing").write_text("chapter one")
    with pytest.raises(StoreError, match=r"contains other files \(novel.writing\)"):
        prepare_data(PrepareRequest(source=str(stories)), tmp_path, workers=1)
    assert (tmp_path / "novel.writing").read_text() == "chapter one"


def test_half_written_request_is_replaced(stories, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work/request.json.7.writing").write_text("{")
    claim_folder(tmp_path, {"kind": "files", "path": str(stories)}, {})
    assert [file.name for file in (tmp_path / "work").iterdir()] == ["request.json"]
