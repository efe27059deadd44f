"""Open a source by name.

python       the source files of the standard library
a path       that file, or all files in that folder
hf:NAME      a Hugging Face dataset, or a folder loaded as one; hf: is optional if no such path exists
"""

from pathlib import Path

from hqlt_lab.data.prepare_options import PrepareRequest
from hqlt_lab.data.sources._base import Source
from hqlt_lab.data.sources.hub_dataset import HubSource
from hqlt_lab.data.sources.local_files import open_local_files, open_standard_library
from hqlt_lab.errors import ConfigError

# a name with one of these suffixes is a missing file, not a dataset
FILE_SUFFIXES = (".txt", ".md", ".py", ".json", ".jsonl", ".csv", ".parquet", ".gz", ".zst")


def open_source(request: PrepareRequest) -> Source:
    """Open the source of a request.  `text`, `config` and `split` apply only to sources that have them."""
    name = request.source
    if name == "python":
        return open_standard_library()
    if not name.startswith("hf:") and Path(name).exists():
        return open_local_files(Path(name), request.text)
    if name.startswith((".", "/", "~")) or Path(name).suffix in FILE_SUFFIXES:
        raise ConfigError.at("source", "source_not_found", f"there is no file or folder {name}.")
    return HubSource(name.removeprefix("hf:"), request.config, request.split, request.text)
