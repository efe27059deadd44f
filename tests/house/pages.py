"""What the pages say: their code blocks and commands; and a hand that types them."""

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
GUIDE = sorted((ROOT / "docs").rglob("*.md"))


class Block(NamedTuple):
    """A fenced piece of a page."""

    language: str
    title: str | None  # the file it is to be kept in
    text: str


def blocks_of(text):
    """All of them, in the order of the page."""
    found = re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', text, re.DOTALL | re.MULTILINE)
    return [Block(language, title or None, inside) for language, title, inside in found]


def commands(text):
    """Every command of the bash blocks, without what is said about it."""
    return [line for block in blocks_of(text) if block.language == "bash" for line in lines_of(block)]


def lines_of(block):
    return [line for line in (line.split("#")[0].strip() for line in block.text.splitlines()) if line]


def shrink(file, shrunk):
    """Replace each pattern, which must be there once."""
    text = file.read_text()
    for found, instead in shrunk.items():
        text, count = re.subn(found, instead, text)
        assert count == 1, f"{found} is not in {file} any more"
    file.write_text(text)


def typed(line, folder):
    """Type a command; the browser's server is left running for a moment, then Ctrl-C."""
    words = [str(Path(sys.executable).parent / "hqlt"), *shlex.split(line)[1:]]
    told_by = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(words, cwd=folder, preexec_fn=hear_ctrl_c, **told_by) as process:
        told = ""
        if words[1] == "ui":
            for said in process.stdout:
                told += said
                if "Ctrl-C ends it" in said:
                    process.send_signal(signal.SIGINT)
                    break
        told += process.communicate(timeout=300)[0]
    assert process.returncode == 0, f"{line}\n{told}"
    return told


def hear_ctrl_c():
    """Also where the tests run in the background, whose shell lets nothing of it hear Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
