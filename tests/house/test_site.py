"""The guide as a site: it builds without a warning, every link and picture leads somewhere, nothing is fetched."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.house.browser import chromium, opened
from tests.house.pages import GUIDE, ROOT

pytestmark = pytest.mark.slow


class Addresses(HTMLParser):
    """What a page points to, and the places in it that can be pointed to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.places = [], [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        told = dict(attributes)
        self.places.add(told.get("id") or told.get("name") or "")
        if tag in ("img", "script", "link", "source") and (address := told.get("src") or told.get("href")):
            (self.links if told.get("rel") in ("next", "prev", "canonical") else self.loads).append(address)
        elif tag == "a" and "href" in told:
            self.links.append(told["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # it advertises, as the Makefile knows
    told = subprocess.run(words, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert "WARNING" not in told.stderr and "excluded from the built site" not in told.stderr
    return folder


def test_every_page_of_the_guide_is_in_the_site(site):
    for page in GUIDE:
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    assert (site / "experiments/index.html").exists() and (site / "CHANGELOG.html").exists()


def test_every_link_and_picture_of_the_site_leads_somewhere(site):
    pages = {file: Addresses(file.read_text()) for file in site.rglob("*.html") if file.name != "404.html"}
    assert len(pages) > len(GUIDE)
    for file, found in pages.items():
        for address in [*found.links, *found.loads]:
            scheme, _, path, _, place = urlsplit(address)
            if scheme in ("https", "mailto", "data"):
                continue
            target = (file.parent / unquote(path)).resolve() if path else file
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{file.relative_to(site)}: {address}"
            if place and target in pages:
                assert unquote(place) in pages[target].places, f"{file.relative_to(site)}: {address}"


def test_nothing_is_fetched_from_elsewhere(site):
    for file in site.rglob("*.html"):
        assert not [address for address in Addresses(file.read_text()).loads if urlsplit(address).netloc], file


@pytest.mark.skipif(chromium() is None, reason="No browser.")
def test_a_page_opens_from_the_disk_with_its_figure_drawn(site):
    with opened(Path(site / "how_it_works.html").as_uri()) as window:
        assert window.texts("h1")[0].startswith("How it works")
        picture = window.page.locator("img[src$='timings.svg']")
        assert picture.evaluate("image => image.naturalWidth") > 0
        assert window.hosts <= {""}
