"""An episode for people: a GIF, a frame per step, with what the agent does not see paler."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hqlt_lab.agent.episodes import Actor
from hqlt_lab.tasks._world import Bytes, Scene

FILE = "episode.gif"
CELL = 16  # pixels
MOST, LAST = 150, 40  # frames of a long episode: all of its last ones, and as many of the others as there is room for
MILLISECONDS, PAUSE = 120, 1500


def film(scene: Scene, actor: Actor) -> list[Bytes]:
    """The first episode of a scene, from its beginning to its end."""
    frames = [scene.picture()[0]]
    while not scene.ended[0]:
        scene.act(actor(scene.observe()))
        frames.append(scene.picture()[0])
    return frames


def write_film(file: Path, frames: Sequence[Bytes]) -> None:
    """As a GIF that stands still for a moment at its end."""
    from PIL import Image

    kept = list(frames)
    if len(kept) > MOST:
        chosen = np.linspace(0, len(kept) - LAST, MOST - LAST, endpoint=False).astype(int)
        kept = [kept[number] for number in chosen] + kept[-LAST:]
    first, *others = (Image.fromarray(frame.repeat(CELL, 0).repeat(CELL, 1)) for frame in kept)
    times = [MILLISECONDS] * len(others) + [PAUSE]
    first.save(file, save_all=True, append_images=others, duration=times, loop=0)
