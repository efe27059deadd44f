"""Stable hashes of data: equal in all processes, on all machines and in all versions.

    hash_json({"lr": 0.001})        16 hexadecimal digits, for keys such as those of cells
    hash_file(path)                 SHA-256 of a file, for checksums
    derive_seed("3/layers.0")       seed of a random generator
    derive_words(b"train/3/x", 2)   bytes of two 64-bit words

Cell keys, digests of data, seeds and splits depend on these values, so the functions never change.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SHA256_DIGITS = 64


def hash_json(value: Any) -> str:
    """Return a short hash of a JSON value that does not depend on the order of keys."""
    return hash_chunks([json.dumps(value, sort_keys=True).encode()])


def hash_chunks(chunks: Iterable[bytes], digits: int = 16) -> str:
    """Return the first hexadecimal digits of the SHA-256 digest of these bytes, joined."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()[:digits]


def hash_file(file: Path, digits: int = SHA256_DIGITS) -> str:
    """Return the first hexadecimal digits of the SHA-256 digest of a file's content, reading it in blocks."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:digits]


def start_digest(content: bytes = b"") -> "hashlib._Hash":
    """Return a SHA-256 digest of these bytes that can be extended by `update`."""
    return hashlib.sha256(content)


def digest_bytes(content: bytes) -> bytes:
    """Return the SHA-256 digest, 32 bytes."""
    return hashlib.sha256(content).digest()


def derive_seed(name: str) -> int:
    """Return a seed of 63 bits for a random generator, derived from a name such as "3/layers.0"."""
    return int.from_bytes(digest_bytes(name.encode())[:8], "little") >> 1


def derive_words(content: bytes, count: int = 1) -> bytes:
    """Return `count` little-endian 64-bit words, at most 8, derived from these bytes."""
    return hashlib.blake2b(content, digest_size=8 * count).digest()
