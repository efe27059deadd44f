"""What stays of a run that has ended: its outcome, its curves, and the checkpoint that was asked for."""

from pathlib import Path

from hqlt_lab.agent.replay import FILE as REPLAY
from hqlt_lab.train.checkpoints import BEST, LAST, PREVIOUS


def tidy(folder: Path, keep: str) -> None:
    """Remove the rest; weights stay where those that are asked for are not there.  Twice is as good as once."""
    kept = f"{keep}.ckpt"
    if keep == "none" or (folder / kept).exists():
        for name in {LAST, PREVIOUS, BEST} - {kept}:
            (folder / name).unlink(missing_ok=True)
    (folder / REPLAY).unlink(missing_ok=True)
