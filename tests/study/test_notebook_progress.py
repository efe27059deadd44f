"""The progress of a study in a notebook is one text that is replaced."""

from hqlt_lab.api.notebook_progress import NotebookProgress, make_default_callback
from hqlt_lab.study.eta import EtaEstimator, Workload
from hqlt_lab.study.ledger.cell_record import CellRecord
from hqlt_lab.study.study_callback import StudyCallback


class Display:
    """Stands for the handle that IPython returns for an output."""

    def __init__(self):
        self.texts = []

    def update(self, data, raw):
        assert raw
        self.texts.append(data["text/plain"])


def test_running_and_failed_cells_are_listed_until_all_are_settled(lab):
    experiment = lab.experiment("seeds: 2")
    cell = experiment.make_cell(experiment.arms[0], {}, 0)
    records = [CellRecord(key=str(seed), arm="base", seed=seed) for seed in range(2)]
    progress = NotebookProgress()
    progress.handle = display = Display()
    waiting = {record.key: Workload(record.arm, cell.train.steps) for record in records}
    progress.on_study_start(EtaEstimator(waiting, 2), 0, 2, {})
    for record in records:
        progress.on_cell_start(record, cell)
    progress.on_metrics("0", 2, {"train/loss": 0.5, cell.measure.select: 75.0})
    assert progress.format_progress().splitlines()[1:] == [
        "base, seed 0: 2/6  loss 0.5  valid 75",
        "base, seed 1: 0/6",
    ]
    progress.on_cell_end(CellRecord(key="0", arm="base", seed=0, state="failed", why="It raised."))
    progress.on_cell_end(CellRecord(key="1", arm="base", seed=1, state="done", metrics={}))
    assert display.texts[-1] == "2 of 2 cells finished, 1 failed\nbase, seed 0: failed. It raised."
    num_updates = len(display.texts)
    progress.updated_at = 0.0
    progress.on_tick()
    assert len(display.texts) == num_updates, "an unchanged text is not sent again"


def test_start_of_a_settled_study_says_how_many_cells_failed_or_diverged():
    progress = NotebookProgress()
    progress.handle = display = Display()
    progress.on_study_start(EtaEstimator({}, 2), 8, 8, {"failed": 1, "diverged": 2})
    assert display.texts == ["8 of 8 cells are finished, 1 failed, 2 diverged; nothing is left to train."]


def test_study_outside_a_notebook_displays_nothing():
    assert type(make_default_callback()) is StudyCallback
