"""Preparing: the same bytes whoever made them, however often they were interrupted; and nothing else is touched."""

import fcntl
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hqlt_lab.data.claim import begin
from hqlt_lab.data.prepare import prepare
from hqlt_lab.data.request import Request
from hqlt_lab.errors import ConfigError, StoreError

HQLT = str(Path(sys.executable).parent / "hqlt")
PYTHON = ("data", "prepare", "python", "--valid", "0.05", "--test", "0.05", "--shard-tokens", "3000000")
# seen from outside, in the order in which they come to be
MOMENTS = (
    "prepare.lock",
    "work/request.json",
    "tokenizer",
    "work/0000000.*",
    "work/*.piece",
    "work/0000002.piece",
    "work/tallies.json",
    "test-00000.starts*",
    "train-00000.tokens.writing",
    "train-00001.tokens",
    "index.json*",
)


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def begun(folder, workers=2):
    words = [HQLT, *PYTHON, "--into", str(folder), "--workers", str(workers)]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_at(folder, moment):
    """Kill -9 when a file is seen; the processes that tokenise are left to find out."""
    process = begun(folder)
    crew = []
    while process.poll() is None and not list(folder.glob(moment)):
        time.sleep(0.0005)
    if process.poll() is None:
        crew = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return crew


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "python"
    assert begun(folder, workers=1).wait() == 0
    return contents(folder)


def test_the_result_has_several_shards_of_every_kind(undisturbed):
    names = set(undisturbed)
    assert {
        "index.json",
        "train-00003.tokens",
        "train-00003.starts",
        "valid-00000.tokens",
        "test-00000.tokens",
    } <= names
    assert len(undisturbed["train-00000.tokens"]) == 6_000_000
    assert not any(name.startswith("work") for name in names)


def test_after_a_kill_at_every_moment_the_bytes_are_the_same(undisturbed, tmp_path):
    folder = tmp_path / "python"
    crews = [one for moment in MOMENTS for one in kill_at(folder, moment)]
    assert crews, "no kill came while processes were tokenising"
    assert begun(folder, workers=3).wait() == 0
    assert contents(folder) == undisturbed
    assert psutil.wait_procs(crews, timeout=10)[1] == [], "the crew outlives the one who started it"


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_after_one_kill_the_bytes_are_the_same(undisturbed, tmp_path, moment):
    kill_at(tmp_path / "python", moment)
    assert begun(tmp_path / "python").wait() == 0
    assert contents(tmp_path / "python") == undisturbed


class Stop(Exception):
    pass


@pytest.fixture
def stopped(tmp_path):
    """Three documents of a piece each, of which the first is done."""
    (tmp_path / "texts").mkdir()
    for number in range(3):
        (tmp_path / f"texts/{number}.txt").write_bytes(b"%d" % number * 4_000_000)
    request = Request(source=str(tmp_path / "texts"), valid=0, test=0)

    def stop(doing, tally):
        if tally:
            raise Stop

    with pytest.raises(Stop):
        prepare(request, tmp_path / "into", 1, stop)
    return request, tmp_path / "into"


def test_pieces_that_are_done_are_not_made_again(stopped):
    request, folder = stopped
    assert (folder / "work/0000000.piece").exists()
    (Path(request.source) / "0.txt").write_bytes(b"x" * 4_000_000)  # would be seen if it were read again
    prepare(request, folder, 1)
    assert (folder / "train-00000.tokens").read_bytes()[2:6] == b"0\x000\x00"


def test_a_piece_of_which_the_disk_kept_half_is_made_again(stopped):
    request, folder = stopped
    piece = folder / "work/0000000.piece"
    piece.write_bytes(piece.read_bytes()[:1000])
    index = prepare(request, folder, 1)
    assert index.splits["train"] == (3, 12_000_003, 12_000_000)


