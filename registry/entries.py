"""The book of registered parts: write in it, look in it, restore it."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from hqlt_lab.errors import RegistryError, did_you_mean, listed
from hqlt_lab.registry.kinds import KINDS, kind_named
from hqlt_lab.registry.outside import forget, included, left_out
from hqlt_lab.registry.shelves import stock

Maker = TypeVar("Maker", bound=Callable[..., Any])

_book: dict[tuple[str, str], Callable[..., Any]] = {}
OWN = " One of your own comes in with its file: hqlt --with FILE.py ..."


@dataclass(frozen=True)
class Entry:
    """What is known of a part without making it."""

    kind: str
    name: str
    maker: Callable[..., Any]
    doc: str
    file: str
    line: int

    @property
    def idea(self) -> str:
        """The first sentence of its words."""
        first = self.doc.split("\n\n")[0].replace("\n", " ").strip()
        return first[:1].upper() + first[1:]


def register(kind: str, name: str) -> Callable[[Maker], Maker]:
    """Make a class or function known as `name`.  A reloaded cell or module may register its own again."""
    kind_named(kind)
    if not name.isidentifier() or name != name.lower():
        raise RegistryError(f"{kind} {name!r}: a name is lower_case letters, digits and underscores.")

    def note(maker: Maker) -> Maker:
        known = _book.get((kind, name))
        if known is not None and _origin(known) != _origin(maker):
            ours, theirs = sorted(
                (_origin(known), _origin(maker)), key=lambda origin: not origin.startswith("hqlt_lab.")
            )
            raise RegistryError(f"{kind} {name!r} is already registered by {ours}; {theirs} needs another name.")
        _book[kind, name] = maker
        return maker

    return note


def available(kind: str, pattern: str = "*") -> list[str]:
    """The names of that kind, in alphabetical order; `pattern` may hold wildcards (`*delta*`)."""
    kind_named(kind)
    stock(kind)
    return sorted(name for known, name in _book if known == kind and fnmatchcase(name, canonical(pattern)))


def find(kind: str, name: str, at: str | None = None) -> Callable[..., Any]:
    """The maker of that name.  `at` is where the name was written (`model.mixer`), for the error."""
    kind_named(kind)
    stock(kind)
    maker = _book.get((kind, canonical(name))) if isinstance(name, str) else None
    if maker is None:
        names = available(kind)
        nearest = did_you_mean(str(name), names)
        if isinstance(name, bool):
            nearest = " YAML reads yes, no, on and off as true and false: quote the name, or write another."
        raise RegistryError(
            f"{at or kind}: no {kind} is called {name!r}.{nearest} Available: {listed(names)}."
            f"{left_out(canonical(str(name))) or (OWN if not nearest else '')}"
        )
    return maker


def describe(kind: str, name: str) -> Entry:
    """A part's words, file and line: what `hqlt show` prints."""
    maker = find(kind, name)
    module = inspect.getmodule(maker)
    doc = inspect.getdoc(maker) if has_words(maker) else module and inspect.getdoc(module)
    try:
        file, line = inspect.getsourcefile(maker) or "?", inspect.getsourcelines(maker)[1]
    except (OSError, TypeError):  # defined at a prompt
        file, line = "?", 0
    return Entry(kind, canonical(name), maker, doc or "", file, line)


def has_words(maker: Callable[..., Any]) -> bool:
    """Whether someone wrote a docstring for it: a class inherits its base's, a dataclass writes down its signature."""
    words = (vars(maker).get("__doc__") if inspect.isclass(maker) else maker.__doc__) or ""
    return bool(words) and not (is_dataclass(maker) and words.startswith(f"{maker.__name__}("))


@contextmanager
def temporarily() -> Iterator[None]:
    """Forget on leaving whatever was registered inside: for tests."""
    for kind in KINDS:
        stock(kind)  # a shelf that is first opened inside must not be forgotten: its files are imported only once
    before, files = dict(_book), set(included())
    try:
        yield
    finally:
        _book.clear()
        _book.update(before)
        forget(set(included()) - files)


def typed() -> bool:
    """Whether a part was typed at a prompt or in a notebook, where there is no file to look at."""
    outside = {maker.__module__ for maker in _book.values() if not maker.__module__.startswith("hqlt_lab.")}
    return any(not getattr(sys.modules.get(module), "__file__", None) for module in outside)


def canonical(name: str) -> str:
    """Hyphens are accepted for underscores."""
    return name.replace("-", "_")


def _origin(maker: Callable[..., Any]) -> str:
    return f"{maker.__module__}.{maker.__qualname__}"
