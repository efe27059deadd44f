"""Tokens to text as they come: never half a character, nothing of a stop string, nothing after it.

    tokens -> settled text -> text without what might still become a stop string

A token may hold part of a character, and what a token says may depend on the one before it (sentencepiece writes a
space or none).  So a few tokens are decoded together with some that were decoded before, and the difference is new:

    new = decode(tokens[anchor:]) after decode(tokens[anchor:settled])

Of stop strings the one that is complete first counts, however the text was cut into tokens.
"""

from collections.abc import Iterable, Sequence

from hqlt_lab.generation.text_model import TextModel

BROKEN = "\ufffd"  # what half a character is decoded to
HALF = 3  # bytes of a character that is not complete, at most
# tokens of the prompt that are decoded with the first new ones: between a half character at the beginning and one at
# the end there is a whole one
CONTEXT = HALF + 1 + HALF


class Speech:
    """The text of one row while it is being generated."""

    def __init__(self, model: TextModel, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self.model, self.stop = model, stop
        self.tokens = list(prompt[-CONTEXT:])  # tail of the prompt, then what was generated
        self.before = len(self.tokens)
        self.anchor, self.settled = 0, len(self.tokens)
        self.known = whole(model.decode(self.tokens))  # text of tokens[anchor:], as far as it was passed on
        self.held = ""  # settled, and perhaps the beginning of a stop string
        self.said: list[str] = []
        self.stopped = False

    @property
    def generated(self) -> list[int]:
        return self.tokens[self.before :]

    @property
    def text(self) -> str:
        """All that was passed on."""
        return "".join(self.said)

    def add(self, token: int) -> str:
        """What can be passed on, now that this token has come."""
        self.tokens.append(token)
        text = self.model.decode(self.tokens[self.anchor :])
        certain = whole(text)
        self.held += certain[len(self.known) :]
        self.known = certain if len(certain) > len(self.known) else self.known
        if text == certain:
            self.move_on()
        return self.pass_on(len(self.held) - begun(self.held, self.stop))

    def end(self) -> str:
        """The rest, as nothing more comes."""
        if not self.stopped:
            self.held += self.model.decode(self.tokens[self.anchor :])[len(self.known) :]
        return self.pass_on(len(self.held))

    def move_on(self) -> None:
        """Forget what no later token can change: the tokens before those that were settled last."""
        known = self.model.decode(self.tokens[self.settled :])
        if known:
            self.anchor, self.settled, self.known = self.settled, len(self.tokens), known

    def pass_on(self, length: int) -> str:
        """So much of what is held, or what stands before the stop string in it."""
        found = first_complete(self.held, self.stop)
        self.stopped = self.stopped or found is not None
        piece = self.held[: length if found is None else found]
        self.held = "" if self.stopped else self.held[length:]
        self.said.append(piece)
        return piece


def whole(text: str) -> str:
    """Without a character at the end that may be a half one: a few of them at most, so that nothing waits for ever."""
    kept = len(text)
    while kept and len(text) - kept < HALF and text[kept - 1] == BROKEN:
        kept -= 1
    return text[:kept]


def first_complete(text: str, stop: Iterable[str]) -> int | None:
    """Where the stop string begins that ends first."""
    places = [(place + len(one), place) for one in stop if (place := text.find(one)) >= 0]
    return min(places)[1] if places else None


def begun(text: str, stop: Iterable[str]) -> int:
    """Characters at the end of a text that a stop string may begin with."""
    return max((size for one in stop for size in range(1, len(one)) if text.endswith(one[:size])), default=0)
