"""Read the code blocks and commands of documentation pages, and run the commands."""

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
GUIDE = sorted((ROOT / "docs").rglob("*.md"))
# pages about components of one's own, in the order in which a reader follows them
COMPONENT_PAGES = [
    ROOT / f"docs/{name}.md"
    for name in (
        "your_own_component",
        "add_update_rule",
        "add_task",
        "component_study",
        "add_parallel_scan",
        "add_attention",
        "add_mixer",
        "add_timing",
    )
]


class Block(NamedTuple):
    """A fenced code block of a page."""

    language: str
    title: str | None  # name of the file that the page tells the reader to create
    text: str


def code_blocks(text):
    """Return the code blocks of a page in order."""
    matches = re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', text, re.DOTALL | re.MULTILINE)
    return [Block(language, title or None, content) for language, title, content in matches]


def bash_commands(text):
    """Return the commands of all bash blocks, without comments."""
    return [line for block in code_blocks(text) if block.language == "bash" for line in command_lines(block)]


def component_page_files():
    """Return the files that the component pages tell the reader to create, name -> text."""
    blocks = [block for page in COMPONENT_PAGES for block in code_blocks(page.read_text())]
    return {block.title: block.text for block in blocks if block.title}


def command_lines(block):
    return [line for line in (line.split("#")[0].strip() for line in block.text.splitlines()) if line]


def replace_in_file(file, replacements):
    """Replace patterns in a file; each must match exactly once."""
    text = file.read_text()
    for pattern, replacement in replacements.items():
        text, count = re.subn(pattern, replacement, text)
        assert count == 1, f"{pattern} matches {count} times in {file}"
    file.write_text(text)


def run_hqlt(line, folder):
    """Run a command and return its output; `hqlt ui` is stopped with Ctrl-C once it is ready."""
    command = [str(Path(sys.executable).parent / "hqlt"), *shlex.split(line)[1:]]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=folder, preexec_fn=enable_sigint, **streams) as process:
        output = ""
        if command[1] == "ui":
            for output_line in process.stdout:
                output += output_line
                if "Ctrl-C" in output_line:
                    process.send_signal(signal.SIGINT)
                    break
        output += process.communicate(timeout=300)[0]
    assert process.returncode == 0, f"{line}\n{output}"
    return output


def enable_sigint():
    """Restore the default SIGINT handler: background jobs of a shell inherit an ignored SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
