"""Incremental detokenizer: it emits complete characters only, and neither a stop string nor anything after it.

    tokens -> decoded text -> text without a suffix that may become a stop string

A token may hold part of a character, and its text may depend on the previous token (sentencepiece writes a space or
none).  So new tokens are decoded together with a few previous ones, and the difference is the new text:

    new text = decode(tokens[prefix_offset:]) without its prefix decode(tokens[prefix_offset:read_offset])

Of several stop strings the one that is complete first counts, however the text is split into tokens.
"""

from collections.abc import Iterable, Sequence

from hqlt_lab.generation.text_model import TextModel

REPLACEMENT_CHARACTER = "\ufffd"  # an incomplete character is decoded to this one
MAX_INCOMPLETE_BYTES = 3  # an incomplete UTF-8 character has at most this many bytes
# prompt tokens that are decoded with the first generated ones: enough for a complete character between an incomplete
# one at the beginning and an incomplete one at the end
CONTEXT_TOKENS = MAX_INCOMPLETE_BYTES + 1 + MAX_INCOMPLETE_BYTES


class IncrementalDetokenizer:
    """Decodes the tokens of one row as they are generated."""

    def __init__(self, model: TextModel, prompt: Sequence[int], stop_strings: Sequence[str]) -> None:
        self.model, self.stop_strings = model, stop_strings
        self.tokens = list(prompt[-CONTEXT_TOKENS:])  # the end of the prompt, then the generated tokens
        self.num_prompt_tokens = len(self.tokens)
        self.prefix_offset, self.read_offset = 0, len(self.tokens)
        # text of tokens[prefix_offset:] that is complete and was moved to pending_text, or belongs to the prompt
        self.decoded_text = strip_incomplete_character(model.decode(self.tokens))
        self.pending_text = ""  # decoded, but may be the beginning of a stop string
        self.text_chunks: list[str] = []
        self.has_stopped = False

    @property
    def generated_tokens(self) -> list[int]:
        return self.tokens[self.num_prompt_tokens :]

    @property
    def text(self) -> str:
        """All text that was emitted so far."""
        return "".join(self.text_chunks)

    def append_token(self, token: int) -> str:
        """Add one token, and return the text that can be emitted now."""
        self.tokens.append(token)
        text = self.model.decode(self.tokens[self.prefix_offset :])
        complete_text = strip_incomplete_character(text)
        self.pending_text += complete_text[len(self.decoded_text) :]
        self.decoded_text = complete_text if len(complete_text) > len(self.decoded_text) else self.decoded_text
        if text == complete_text:
            self.advance_offsets()
        return self.emit_text(len(self.pending_text) - stop_prefix_length(self.pending_text, self.stop_strings))

    def flush_text(self) -> str:
        """Return the remaining text once no more tokens follow."""
        if not self.has_stopped:
            self.pending_text += self.model.decode(self.tokens[self.prefix_offset :])[len(self.decoded_text) :]
        return self.emit_text(len(self.pending_text))

    def advance_offsets(self) -> None:
        """Move both offsets forward, past tokens whose text no later token can change."""
        text = self.model.decode(self.tokens[self.read_offset :])
        if text:
            self.prefix_offset, self.read_offset, self.decoded_text = self.read_offset, len(self.tokens), text

    def emit_text(self, length: int) -> str:
        """Emit that many pending characters, or those before a stop string."""
        stop_index = find_first_stop(self.pending_text, self.stop_strings)
        self.has_stopped = self.has_stopped or stop_index is not None
        chunk = self.pending_text[: length if stop_index is None else stop_index]
        self.pending_text = "" if self.has_stopped else self.pending_text[length:]
        self.text_chunks.append(chunk)
        return chunk


def strip_incomplete_character(text: str) -> str:
    """Remove replacement characters at the end that may belong to an incomplete character.

    At most as many as such a character has bytes, so that invalid bytes are not held back forever.
    """
    length = len(text)
    while length and len(text) - length < MAX_INCOMPLETE_BYTES and text[length - 1] == REPLACEMENT_CHARACTER:
        length -= 1
    return text[:length]


def find_first_stop(text: str, stop_strings: Iterable[str]) -> int | None:
    """Return the index at which the stop string begins that ends first, or None."""
    matches = [(start + len(stop), start) for stop in stop_strings if (start := text.find(stop)) >= 0]
    return min(matches)[1] if matches else None


def stop_prefix_length(text: str, stop_strings: Iterable[str]) -> int:
    """Return the length of the longest end of a text that is the beginning of a stop string."""
    return max((size for stop in stop_strings for size in range(1, len(stop)) if text.endswith(stop[:size])), default=0)
