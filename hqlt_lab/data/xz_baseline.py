"""Compression with xz as a baseline for a language model's bits per byte.

    bits per byte = 8 * compressed bytes / bytes

xz with its highest preset compresses the concatenated documents of a split without having seen any other text.  A
model that needs fewer bits has learned something in training, or uses its context better than a dictionary of the past
does.  xz needs fewer bits per byte the longer its input, so compare it on the tokens the model was scored on.
"""

import lzma

from hqlt_lab.data.corpus_index import Split
from hqlt_lab.data.corpus_reader import Corpus


def xz_bits_per_byte(corpus: Corpus, split: Split, max_tokens: int) -> float | None:
    """Return the bits per byte of the first `max_tokens` tokens of a split, or None if it has no text."""
    text = "".join(corpus.read_texts(split, max_tokens)).encode()
    return 8 * len(lzma.compress(text, preset=9)) / len(text) if text else None
