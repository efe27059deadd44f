"""Record an episode as a GIF with one frame per step, in which cells outside the agent's view are paler."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hqlt_lab.agent.rollout import Actor
from hqlt_lab.tasks._environment import UInt8Array, VectorEnv

GIF_FILE = "episode.gif"
PIXELS_PER_CELL = 16
# of a long episode all of the last frames are kept, and the others are subsampled
MAX_FRAMES, LAST_FRAMES = 150, 40
FRAME_MILLISECONDS, PAUSE_MILLISECONDS = 120, 1500


def record_episode(env: VectorEnv, actor: Actor) -> list[UInt8Array]:
    """Run the first episode of a vector environment to its end and return its frames."""
    frames = [env.render()[0]]
    while not env.done[0]:
        env.step(actor(env.observation()))
        frames.append(env.render()[0])
    return frames


def write_gif(file: Path, frames: Sequence[UInt8Array]) -> None:
    """Write frames as a GIF that pauses on the last frame."""
    from PIL import Image

    shown = list(frames)
    if len(shown) > MAX_FRAMES:
        indices = np.linspace(0, len(shown) - LAST_FRAMES, MAX_FRAMES - LAST_FRAMES, endpoint=False).astype(int)
        shown = [shown[index] for index in indices] + shown[-LAST_FRAMES:]
    first, *others = (Image.fromarray(frame.repeat(PIXELS_PER_CELL, 0).repeat(PIXELS_PER_CELL, 1)) for frame in shown)
    durations = [FRAME_MILLISECONDS] * len(others) + [PAUSE_MILLISECONDS]
    first.save(file, save_all=True, append_images=others, duration=durations, loop=0)
