"""Files that `hqlt new` writes: KIND.txt, and KIND.FORM.txt where a part can be written in another way.

Each is a part that conforms as it is and waits to be changed.
"""

import re
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from string import Template

from hqlt_lab.errors import RegistryError, did_you_mean, listed
from hqlt_lab.registry import available


def forms() -> dict[str, list[str]]:
    """Of every kind that has a template, the other ways to write it."""
    found: dict[str, list[str]] = {}
    for name in sorted(file.name for file in files(__name__).iterdir() if file.name.endswith(".txt")):
        kind, *form = name.removesuffix(".txt").split(".")
        found.setdefault(kind, []).extend(form)
    return found


def template(kind: str, form: str | None) -> str:
    """The text of a kind, or a sentence that says which there are."""
    known = forms()
    if kind not in known:
        raise RegistryError(
            f"There is no template for {kind!r}.{did_you_mean(kind, known)} Templates: {listed(known)}."
        )
    if form is not None and form not in known[kind]:
        there = f"Forms: {listed(known[kind])}." if known[kind] else "Leave --form out."
        raise RegistryError(f"--form {form}: {kind} has no such form.{did_you_mean(form, known[kind])} {there}")
    return files(__name__).joinpath(f"{kind}.txt" if form is None else f"{kind}.{form}.txt").read_text()


def write(kind: str, name: str, folder: Path, form: str | None = None) -> Path:
    """Write the template of that kind under a new name; nothing that exists is overwritten."""
    text = template(kind, form)
    if not name.isidentifier() or name != name.lower():
        raise RegistryError(f"{name!r}: a name is lower_case letters, digits and underscores.")
    if name in available(kind):
        raise RegistryError(f"{kind} {name!r} exists already; a name never changes its meaning. Take another.")
    file = folder / f"{name}.py"
    if file.exists():
        raise RegistryError(f"{file} exists already.")
    title = name.replace("_", " ")
    if iskeyword(name) or iskeyword(title.title()) or re.search(rf"\b{title.title().replace(' ', '')}\b", text):
        raise RegistryError(f"{name!r}: Python, or the file itself, has another use for that name. Take another.")
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(
        Template(text).substitute(name=name, Class=title.title().replace(" ", ""), Title=title.capitalize())
    )
    return file
