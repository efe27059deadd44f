"""What a compressor makes of held-out text: the yardstick beside a language model's bits per byte.

    bits per byte = 8 * compressed bytes / bytes

xz at its best setting reads the documents of a split one after the other, as a model does, and has seen nothing
before them: what is below its figure was learned, or came from a memory that is better than a dictionary of the past.
The more it may read, the fewer bits it needs, so a fair figure is that of the tokens on which the model was scored.
"""

import lzma

from hqlt_lab.data.corpus import Corpus
from hqlt_lab.data.index import Split


def xz_bits_per_byte(corpus: Corpus, split: Split, most: int) -> float | None:
    """Of the first tokens of a split; None where it has no text."""
    text = "".join(corpus.texts(split, most)).encode()
    return 8 * len(lzma.compress(text, preset=9)) / len(text) if text else None
