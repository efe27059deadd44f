"""Draw docs/images/timings.svg: which memory holds which token, for each timing.

    .venv/bin/python docs/figures/timings.py

A row is a step, a column a token; both colors mean both memories.  The figure is drawn from the masks of `Schedule`, so
it shows what is computed; a test compares the file with the output of this script.
"""

from pathlib import Path

import hqlt_lab as lab

FILE = Path(__file__).parents[1] / "images/timings.svg"
TIMINGS = ("synchronous", "delayed_stream", "delayed_chunk")
TOKENS, WINDOW, STEP = 12, 4, 9  # STEP is the row that is described below the panel
FW, KV = "#3f6fb5", "#e8963a"
CELL, LEFT, TOP, PANEL_WIDTH = 20, 46, 72, 300  # layout of a panel, in pixels


def draw_figure() -> str:
    """Return the figure as SVG."""
    width, height = len(TIMINGS) * PANEL_WIDTH, TOP + TOKENS * CELL + 92
    panels = "\n".join(draw_panel(name, PANEL_WIDTH * number) for number, name in enumerate(TIMINGS))
    letters = 'font-family="sans-serif" font-size="12" fill="#333"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {letters}>
<title>Which memory holds which token: {", ".join(TIMINGS)}; window {WINDOW}</title>
<rect width="{width}" height="{height}" rx="8" fill="#fbfbfb"/>
{panels}
{draw_legend(height - 18)}
</svg>
"""


def draw_panel(name: str, x: int) -> str:
    """Draw one timing: what is visible at every step, and a description of one step."""
    schedule = lab.build("timing", {"name": name, "window": WINDOW})
    fw, kv = schedule.fast_weight_mask(TOKENS).tolist(), schedule.softmax_mask(TOKENS).tolist()
    x += LEFT
    cells = [draw_cell(x + s * CELL, TOP + t * CELL, fw[t][s], kv[t][s]) for t in range(TOKENS) for s in range(t + 1)]
    row = f'<rect x="{x - 2}" y="{TOP + STEP * CELL - 1}" width="{(STEP + 1) * CELL + 2}" height="{CELL}" '
    steps = (draw_text(x - 8, TOP + t * CELL + 14, t, "end") for t in range(0, TOKENS, 3))
    tokens = (draw_text(x + s * CELL + 9, TOP - 6, s, "middle") for s in range(0, TOKENS, 3))
    below = TOP + TOKENS * CELL
    return "\n".join(
        [
            draw_text(x, 26, name, weight="bold", size=15),
            draw_text(x, 50, "token →"),
            draw_text(x - 8, TOP + CELL + 14, "step ↓", "end", size=9),
            *tokens,
            *steps,
            *cells,
            row + 'fill="none" stroke="#333" stroke-width="2" rx="3"/>',
            draw_text(x, below + 22, f"at step {STEP}: softmax sees {format_token_range(kv[STEP])},"),
            draw_text(x, below + 40, f"fast weights hold {format_token_range(fw[STEP])}"),
        ]
    )


def draw_cell(x: int, y: int, in_fw: bool, in_kv: bool) -> str:
    """Draw one token at one step; a token in both memories is split along the diagonal."""
    side = CELL - 2
    if in_fw and in_kv:
        diagonal = f"{x},{y} {x + side},{y + side}"
        lower, upper = f"{diagonal} {x},{y + side}", f"{diagonal} {x + side},{y}"
        return f'<polygon points="{lower}" fill="{FW}"/><polygon points="{upper}" fill="{KV}"/>'
    fill = FW if in_fw else KV if in_kv else "none"
    return f'<rect x="{x}" y="{y}" width="{side}" height="{side}" fill="{fill}"/>'


def draw_legend(y: int) -> str:
    """Draw the legend of the colors."""
    entries = (("in the fast weights", True, False), ("in the softmax window", False, True), ("in both", True, True))
    return "\n".join(
        draw_cell(LEFT + 200 * number, y - 14, fw, kv) + draw_text(LEFT + 26 + 200 * number, y, label)
        for number, (label, fw, kv) in enumerate(entries)
    )


def draw_text(x: int, y: int, content: object, anchor: str = "start", weight: str = "normal", size: int = 12) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" font-size="{size}">{content}</text>'


def format_token_range(visible: list[bool]) -> str:
    """Return the visible tokens as "2 to 5"; they are contiguous in every timing that is drawn."""
    tokens = [s for s, is_visible in enumerate(visible) if is_visible]
    assert tokens == list(range(tokens[0], tokens[-1] + 1)), "the visible tokens are not contiguous"
    return f"{tokens[0]} to {tokens[-1]}"


if __name__ == "__main__":
    FILE.write_text(draw_figure())
