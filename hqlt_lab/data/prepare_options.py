"""The options of `hqlt data prepare`.  Equal requests produce byte-identical data, even if interrupted and resumed."""

from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from hqlt_lab.errors import ConfigError, ConfigIssue

SOURCE_FIELDS = ("source", "text", "config", "split")
# what `assign_split` hashes; recorded, so that a preparation begun with another rule is not resumed
SPLIT_RULE = "text without white space"


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareRequest:
    """Source, tokenizer and held-out shares of the data to prepare."""

    source: str
    """python, a file, a folder, or a Hugging Face dataset."""
    text: str = "text"
    """Field or column that contains the text."""
    config: str | None = None
    """Configuration of the dataset."""
    split: str = "train"
    """Split of the dataset to read."""
    tokenizer: str = "bytes"
    """bytes, bpe, mistral, or a Hugging Face tokenizer."""
    vocabulary: int = 4096
    """Vocabulary size of a bpe tokenizer."""
    limit_documents: int | None = None
    """Maximum number of documents to read."""
    valid: float = 0.01
    """Share of documents held out for model selection."""
    test: float = 0.01
    """Share of documents held out for the reported test metrics."""
    shard_tokens: int = 1 << 28
    """Tokens per file."""

    def __post_init__(self) -> None:
        if issues := self._find_issues():
            raise ConfigError(*issues)

    def _find_issues(self) -> list[ConfigIssue]:
        shares = {"valid": self.valid, "test": self.test}
        invalid_shares = {name: share for name, share in shares.items() if isnan(share) or share < 0}
        issues = [
            ConfigIssue(name, "out_of_range", f"a fraction from 0 to 1 is needed, got {share}.")
            for name, share in invalid_shares.items()
        ]
        if sum(shares.values()) >= 1:
            message = f"with fractions of {self.valid} and {self.test}, no documents are left for training."
            issues.append(ConfigIssue("valid", "nothing_to_train_on", message, other_paths=("test",)))
        counts = {"limit_documents": self.limit_documents, "shard_tokens": self.shard_tokens}
        given = {name: number for name, number in counts.items() if number is not None}
        return issues + [
            ConfigIssue(name, "below_minimum", f"at least 1 is needed, got {number}.")
            for name, number in given.items()
            if number < 1
        ]

    @property
    def build_options(self) -> dict[str, Any]:
        """The options that do not describe the source.  `vocabulary` is None unless the tokenizer is bpe."""
        options = {name: value for name, value in asdict(self).items() if name not in SOURCE_FIELDS}
        options["split_by"] = SPLIT_RULE
        return options if self.tokenizer == "bpe" else options | {"vocabulary": None}
