"""Convert our tokenizers to tokenizers of transformers with identical token ids.

bytes     byte-level BPE without merges: byte b is token b
bpe       the same JSON
mistral   BPE whose merges are the pieces of sentencepiece, ordered by their scores
others    the original Hugging Face tokenizer

All of them begin a text with the separator, as documents do in training, and pad on the left, as generation requires.
The written tokenizer is loaded again and compared with ours on real text, so that one that differs is never exported.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hqlt_lab.data.corpus_reader import SEPARATOR_TEXT, Corpus
from hqlt_lab.data.tokenizers._base import import_optional
from hqlt_lab.data.tokenizers.bpe import BpeTokenizer
from hqlt_lab.data.tokenizers.byte_tokenizer import ByteTokenizer
from hqlt_lab.data.tokenizers.load_tokenizer import Tokenizer
from hqlt_lab.data.tokenizers.mistral import MistralTokenizer

EDGE_CASE_STRINGS = (
    "",
    "a",
    " a  b\n\n\tc ",
    "naïve 漢字 🗝️ \u200d",
    f"{SEPARATOR_TEXT} <s> </s> <unk>",
    "x" * 300,
    "don't 12 345",
)
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
SENTENCEPIECE_SPACE = "▁"  # stands for a space in sentencepiece's vocabulary


def write_tokenizer(corpus: Corpus, folder: Path) -> list[str]:
    """Write the tokenizer, unless transformers cannot reproduce our tokens; return notes for the user."""
    library = import_optional("transformers", "transformers", "export")
    own_tokenizer = corpus.tokenizer
    convert_tokenizer(own_tokenizer, library).save_pretrained(folder)
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    if (text := find_first_difference(own_tokenizer, tokenizer, comparison_texts(corpus))) is not None:
        for name in TOKENIZER_FILES:
            (folder / name).unlink(missing_ok=True)
        return [
            f"tokenizer {corpus.index.tokenizer}: transformers tokenizes {text[:40]!r} differently, so the export has "
            "no Hugging Face tokenizer; hqlt_lab uses its own."
        ]
    if tokenizer("a")["input_ids"][:1] != [own_tokenizer.separator]:
        return [
            f"tokenizer {corpus.index.tokenizer}: put token {own_tokenizer.separator} before a text, as in training."
        ]
    return []


def convert_tokenizer(own_tokenizer: Tokenizer, library: Any) -> Any:
    """Return a transformers tokenizer for one of our tokenizers."""
    if isinstance(own_tokenizer, ByteTokenizer):
        return wrap_fast_tokenizer(
            convert_byte_tokenizer(own_tokenizer), SEPARATOR_TEXT, own_tokenizer.separator, library
        )
    if isinstance(own_tokenizer, BpeTokenizer):
        tokenizer_class = import_optional("tokenizers", "tokenizers", "export").Tokenizer
        tokenizer = tokenizer_class.from_str(own_tokenizer.tokenizer.to_str())
        return wrap_fast_tokenizer(tokenizer, SEPARATOR_TEXT, own_tokenizer.separator, library)
    if isinstance(own_tokenizer, MistralTokenizer):
        return wrap_fast_tokenizer(
            convert_sentencepiece(own_tokenizer),
            own_tokenizer.processor.id_to_piece(own_tokenizer.separator),
            own_tokenizer.separator,
            library,
        )
    return reload_hub_tokenizer(own_tokenizer, library)


def convert_byte_tokenizer(own_tokenizer: ByteTokenizer) -> Any:
    """Return a BPE tokenizer with one token per byte and no merges."""
    library = import_optional("tokenizers", "tokenizers", "export")
    letters = import_optional("transformers.convert_slow_tokenizer", "transformers", "export").bytes_to_unicode()
    vocabulary = {letter: byte for byte, letter in letters.items()}
    tokenizer = library.Tokenizer(library.models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    tokenizer.add_special_tokens([SEPARATOR_TEXT])
    return tokenizer


def wrap_fast_tokenizer(tokenizer: Any, separator_text: str, separator: int, library: Any) -> Any:
    """Wrap a tokenizer so that it puts the separator before each text; its name inside a text is encoded as text."""
    processors = import_optional("tokenizers", "tokenizers", "export").processors
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{separator_text} $A", special_tokens=[(separator_text, separator)]
    )
    return library.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=separator_text,
        eos_token=separator_text,
        pad_token=separator_text,
        padding_side="left",
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )


def convert_sentencepiece(own_tokenizer: MistralTokenizer) -> Any:
    """Return a BPE tokenizer that is equivalent to a sentencepiece model.

    Sentencepiece merges the two neighbors whose concatenation has the best score, so the merges are ordered by score.
    """
    library, processor = import_optional("tokenizers", "tokenizers", "export"), own_tokenizer.processor
    vocabulary = {processor.id_to_piece(token): token for token in range(own_tokenizer.vocabulary)}
    pieces = [piece for piece, token in vocabulary.items() if not is_special(processor, token)]
    best_first = sorted(pieces, key=lambda piece: (-processor.get_score(vocabulary[piece]), vocabulary[piece]))
    splits = [(piece[:i], piece[i:]) for piece in best_first for i in range(1, len(piece))]
    merges = [(left, right) for left, right in splits if left in vocabulary and right in vocabulary]
    unknown = processor.id_to_piece(processor.unk_id())
    tokenizer = library.Tokenizer(
        library.models.BPE(vocab=vocabulary, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    space, normalizers, decoders = SENTENCEPIECE_SPACE, library.normalizers, library.decoders
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(space), normalizers.Replace(" ", space)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(space, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def is_special(processor: Any, token: int) -> bool:
    """Return whether a token is a control, byte or unknown token instead of a piece of text."""
    return bool(processor.is_control(token) or processor.is_byte(token) or processor.is_unknown(token))


def reload_hub_tokenizer(own_tokenizer: Tokenizer, library: Any) -> Any:
    """Return the original Hugging Face tokenizer, changed to encode the names of special tokens as text, as we do."""
    with tempfile.TemporaryDirectory() as folder:
        own_tokenizer.save(Path(folder))
        return library.AutoTokenizer.from_pretrained(folder, padding_side="left", split_special_tokens=True)


def comparison_texts(corpus: Corpus) -> Iterable[str]:
    """Yield strings that are difficult for tokenizers, and parts of the training text."""
    yield from EDGE_CASE_STRINGS
    length = min(1000, corpus.num_tokens("train") - 1)
    for row in corpus.read_windows("train", 0, 0, 8, length).tokens:
        yield corpus.tokenizer.decode(row[row != corpus.index.separator].tolist())


def find_first_difference(own_tokenizer: Tokenizer, tokenizer: Any, texts: Iterable[str]) -> str | None:
    """Return the first text for which the two tokenizers give different tokens, or None."""
    for text in texts:
        tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
        if list(tokens) != [int(token) for token in own_tokenizer.encode([text.encode()])[0]]:
            return text
    return None
