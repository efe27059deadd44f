"""Make the images of the docs from the demo: run `make demo`, then `make images`.

docs/images/report_page.png       the top of the report page
docs/images/mlflow_charts.png     the saved view in MLflow
docs/images/mlflow_table.png      the runs as a table
"""

from pathlib import Path

from hqlt_lab.api import list_study_links, resolve_tracking_store
from hqlt_lab.errors import StoreError
from hqlt_lab.track.ui.network import find_free_port
from hqlt_lab.track.ui.server import serve_ui
from tests.project.browser import BrowserWindow, close_panels, open_page

STUDY = "first_run"
IMAGES = Path("docs/images")
MAX_BYTES = 150_000
SETTLE_MS = 4_000  # milliseconds until charts are completely drawn


def main() -> None:
    page = Path("runs/studies", STUDY, "report.html").resolve()
    if not page.exists():
        raise StoreError(f"{page}: is not there. `make demo` makes it.")
    with open_page(page.as_uri(), width=1280, height=1720) as window:
        save_screenshot(window, "report_page.png")
    with serve_ui(resolve_tracking_store("runs"), find_free_port("127.0.0.1")) as address:
        link = dict(list_study_links(address))[STUDY]
        with open_page(link, height=1350) as window:
            window.page.locator(".js-plotly-plot .scatterlayer path.js-line").first.wait_for()
            save_screenshot(window, "mlflow_charts.png")
        with open_page(link.replace("CHART", "TABLE"), height=560) as window:
            window.page.locator("[role=gridcell]").first.wait_for()
            save_screenshot(window, "mlflow_table.png")


def save_screenshot(window: BrowserWindow, name: str) -> None:
    """Save a screenshot, quantized to few colors so that the file is small."""
    from PIL import Image

    close_panels(window)
    window.page.wait_for_timeout(SETTLE_MS)
    window.page.screenshot(path=IMAGES / name)
    with Image.open(IMAGES / name) as image:
        image.convert("RGB").quantize(128).save(IMAGES / name, optimize=True)
    size = (IMAGES / name).stat().st_size
    assert size <= MAX_BYTES, f"{name} has {size} bytes; take a smaller part of the page."
    print(f"{IMAGES / name}: {size // 1000} kB")


if __name__ == "__main__":
    main()
