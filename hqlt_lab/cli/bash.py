"""Bash breaks words at `=`: of `--only arm=su` it asks to complete `su`, and tells of three words before it.

They are put together before typer sees them, and what stood before the last `=` is left out of the answers, as bash
keeps it.  Other shells hand over whole words.
"""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO


@contextmanager
def whole_words() -> Iterator[None]:
    """While bash asks; at any other time nothing."""
    if os.environ.get("_HQLT_COMPLETE") != "complete_bash" or "=" not in os.environ.get("COMP_WORDS", ""):
        yield
        return
    kept = glue()
    answers = StringIO()
    try:
        with redirect_stdout(answers):
            yield
    finally:
        for line in answers.getvalue().splitlines():
            print(line.removeprefix(kept))


def glue() -> str:
    """Put the words together; what of the last one bash will not replace."""
    try:
        words, place = shlex.split(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
    except (KeyError, ValueError):
        return ""
    typing = place < len(words) or words[-1] == "="  # else the next word is begun
    made = joined(words[: place + 1])
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = shlex.join(made), str(len(made) - typing)
    before, equals, _ = made[-1].rpartition("=")
    return before + equals if typing else ""


def joined(words: list[str]) -> list[str]:
    """[arm, =, sum] -> [arm=sum]"""
    made: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if made and "=" in (before, word):
            made[-1] += word
        else:
            made.append(word)
    return made
