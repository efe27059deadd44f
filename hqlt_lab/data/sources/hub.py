"""A dataset of Hugging Face, by name or folder, streamed: nothing is downloaded but what is read."""

from collections.abc import Iterator
from typing import Any

from hqlt_lab.data.encoders._base import needed
from hqlt_lab.data.sources._base import Document
from hqlt_lab.data.sources.readers import as_bytes
from hqlt_lab.errors import ConfigError


class Hub:
    """One split of a dataset, and the column of it that is text."""

    def __init__(self, name: str, config: str | None, split: str, field: str) -> None:
        self.name, self.field = name, field
        self.description: dict[str, Any] = {
            "kind": "hub",
            "name": name,
            "config": config,
            "split": split,
            "field": field,
        }
        datasets = needed("datasets", "datasets", name)
        try:
            self.dataset = datasets.load_dataset(name, config, split=split, streaming=True)
        except Exception as error:  # the library's own, the hub's, the network's: some twenty classes
            raise ConfigError(
                f"{name}: it is no file or folder here, and the dataset cannot be loaded "
                f"({type(error).__name__}: {str(error).splitlines()[0]}). "
                "Without the hub there are: files, folders, python."
            ) from error

    def documents(self, first: int = 0) -> Iterator[Document]:
        for record in self.dataset.skip(first):
            if self.field not in record:
                there = ", ".join(record)
                raise ConfigError(
                    f"{self.name}: there is no column {self.field!r}. Columns: {there}. Choose with --text."
                )
            yield as_bytes(record[self.field], f"{self.name}, column {self.field!r}")
