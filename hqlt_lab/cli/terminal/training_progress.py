"""Progress of one training run: a bar, the loss and the latest validation metrics."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

METRIC_LABELS = {
    "train/loss": "loss",
    "valid/normalized_accuracy": "valid",
    "valid/return": "return",
    "valid/success": "success",
    "speed/tokens_per_second": "tokens/s",
}


class RunProgress:
    """Context manager that shows the metrics of a run; without a terminal it prints a line per validation."""

    def __init__(self, console: Console, steps: int) -> None:
        self.console, self.steps = console, steps
        columns = (BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[latest]}"))
        self.progress = Progress(*columns, console=console, refresh_per_second=4)
        self.task_id = self.progress.add_task("", total=steps, latest="")
        self.latest_metrics: dict[str, float] = {}

    def record_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Show the metrics of a step; pass this method to `fit` as `on_metrics`."""
        self.latest_metrics |= {METRIC_LABELS[name]: value for name, value in metrics.items() if name in METRIC_LABELS}
        summary = "   ".join(f"{label} {value:.4g}" for label, value in self.latest_metrics.items())
        self.progress.update(self.task_id, completed=step, latest=summary)
        if not self.console.is_interactive and any(name.startswith("valid/") for name in metrics):
            self.console.print(f"step {step} of {self.steps}: {summary}")

    def __enter__(self) -> "RunProgress":
        if self.console.is_interactive:
            self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()
