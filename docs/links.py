"""The site is the repository seen from its docs: what a page links to outside of docs/ becomes part of the site.

On disk and on GitHub a page says `../experiments/README.md`.  A site has no place above its front page, so the folder
docs/ becomes the site's root, everything else lies where it lies in the repository, and links are turned accordingly:

    docs/reports.md -> reports.md        experiments/README.md -> experiments/README.md        README.md -> index.md

mkdocs calls the functions that begin with `on_`.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
BESIDE = ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE")
SHELVES = ("experiments", "components")
ENDINGS = ("md", "yaml", "py", "html")
LINK = re.compile(r"(\]\()(?!\w+:|#|/)([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add what lies beside docs/."""
    found = [ROOT / name for name in BESIDE]
    for shelf in SHELVES:
        found += (file for ending in ENDINGS for file in sorted((ROOT / shelf).rglob(f"*.{ending}")))
    found = [file for file in found if (file.parent.name, file.suffix) != ("answers", ".md")]  # beside each is its page
    for file in found:
        files.append(File.generated(config, file.relative_to(ROOT).as_posix(), abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of a page."""
    here = posixpath.dirname(in_repository(page.file))
    return LINK.sub(lambda found: found[1] + turned(found[2], here, posixpath.dirname(page.file.src_uri)), markdown)


def in_repository(file: Any) -> str:
    """Where a page of the site lies on disk, from the repository's root."""
    return str(file.src_uri) if file.generated_by else f"docs/{file.src_uri}"


def turned(link: str, here: str, there: str) -> str:
    """A link of a file in the folder `here` of the repository, as its page in `there` of the site says it."""
    target = posixpath.normpath(posixpath.join(here, link))
    in_site = "index.md" if target == "README.md" else target.removeprefix("docs/")
    return posixpath.relpath(in_site, there or ".")
