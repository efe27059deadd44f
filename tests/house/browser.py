"""A page as a person sees it: Debian's Chromium, without a window, and a list of what the page asked for."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

NAMES = ("chromium", "chromium-browser", "google-chrome")
# a browser that runs as root has no sandbox; the others keep it from talking to its maker
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE = 60_000  # milliseconds that anything on a page may take to appear


def chromium() -> str | None:
    """A browser on this machine; playwright's own would have to be downloaded."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class Window:
    """A page that is open, and what it did."""

    page: Any
    errors: list[str] = field(default_factory=list)  # of its scripts
    asked: list[str] = field(default_factory=list)  # every address it turned to

    @property
    def hosts(self) -> set[str]:
        """Whom it talked to; files and data are nobody."""
        return {
            urlsplit(address).hostname or "" for address in self.asked if not address.startswith(("file:", "data:"))
        }

    def count(self, selector: str) -> int:
        return int(self.page.locator(selector).count())

    def texts(self, selector: str) -> list[str]:
        return [text.strip() for text in self.page.locator(selector).all_inner_texts()]


@contextmanager
def opened(address: str, width: int = 1500, height: int = 1000) -> Iterator[Window]:
    """The page at this address."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium(), args=list(FLAGS), timeout=PATIENCE)
        try:
            page = browser.new_context(viewport={"width": width, "height": height}).new_page()
            page.set_default_timeout(PATIENCE)
            window = Window(page)
            page.on("request", lambda request: window.asked.append(request.url))
            page.on("pageerror", lambda error: window.errors.append(str(error)))
            page.on("console", lambda told: window.errors.append(told.text) if told.type == "error" else None)
            page.goto(address)
            yield window
        finally:
            browser.close()


def without_panels(window: Window) -> None:
    """MLflow opens its assistant and tells about the saved view; both can be closed."""
    for name in ("Close", "Close assistant"):
        for button in window.page.get_by_role("button", name=name).all():
            if button.is_visible():
                button.click()
