"""A run as it goes: a bar, the loss, the latest validation."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SHOWN = {
    "train/loss": "loss",
    "valid/normalised_accuracy": "valid",
    "valid/return": "return",
    "valid/success": "success",
    "speed/tokens_per_second": "tokens/s",
}


class Live:
    """Shows what a run records; without a terminal, a line per validation."""

    def __init__(self, console: Console, steps: int) -> None:
        self.console, self.steps = console, steps
        columns = (BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[latest]}"))
        self.progress = Progress(*columns, console=console, refresh_per_second=4)
        self.bar = self.progress.add_task("", total=steps, latest="")
        self.latest: dict[str, float] = {}

    def record(self, step: int, metrics: dict[str, float]) -> None:
        """What `fit` calls."""
        self.latest |= {SHOWN[name]: value for name, value in metrics.items() if name in SHOWN}
        told = "   ".join(f"{name} {value:.4g}" for name, value in self.latest.items())
        self.progress.update(self.bar, completed=step, latest=told)
        if not self.console.is_interactive and any(name.startswith("valid/") for name in metrics):
            self.console.print(f"step {step} of {self.steps}: {told}")

    def __enter__(self) -> "Live":
        if self.console.is_interactive:
            self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()
