"""Everything the lab complains about, in one tree.

    HqltError
    ├── RegistryError   a part that is not there, is there twice, or has no such option     (also a ValueError)
    ├── ConfigError     settings that do not make a model, a task or an experiment          (also a ValueError)
    ├── TrainingError   a run that cannot go on
    └── StoreError      a study, a tracking store or prepared data that cannot be read or written

A message has one shape: path, what is wrong in the reader's words, the nearest right thing, what there is or what to
do.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class HqltError(Exception):
    """The lab explains what went wrong; a traceback adds nothing."""


class RegistryError(HqltError, ValueError):
    """A part cannot be found, registered or given these options."""


class ConfigError(HqltError, ValueError):
    """These settings make no sense, or not together."""


class TrainingError(HqltError):
    """A run cannot go on."""


class StoreError(HqltError):
    """A store cannot be read or written."""


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """' Did you mean ...?' with the nearest of `words`, or nothing."""
    nearest = get_close_matches(str(word), list(words), n=1, cutoff=0.5)
    return f" Did you mean '{nearest[0]}'?" if nearest else ""


def listed(words: Iterable[str]) -> str:
    """'a, b, c', or 'none'."""
    return ", ".join(words) or "none"
