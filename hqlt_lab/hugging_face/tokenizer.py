"""Our tokenizers as ones of transformers, that give the very same numbers.

bytes     byte b is token b, so a byte-level BPE without merges
bpe       the same JSON
mistral   a BPE whose merges are the pieces of sentencepiece, by their scores
others    what Hugging Face gave

All begin a text with the separator, as documents do in training, and pad on the left, as generation needs it.
What was written is loaded again and compared on real text, so that a tokenizer that differs is never handed on.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hqlt_lab.data.corpus import BORDER, Corpus
from hqlt_lab.data.encoders._base import needed
from hqlt_lab.data.encoders.bpe import Bpe
from hqlt_lab.data.encoders.choose import Encoder
from hqlt_lab.data.encoders.mistral import Mistral
from hqlt_lab.data.encoders.plain import Plain

TRICKY = ("", "a", " a  b\n\n\tc ", "naïve 漢字 🗝️ \u200d", f"{BORDER} <s> </s> <unk>", "x" * 300, "don't 12 345")
FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
SPACE = "▁"  # as sentencepiece writes one


def write_tokenizer(corpus: Corpus, folder: Path) -> list[str]:
    """Write it, unless transformers has none that gives our tokens: then a sentence says so."""
    library = needed("transformers", "transformers", "export")
    encoder = corpus.encoder
    theirs(encoder, library).save_pretrained(folder)
    read = library.AutoTokenizer.from_pretrained(folder)
    if (text := first_difference(encoder, read, samples(corpus))) is not None:
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
        return [
            f"tokenizer {corpus.index.tokenizer}: transformers makes other tokens of {text[:40]!r}, so no tokenizer of "
            "theirs is in the folder. The lab reads its own."
        ]
    if read("a")["input_ids"][:1] != [encoder.separator]:
        return [f"tokenizer {corpus.index.tokenizer}: put token {encoder.separator} before a text, as in training."]
    return []


def theirs(encoder: Encoder, library: Any) -> Any:
    """A tokenizer of transformers."""
    if isinstance(encoder, Plain):
        return wrapped(of_bytes(encoder), BORDER, encoder.separator, library)
    if isinstance(encoder, Bpe):
        made = needed("tokenizers", "tokenizers", "export").Tokenizer.from_str(encoder.tokenizer.to_str())
        return wrapped(made, BORDER, encoder.separator, library)
    if isinstance(encoder, Mistral):
        return wrapped(of_pieces(encoder), encoder.pieces.id_to_piece(encoder.separator), encoder.separator, library)
    return saved_and_read(encoder, library)


def of_bytes(encoder: Plain) -> Any:
    """Every byte is a letter of its own, and no two are ever merged."""
    library = needed("tokenizers", "tokenizers", "export")
    letters = needed("transformers.convert_slow_tokenizer", "transformers", "export").bytes_to_unicode()
    vocabulary = {letter: byte for byte, letter in letters.items()}
    made = library.Tokenizer(library.models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = library.decoders.ByteLevel()
    made.add_special_tokens([BORDER])
    return made


def wrapped(made: Any, border: str, separator: int, library: Any) -> Any:
    """The separator before each text, and nowhere else: its name in a text is text."""
    processors = needed("tokenizers", "tokenizers", "export").processors
    made.post_processor = processors.TemplateProcessing(single=f"{border} $A", special_tokens=[(border, separator)])
    return library.PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token=border,
        eos_token=border,
        pad_token=border,
        padding_side="left",
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )


def of_pieces(encoder: Mistral) -> Any:
    """Sentencepiece joins the two neighbours whose whole has the best score, and writes a space as a letter."""
    library, pieces = needed("tokenizers", "tokenizers", "export"), encoder.pieces
    vocabulary = {pieces.id_to_piece(token): token for token in range(encoder.vocabulary)}
    words = [word for word, token in vocabulary.items() if not is_special(pieces, token)]
    best_first = sorted(words, key=lambda word: (-pieces.get_score(vocabulary[word]), vocabulary[word]))
    halves = [(word[:cut], word[cut:]) for word in best_first for cut in range(1, len(word))]
    merges = [(left, right) for left, right in halves if left in vocabulary and right in vocabulary]
    unknown = pieces.id_to_piece(pieces.unk_id())
    made = library.Tokenizer(
        library.models.BPE(vocab=vocabulary, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    write, read = library.normalizers, library.decoders
    made.normalizer = write.Sequence([write.Prepend(SPACE), write.Replace(" ", SPACE)])
    made.decoder = read.Sequence([read.Replace(SPACE, " "), read.ByteFallback(), read.Fuse(), read.Strip(" ", 1, 0)])
    return made


def is_special(pieces: Any, token: int) -> bool:
    """Whether it is no piece of text."""
    return bool(pieces.is_control(token) or pieces.is_byte(token) or pieces.is_unknown(token))


def saved_and_read(encoder: Encoder, library: Any) -> Any:
    """What Hugging Face gave; but special tokens in a text stay text, as with us."""
    with tempfile.TemporaryDirectory() as folder:
        encoder.save(Path(folder))
        return library.AutoTokenizer.from_pretrained(folder, padding_side="left", split_special_tokens=True)


def samples(corpus: Corpus) -> Iterable[str]:
    """Strings that tokenizers stumble over, and some of the training text."""
    yield from TRICKY
    length = min(1000, corpus.tokens("train") - 1)
    for row in corpus.windows("train", 0, 0, 8, length).tokens:
        yield corpus.encoder.decode(row[row != corpus.index.separator].tolist())


def first_difference(encoder: Encoder, tokenizer: Any, texts: Iterable[str]) -> str | None:
    """The first text that becomes other tokens."""
    for text in texts:
        found = tokenizer(text, add_special_tokens=False)["input_ids"]
        if list(found) != [int(token) for token in encoder.encode([text.encode()])[0]]:
            return text
    return None
