"""Draws which memory holds which token, for each timing, from the lab's own schedules: docs/images/timings.svg.

    .venv/bin/python docs/figures/timings.py

A row is a step, a column a token; both colours mean both memories.  Nothing is drawn that `Schedule` does not say, so
the picture cannot differ from what is computed; a test compares the file with what this draws.
"""

from pathlib import Path

import hqlt_lab as lab

FILE = Path(__file__).parents[1] / "images/timings.svg"
TIMINGS = ("synchronous", "delayed_stream", "delayed_chunk")
TOKENS, WINDOW, STEP = 12, 4, 9  # STEP is the row that is told in words
FW, KV = "#3f6fb5", "#e8963a"
CELL, LEFT, TOP, APART = 20, 46, 72, 300  # of a panel, in pixels


def draw() -> str:
    """The whole picture."""
    width, height = len(TIMINGS) * APART, TOP + TOKENS * CELL + 92
    panels = "\n".join(panel(name, APART * number) for number, name in enumerate(TIMINGS))
    letters = 'font-family="sans-serif" font-size="12" fill="#333"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {letters}>
<title>Which memory holds which token: {", ".join(TIMINGS)}; window {WINDOW}</title>
<rect width="{width}" height="{height}" rx="8" fill="#fbfbfb"/>
{panels}
{legend(height - 18)}
</svg>
"""


def panel(name: str, x: int) -> str:
    """One timing: what is seen at every step, and one step in words."""
    schedule = lab.build("timing", {"name": name, "window": WINDOW})
    fw, kv = schedule.fast_weights_see(TOKENS).tolist(), schedule.softmax_sees(TOKENS).tolist()
    x += LEFT
    cells = [cell(x + s * CELL, TOP + t * CELL, fw[t][s], kv[t][s]) for t in range(TOKENS) for s in range(t + 1)]
    row = f'<rect x="{x - 2}" y="{TOP + STEP * CELL - 1}" width="{(STEP + 1) * CELL + 2}" height="{CELL}" '
    steps = (text(x - 8, TOP + t * CELL + 14, t, "end") for t in range(0, TOKENS, 3))
    tokens = (text(x + s * CELL + 9, TOP - 6, s, "middle") for s in range(0, TOKENS, 3))
    below = TOP + TOKENS * CELL
    return "\n".join(
        [
            text(x, 26, name, weight="bold", size=15),
            text(x, 50, "token →"),
            text(x - 8, TOP + CELL + 14, "step ↓", "end", size=9),
            *tokens,
            *steps,
            *cells,
            row + 'fill="none" stroke="#333" stroke-width="2" rx="3"/>',
            text(x, below + 22, f"at step {STEP}: softmax sees {told(kv[STEP])},"),
            text(x, below + 40, f"fast weights hold {told(fw[STEP])}"),
        ]
    )


def cell(x: int, y: int, in_fw: bool, in_kv: bool) -> str:
    """One token at one step; both memories share a square along its diagonal."""
    side = CELL - 2
    if in_fw and in_kv:
        from_to = f"{x},{y} {x + side},{y + side}"
        lower, upper = f"{from_to} {x},{y + side}", f"{from_to} {x + side},{y}"
        return f'<polygon points="{lower}" fill="{FW}"/><polygon points="{upper}" fill="{KV}"/>'
    fill = FW if in_fw else KV if in_kv else "none"
    return f'<rect x="{x}" y="{y}" width="{side}" height="{side}" fill="{fill}"/>'


def legend(y: int) -> str:
    """What the colours mean."""
    entries = (("in the fast weights", True, False), ("in the softmax window", False, True), ("in both", True, True))
    return "\n".join(
        cell(LEFT + 200 * number, y - 14, fw, kv) + text(LEFT + 26 + 200 * number, y, words)
        for number, (words, fw, kv) in enumerate(entries)
    )


def text(x: int, y: int, words: object, anchor: str = "start", weight: str = "normal", size: int = 12) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" font-size="{size}">{words}</text>'


def told(seen: list[bool]) -> str:
    """The tokens of a row as people say it; they are neighbours in every timing that is drawn."""
    found = [s for s, there in enumerate(seen) if there]
    assert found == list(range(found[0], found[-1] + 1)), "not one stretch of tokens"
    return f"{found[0]} to {found[-1]}"


if __name__ == "__main__":
    FILE.write_text(draw())
