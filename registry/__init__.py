"""Names to makers: the lab finds every interchangeable part by its kind and name.

    @register("mixer", "sum")
    class Sum(nn.Module): ...

    available("mixer")                    -> ["fw_only", "kv_only", "scalar", ...]
    describe("mixer", "vector")           -> its words, options, file and line
    build("mixer", "vector", width=64)    -> the part itself

A maker is a class or a function.  Its signature is its contract: what the lab offers by name (`width`, `heads`) is
handed over where it is asked for, everything else is an option of the part, with its type and default.
This room knows no torch; a shelf of parts is imported when the first part of its kind is looked up.
"""

assert __name__ == "hqlt_lab.registry", "import hqlt_lab.registry: the bare folder name makes a second, empty registry"

from hqlt_lab.registry.blame import blamed, outside_parts
from hqlt_lab.registry.build import build, split
from hqlt_lab.registry.entries import Entry, available, describe, find, register, temporarily, typed
from hqlt_lab.registry.kinds import KINDS, Kind
from hqlt_lab.registry.options import Option, fits, options, spelled
from hqlt_lab.registry.outside import AGAIN, OtherCode, declared, hand_on, include, included, installed, listed_here
from hqlt_lab.registry.sentences import sentences
from hqlt_lab.registry.settings import settings_from, too_large, too_small
from hqlt_lab.registry.shelves import names_in, open_shelf, titles

__all__ = [
    "AGAIN",
    "KINDS",
    "Entry",
    "Kind",
    "Option",
    "OtherCode",
    "available",
    "blamed",
    "build",
    "declared",
    "describe",
    "find",
    "fits",
    "hand_on",
    "include",
    "included",
    "installed",
    "listed_here",
    "names_in",
    "open_shelf",
    "options",
    "outside_parts",
    "register",
    "sentences",
    "settings_from",
    "spelled",
    "split",
    "temporarily",
    "titles",
    "too_large",
    "too_small",
    "typed",
]
