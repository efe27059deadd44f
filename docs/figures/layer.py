"""Draw docs/images/layer.svg: the two memories of a layer, and which component decides what.

    .venv/bin/python docs/figures/layer.py

The names of the components are those of the registry; a test compares the file with the output of this script.
"""

from pathlib import Path

from hqlt_lab.registry import available

FILE = Path(__file__).parents[1] / "images/layer.svg"
FW, KV, MIX, LINE = "#3f6fb5", "#e8963a", "#5b8c5a", "#666"
WIDTH, HEIGHT = 900, 290
NAMES_PER_LINE = 3


def draw_figure() -> str:
    """Return the figure as SVG."""
    attention = f"attention: {', '.join(available('attention'))}"
    softmax = ["softmax attention (KV)", "exact, over a window", attention, "positions:", *list_names("positions")]
    fast_weights = ["fast weights (FW)", "fixed size, any length", "update_rule:", *list_names("update_rule", 4)]
    letters = 'font-family="sans-serif" font-size="13" fill="#333"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {letters}>
<title>A layer: tokens enter softmax attention and fast weights, and a mixer combines the two outputs</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0,0 L8,4 L0,8 z" fill="{LINE}"/></marker></defs>
<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fbfbfb"/>
{draw_box(20, 105, 80, 60, LINE, ["tokens", "q, k, v"])}
{draw_box(130, 72, 165, 126, LINE, ["timing", "when a token enters", "which memory", *list_names("timing", 1)])}
{draw_box(335, 15, 300, 100, KV, softmax)}
{draw_box(335, 130, 300, 146, FW, fast_weights)}
{draw_box(675, 68, 185, 134, MIX, ["mixer", "combines both outputs", *list_names("mixer", 2)])}
{draw_arrow(100, 135, 130, 135)}
{draw_arrow(295, 115, 335, 75)}
{draw_arrow(295, 155, 335, 195)}
{draw_arrow(635, 75, 675, 110)}
{draw_arrow(635, 195, 675, 160)}
{draw_arrow(860, 135, 895, 135)}
</svg>
"""


def list_names(kind: str, per_line: int = NAMES_PER_LINE) -> list[str]:
    """Return the registered names of a kind, several in a line."""
    names = available(kind)
    return [", ".join(names[start : start + per_line]) for start in range(0, len(names), per_line)]


def draw_box(x: int, y: int, width: int, height: int, color: str, lines: list[str]) -> str:
    """Draw a box with a title, an explanation and component names."""
    shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="white" stroke="{color}" '
    middle, first = x + width / 2, y + height / 2 - 8 * (len(lines) - 1) + 4
    texts = [
        f'<text x="{middle:g}" y="{first + 16 * number:g}" text-anchor="middle" {text_style(number)}>{line}</text>'
        for number, line in enumerate(lines)
    ]
    return "\n".join([f'{shape}stroke-width="2"/>', *texts])


def text_style(number: int) -> str:
    """Return the style of a line in a box: a bold title, then an explanation, then names."""
    return 'font-weight="bold" font-size="14"' if number == 0 else 'font-size="12"'


def draw_arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{LINE}" stroke-width="1.5" marker-end="url(#tip)"/>'


if __name__ == "__main__":
    FILE.write_text(draw_figure())