def test_a_source_that_changed_in_between_is_refused(stopped):
    request, folder = stopped
    (Path(request.source) / "3.txt").write_text("one more")
    with pytest.raises(
        StoreError, match=r"it holds other data. files was 3, and now is 4. bytes was 12000000, and now"
    ):
        prepare(request, folder, 1)


def test_other_options_are_refused_and_named(folder, stories):
    request = Request(source=str(stories), tokenizer="bpe", valid=0.2, test=0.1, shard_tokens=100)
    before = contents(folder)
    with pytest.raises(StoreError, match=r"tokenizer was bytes, and now is bpe. vocabulary was None, and now is 4096."):
        prepare(request, folder, 1)
    assert contents(folder) == before


def test_the_same_request_again_does_nothing(folder, stories):
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    request = Request(source=str(stories), valid=0.2, test=0.1, shard_tokens=100)
    assert prepare(request, folder, 1).digest == json.loads((folder / "index.json").read_text())["digest"]
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_two_do_not_prepare_in_one_folder(folder, stories):
    with (folder / "prepare.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another `hqlt data prepare` is at work here"):
            prepare(Request(source=str(stories)), folder, 1)


def test_settings_that_make_no_sense_are_all_told():
    with pytest.raises(ConfigError) as told:
        Request(source="python", valid=-0.1, test=1.2, limit_documents=0, shard_tokens=0)
    assert len(str(told.value).splitlines()) == 4


def test_a_document_stays_in_its_split_when_others_come_or_go(folder, stories, tmp_path):
    texts = stories.read_text().splitlines(keepends=True)
    (tmp_path / "fewer.jsonl").write_text("".join(texts[::2]))
    request = Request(source=str(tmp_path / "fewer.jsonl"), valid=0.2, test=0.1)
    prepare(request, tmp_path / "into", 1)
    for split in ("valid", "test"):
        few, all_of_them = (documents(place, split) for place in (tmp_path / "into", folder))
        assert few and few < all_of_them


def documents(folder, split):
    parts = [file.read_bytes() for file in sorted(folder.glob(f"{split}-*.tokens"))]
    return set(b"".join(parts)[2:].split(b"\x00\x01"))


def test_a_folder_with_something_else_in_it_is_left_alone(stories, tmp_path):
    for name in ("work", "tokenizer"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"no prepared data \(tokenizer.* work\)"):
        prepare(Request(source=str(stories)), tmp_path, workers=1)
    assert (tmp_path / "work/thesis.txt").read_text() == (tmp_path / "tokenizer/thesis.txt").read_text() == "mine"


def test_a_kill_before_the_first_note_is_no_obstacle(stories, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "prepare.lock").touch()
    assert prepare(Request(source=str(stories)), tmp_path, workers=1).splits["train"].documents


def test_data_are_not_prepared_inside_their_source(tmp_path):
    (tmp_path / "one.txt").write_text("text")
    with pytest.raises(StoreError, match="inside its own source"):
        prepare(Request(source=str(tmp_path)), tmp_path / "tokens", workers=1)


def test_a_share_that_is_no_number_is_refused():
    with pytest.raises(ConfigError, match="valid: a share from 0 to 1 is needed, got nan"):
        Request(source="python", valid=float("nan"))


def test_a_folder_of_somebody_else_keeps_what_looks_like_a_leftover(stories, tmp_path):
    (tmp_path / "novel.writing").write_text("chapter one")
    with pytest.raises(StoreError, match=r"no prepared data \(novel.writing\)"):
        prepare(Request(source=str(stories)), tmp_path, workers=1)
    assert (tmp_path / "novel.writing").read_text() == "chapter one"


def test_a_request_that_was_killed_while_it_was_noted_can_be_made_again(stories, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work/request.json.7.writing").write_text("{")
    begin(tmp_path, {"kind": "files", "path": str(stories)}, {})
    assert [file.name for file in (tmp_path / "work").iterdir()] == ["request.json"]
