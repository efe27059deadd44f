"""Which source a name means.

python       the standard library's own files
a path       that file, or all files of that folder
hf:NAME      a dataset of Hugging Face, or a folder read as one; without hf: where there is no such path
"""

from pathlib import Path

from hqlt_lab.data.request import Request
from hqlt_lab.data.sources._base import Source
from hqlt_lab.data.sources.files import local, python
from hqlt_lab.data.sources.hub import Hub
from hqlt_lab.errors import ConfigError

WRITTEN = (".txt", ".md", ".py", ".json", ".jsonl", ".csv", ".parquet", ".gz", ".zst")  # no dataset ends so


def open_source(request: Request) -> Source:
    """The source of a request; text, config and split are for those that have them."""
    name = request.source
    if name == "python":
        return python()
    if not name.startswith("hf:") and Path(name).exists():
        return local(Path(name), request.text)
    if name.startswith((".", "/", "~")) or Path(name).suffix in WRITTEN:
        raise ConfigError(f"{name}: there is no such file or folder.")
    return Hub(name.removeprefix("hf:"), request.config, request.split, request.text)
