"""Stable hashes: the values on which cell keys, splits, seeds and digests depend never change.

`tests/experiment/test_plan.py` holds the key of a cell.
"""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from hqlt_lab.data.corpus_index import FileChecksum, compute_checksum
from hqlt_lab.data.window_order import round_keys
from hqlt_lab.generation.sampler import row_generator
from hqlt_lab.hashing import derive_seed, derive_words, digest_bytes, hash_chunks, hash_file, hash_json
from hqlt_lab.model.initialize import seeded_rng
from hqlt_lab.tasks._counter_rng import CounterRng
from hqlt_lab.track.provenance import hash_files
from hqlt_lab.train.lightning_module import seed_generators

ROOT = Path(__file__).parents[2]


@pytest.fixture
def files(tmp_path):
    for name, text in {"a.py": "x = 1\n", "b.py": "y = 2\n"}.items():
        (tmp_path / name).write_text(text)
    return [tmp_path / "a.py", tmp_path / "b.py"]


def test_hash_of_json_is_the_same_for_any_order_of_keys():
    assert (
        hash_json({"b": [1, 2.5, None], "a": "ü"}) == hash_json({"a": "ü", "b": [1, 2.5, None]}) == "b7f18cc940079559"
    )


def test_hashes_of_files_do_not_change(files):
    checksum = "9e26bf369911c45c243c684147b23fc9e1dcfcf257d299a1c632016a6fcd33f4"
    assert hash_file(files[0]) == checksum and hash_file(files[0], 16) == checksum[:16]
    assert compute_checksum(files[0]) == FileChecksum(6, checksum)
    assert hash_files(files) == "1feec89a777a"  # with the names of the files
    assert hash_chunks(file.read_bytes() for file in files) == "8353afe579a16d27"


def test_digest_is_that_of_sha256():
    assert digest_bytes(b"abc") == hashlib.sha256(b"abc").digest()


def test_seeds_derived_from_names_do_not_change():
    assert derive_seed("3/4") == row_generator(3, 4).initial_seed() == 8408115760816265512
    with seeded_rng(5, "layers.0"):
        assert torch.default_generator.initial_seed() == 2903167123606021232
    seed_generators(torch.device("cpu"), 1, 2)
    assert torch.default_generator.initial_seed() == 9113720037722924775


def test_words_derived_from_names_do_not_change():
    assert int.from_bytes(derive_words(b"some text"), "little") == 1990116382862071026
    assert round_keys(1, 2)[:2].tolist() == [13744392090556327389, 240090618134296391]
    assert np.array_equal(
        CounterRng("train/0", 3, 2).random_bits("x"), np.array([[8979064255597168833], [8051196587333129436]], "u8")
    )


def test_only_the_hashing_module_imports_hashlib():
    files = [file for folder in ("hqlt_lab", "registry", "components") for file in (ROOT / folder).rglob("*.py")]
    users = [file.relative_to(ROOT).as_posix() for file in files if re.search(r"\bhashlib\b", file.read_text())]
    assert users == ["hqlt_lab/hashing.py"]
