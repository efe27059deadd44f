"""Files that `hqlt new` writes: one per kind, a part that conforms as it is and waits to be changed."""

import re
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from string import Template

from hqlt_lab.errors import RegistryError, did_you_mean, listed
from hqlt_lab.registry import available


def write(kind: str, name: str, folder: Path) -> Path:
    """Write the template of that kind under a new name; nothing that exists is overwritten."""
    kinds = sorted(file.name.removesuffix(".txt") for file in files(__name__).iterdir() if file.name.endswith(".txt"))
    if kind not in kinds:
        raise RegistryError(
            f"There is no template for {kind!r}.{did_you_mean(kind, kinds)} Templates: {listed(kinds)}."
        )
    if not name.isidentifier() or name != name.lower():
        raise RegistryError(f"{name!r}: a name is lower_case letters, digits and underscores.")
    if name in available(kind):
        raise RegistryError(f"{kind} {name!r} exists already; a name never changes its meaning. Take another.")
    file = folder / f"{name}.py"
    if file.exists():
        raise RegistryError(f"{file} exists already.")
    text = files(__name__).joinpath(f"{kind}.txt").read_text()
    title = name.replace("_", " ")
    if iskeyword(name) or iskeyword(title.title()) or re.search(rf"\b{title.title().replace(' ', '')}\b", text):
        raise RegistryError(f"{name!r}: Python, or the file itself, has another use for that name. Take another.")
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(
        Template(text).substitute(name=name, Class=title.title().replace(" ", ""), Title=title.capitalize())
    )
    return file
