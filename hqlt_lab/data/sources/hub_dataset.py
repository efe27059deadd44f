"""A Hugging Face dataset, by name or folder.  Streamed: only the documents that are read are downloaded."""

from collections.abc import Iterator
from typing import Any

from hqlt_lab.data.sources._base import Document
from hqlt_lab.data.sources.file_readers import encode_text
from hqlt_lab.data.tokenizers._base import import_optional
from hqlt_lab.errors import ConfigError, ConfigIssue


class HubSource:
    """The text column of one split of a dataset."""

    def __init__(self, name: str, config: str | None, split: str, field: str) -> None:
        self.name, self.field = name, field
        self.description: dict[str, Any] = {
            "kind": "hub",
            "name": name,
            "config": config,
            "split": split,
            "field": field,
        }
        datasets = import_optional("datasets", "datasets", "source")
        try:
            self.dataset = datasets.load_dataset(name, config, split=split, streaming=True)
        except Exception as error:  # the library, the hub and the network raise some twenty classes
            raise ConfigError.at(
                "source",
                "dataset_not_found",
                f"{name} is not a file or folder, and the dataset cannot be loaded from the hub "
                f"({type(error).__name__}: {str(error).splitlines()[0]}).",
                "Sources without the hub: files, folders, python.",
            ) from error

    def iterate_documents(self, first: int = 0) -> Iterator[Document]:
        for row in self.dataset.skip(first):
            if self.field not in row:
                columns = f"Fields: {', '.join(row)}."
                message = f"there is no field {self.field!r}."
                raise ConfigError(ConfigIssue("text", "unknown_text_field", message, columns, source=self.name))
            yield encode_text(row[self.field], self.field, self.name)
