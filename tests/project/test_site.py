"""The documentation site builds without warnings, its links and images resolve, and it loads nothing from elsewhere."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.project.browser import find_chromium, open_page
from tests.project.doc_pages import GUIDE, ROOT

pytestmark = pytest.mark.slow


class PageLinks(HTMLParser):
    """Links, resources and anchors of an HTML page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.resources, self.anchors = [], [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.add(values.get("id") or values.get("name") or "")
        if tag in ("img", "script", "link", "source") and (address := values.get("src") or values.get("href")):
            (self.links if values.get("rel") in ("next", "prev", "canonical") else self.resources).append(address)
        elif tag == "a" and "href" in values:
            self.links.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder of the site, built in strict mode."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # as in the Makefile: the warning is an advertisement
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr and "excluded from the built site" not in result.stderr
    return folder


def test_every_page_of_the_guide_is_in_the_site(site):
    for page in GUIDE:
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    assert (site / "experiments/index.html").exists() and (site / "CHANGELOG.html").exists()


def test_links_and_images_of_the_site_resolve(site):
    pages = {file: PageLinks(file.read_text()) for file in site.rglob("*.html") if file.name != "404.html"}
    assert len(pages) > len(GUIDE)
    for file, page_links in pages.items():
        for address in [*page_links.links, *page_links.resources]:
            scheme, _, path, _, fragment = urlsplit(address)
            if scheme in ("https", "mailto", "data"):
                continue
            target = (file.parent / unquote(path)).resolve() if path else file
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{file.relative_to(site)}: {address}"
            if fragment and target in pages:
                assert unquote(fragment) in pages[target].anchors, f"{file.relative_to(site)}: {address}"


def test_site_loads_no_resources_from_other_hosts(site):
    for file in site.rglob("*.html"):
        assert not [address for address in PageLinks(file.read_text()).resources if urlsplit(address).netloc], file


@pytest.mark.skipif(find_chromium() is None, reason="No browser.")
def test_page_opens_from_disk_with_its_figure(site):
    with open_page(Path(site / "how_it_works.html").as_uri()) as window:
        assert window.read_texts("h1")[0].startswith("How it works")
        image = window.page.locator("img[src$='timings.svg']")
        assert image.evaluate("image => image.naturalWidth") > 0
        assert window.contacted_hosts <= {""}
