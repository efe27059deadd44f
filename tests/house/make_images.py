"""The pictures of the docs, made anew from the demo: `make demo`, then `make images`.

docs/images/report_page.png       the top of the report's page
docs/images/mlflow_charts.png     the saved view in MLflow
docs/images/mlflow_table.png      the same runs as a table
"""

from pathlib import Path

from hqlt_lab.api import links, tracker_of
from hqlt_lab.errors import StoreError
from hqlt_lab.track.ports import any_port
from hqlt_lab.track.server import serve
from tests.house.browser import Window, opened, without_panels

STUDY = "first_run"
IMAGES = Path("docs/images")
LARGEST = 150_000  # bytes
SETTLING = 4_000  # milliseconds in which charts are drawn to their end


def main() -> None:
    page = Path("runs/studies", STUDY, "report.html").resolve()
    if not page.exists():
        raise StoreError(f"{page}: is not there. `make demo` makes it.")
    with opened(page.as_uri(), width=1280, height=1720) as window:
        keep(window, "report_page.png")
    with serve(tracker_of("runs"), any_port("127.0.0.1")) as address:
        link = dict(links(address))[STUDY]
        with opened(link, height=1350) as window:
            window.page.locator(".js-plotly-plot .scatterlayer path.js-line").first.wait_for()
            keep(window, "mlflow_charts.png")
        with opened(link.replace("CHART", "TABLE"), height=560) as window:
            window.page.locator("[role=gridcell]").first.wait_for()
            keep(window, "mlflow_table.png")


def keep(window: Window, name: str) -> None:
    """Take the picture, in few enough colours to be small."""
    from PIL import Image

    without_panels(window)
    window.page.wait_for_timeout(SETTLING)
    window.page.screenshot(path=IMAGES / name)
    with Image.open(IMAGES / name) as picture:
        picture.convert("RGB").quantize(128).save(IMAGES / name, optimize=True)
    size = (IMAGES / name).stat().st_size
    assert size <= LARGEST, f"{name} has {size} bytes; take a smaller part of the page."
    print(f"{IMAGES / name}: {size // 1000} kB")


if __name__ == "__main__":
    main()
