"""Templates of `hqlt new`: KIND.txt, and KIND.FORM.txt where a kind has several forms.

Each template is a component that passes the conformance checks before it is edited.
"""

import re
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from string import Template

from hqlt_lab.errors import RegistryError, did_you_mean, format_names, join_sentences
from hqlt_lab.registry import list_components_of_kind

DEFAULT_FORMS = {"update_rule": "scalar"}  # the form of KIND.txt where a kind has several


def list_forms() -> dict[str, list[str]]:
    """Return the forms of every kind that has a template; of most kinds, none."""
    forms_by_kind: dict[str, list[str]] = {}
    for name in sorted(file.name for file in files(__name__).iterdir() if file.name.endswith(".txt")):
        kind, *form = name.removesuffix(".txt").split(".")
        forms = forms_by_kind.setdefault(kind, [])
        if not form and kind in DEFAULT_FORMS:
            form = [DEFAULT_FORMS[kind]]
        forms += form
    return forms_by_kind


def read_template(kind: str, form: str | None) -> str:
    """Return the template of a kind; raise RegistryError with the existing kinds or forms if there is none."""
    forms_by_kind = list_forms()
    if kind not in forms_by_kind:
        hint = join_sentences(did_you_mean(kind, forms_by_kind), f"Templates: {format_names(forms_by_kind)}.")
        raise RegistryError.at("kind", "unknown_template", f"there is no template for {kind!r}.", hint)
    forms = forms_by_kind[kind]
    if form is not None and form not in forms:
        remedy = f"Forms: {format_names(forms)}." if forms else "Leave --form out."
        hint = join_sentences(did_you_mean(form, forms), remedy)
        raise RegistryError.at("--form", "unknown_form", f"{kind} has no form {form!r}.", hint)
    is_default = form is None or form == DEFAULT_FORMS.get(kind)
    return files(__name__).joinpath(f"{kind}.txt" if is_default else f"{kind}.{form}.txt").read_text()


def write_component(kind: str, name: str, folder: Path, form: str | None = None) -> Path:
    """Write the template of a kind to folder/name.py and return the path; never overwrite a file."""
    text = read_template(kind, form)
    if not name.isidentifier() or name != name.lower():
        message = f"{name!r} is not a name of lower_case letters, digits and underscores."
        raise RegistryError.at("name", "invalid_component_name", message)
    if name in list_components_of_kind(kind):
        message = f"the {kind} {name!r} already exists."
        raise RegistryError.at("name", "component_exists", message, "Use another name.")
    file = folder / f"{name}.py"
    if file.exists():
        raise RegistryError.at("name", "file_exists", f"{file} already exists.")
    title = name.replace("_", " ")
    class_name = title.title().replace(" ", "")
    if iskeyword(name) or iskeyword(title.title()) or re.search(rf"\b{class_name}\b", text):
        message = f"{name!r} is reserved by Python or by the template."
        raise RegistryError.at("name", "reserved_name", message, "Use another name.")
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(Template(text).substitute(name=name, Class=class_name, Title=title.capitalize()))
    return file
