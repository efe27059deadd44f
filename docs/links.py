"""mkdocs hooks that add the files outside of docs/ to the site and rewrite the links to them.

On disk and on GitHub a page links to `../experiments/README.md`.  A site has no folder above its front page, so docs/
becomes the site's root, all other files keep their paths in the repository, and links are rewritten accordingly:

    docs/reports.md -> reports.md        experiments/README.md -> experiments/README.md        README.md -> index.md

mkdocs calls the functions whose names begin with `on_`.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ROOT_FILES = ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE")
LINKED_FOLDERS = ("experiments", "components")
SUFFIXES = ("md", "yaml", "py", "svg")
LINK = re.compile(r"(\]\()(?!\w+:|#|/)([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add the linked files outside of docs/ to the site."""
    paths = [ROOT / name for name in ROOT_FILES]
    for folder in LINKED_FOLDERS:
        paths += (file for suffix in SUFFIXES for file in sorted((ROOT / folder).rglob(f"*.{suffix}")))
    for file in paths:
        files.append(File.generated(config, file.relative_to(ROOT).as_posix(), abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the relative links of a page."""
    source_folder, site_folder = posixpath.dirname(repository_path(page.file)), posixpath.dirname(page.file.src_uri)
    return LINK.sub(lambda match: match[1] + rewrite_link(match[2], source_folder, site_folder), markdown)


def repository_path(file: Any) -> str:
    """Return the path of a page's file relative to the repository's root."""
    return str(file.src_uri) if file.generated_by else f"docs/{file.src_uri}"


def rewrite_link(link: str, source_folder: str, site_folder: str) -> str:
    """Turn a link relative to a folder of the repository into one relative to a folder of the site."""
    target = posixpath.normpath(posixpath.join(source_folder, link))
    in_site = "index.md" if target == "README.md" else target.removeprefix("docs/")
    return posixpath.relpath(in_site, site_folder or ".")
