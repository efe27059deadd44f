"""Open pages in headless Chromium and record their errors and requests."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

BROWSER_NAMES = ("chromium", "chromium-browser", "google-chrome")
# Chromium as root needs --no-sandbox; the other flags prevent it from contacting Google.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
TIMEOUT_MS = 60_000  # milliseconds until an element of a page must appear


def find_chromium() -> str | None:
    """Return the path of an installed browser; playwright's own would have to be downloaded."""
    return next(filter(None, map(shutil.which, BROWSER_NAMES)), None)


@dataclass
class BrowserWindow:
    """An open page, with its errors and requests."""

    page: Any
    errors: list[str] = field(default_factory=list)  # of its scripts
    requested_urls: list[str] = field(default_factory=list)  # all of them

    @property
    def contacted_hosts(self) -> set[str]:
        """Hosts that the page contacted; file: and data: URLs have none."""
        urls = [url for url in self.requested_urls if not url.startswith(("file:", "data:"))]
        return {urlsplit(url).hostname or "" for url in urls}

    def count_elements(self, selector: str) -> int:
        return int(self.page.locator(selector).count())

    def read_texts(self, selector: str) -> list[str]:
        return [text.strip() for text in self.page.locator(selector).all_inner_texts()]


@contextmanager
def open_page(address: str, width: int = 1500, height: int = 1000) -> Iterator[BrowserWindow]:
    """Open the page at this address."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=find_chromium(), args=list(FLAGS), timeout=TIMEOUT_MS)
        try:
            page = browser.new_context(viewport={"width": width, "height": height}).new_page()
            page.set_default_timeout(TIMEOUT_MS)
            window = BrowserWindow(page)
            page.on("request", lambda request: window.requested_urls.append(request.url))
            page.on("pageerror", lambda error: window.errors.append(str(error)))
            page.on("console", lambda message: window.errors.append(message.text) if message.type == "error" else None)
            page.goto(address)
            yield window
        finally:
            browser.close()


def close_panels(window: BrowserWindow) -> None:
    """Close the panels that MLflow opens: its assistant and the note on the saved view."""
    for name in ("Close", "Close assistant"):
        for button in window.page.get_by_role("button", name=name).all():
            if button.is_visible():
                button.click()
