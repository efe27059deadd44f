"""Two who share a study, in one process: a cell may be somebody else's by the time one reaches for it."""

import io
from contextlib import ExitStack

import pytest
from rich.console import Console

from hqlt_lab.cli.board import Board
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.study.coordinator import Coordinator
from hqlt_lab.study.crew import Crew
from hqlt_lab.study.run import open_agenda
from hqlt_lab.study.store import Store
from hqlt_lab.study.view import View

from .conftest import Nobody


def no_gpu(cell: Cell) -> float:
    return 0


@pytest.fixture
def join(lab, postgres, monkeypatch):
    """One more who works on the study, with room for one cell and one GPU."""
    monkeypatch.setenv("HQLT_STORE", postgres.database())
    with ExitStack() as stack:

        def one_more(experiment: Experiment, view: View | None = None, gpus_of=no_gpu) -> Coordinator:
            store, crew = Store(lab.runs, experiment.name), Crew(1, 1, 1, gpus_of, None)
            stack.enter_context(store.owned())
            stack.callback(crew.close)
            agenda = open_agenda(experiment, store)
            return Coordinator(agenda, crew, Nobody(), view or View(), lambda place: True)

        yield one_more


def test_a_cell_that_does_not_fit_is_not_begun_in_the_place_of_one_that_does(lab, join):
    """The first cell is gone when its turn comes, and the next takes more GPUs than there are."""
    experiment = lab.experiment("arms: {small: {}, large: {model.mixer: vector}}\nseeds: 1")
    theirs, ours = join(experiment), join(experiment, gpus_of=lambda cell: 2 if cell.arm == "large" else 0)
    assert ours.next().arm.name == "small"
    assert theirs.claim().place.arm.name == "small"
    assert ours.claim() is None and ours.jobs == {}
    assert ours.next().arm.name == "large"  # it waits for someone with room
    assert theirs.claim().place.arm.name == "large"


def test_a_cell_that_goes_from_them_to_us_and_back_is_shown_all_the_while(lab, join):
    experiment = lab.experiment("seeds: 1")
    board = Board(Console(file=io.StringIO()), experiment.measure)
    theirs, ours = join(experiment), join(experiment, board)
    (key,) = (place.key for place in ours.agenda.places())
    for _ in range(2):
        job = theirs.claim()
        ours.others.look({}, at_once=True)
        assert list(board.shown) == [key]
        theirs.ledger.finish(job.attempt, "interrupted", step=0)
        del theirs.jobs[key]
        ours.ledger.refresh()  # as whenever we begin another cell; nobody has looked around since
        ours.hand_out()
        ours.crew.kill()
        while ours.jobs:
            for event in ours.crew.events(1):
                ours.hear(event)
        assert list(board.shown) == []
