"""Two who share a study, in one process: a cell may be somebody else's by the time one reaches for it."""

import io
import signal

from rich.console import Console

from hqlt_lab.cli.board import Board


def test_a_cell_that_does_not_fit_is_not_begun_in_the_place_of_one_that_does(lab, join):
    """The first cell is gone when its turn comes, and the next takes more GPUs than there are."""
    experiment = lab.experiment("arms: {small: {}, large: {model.mixer: vector}}\nseeds: 1")
    theirs, ours = join(experiment), join(experiment, gpus_of=lambda cell: 2 if cell.arm == "large" else 0)
    assert ours.next().arm.name == "small"
    assert theirs.claim().place.arm.name == "small"
    assert ours.claim() is None and ours.jobs == {}
    assert ours.next().arm.name == "large"  # it waits for someone with room
    assert theirs.claim().place.arm.name == "large"


def test_who_is_told_to_end_twice_at_once_was_told_once(lab, join):
    """SLURM tells every process, and a wrapper hands on what it hears; whoever presses Ctrl-C twice means it."""
    coordinator = join(lab.experiment("seeds: 1"))
    for number, asked in ((signal.SIGTERM, 1), (signal.SIGTERM, 1), (signal.SIGINT, 2)):
        coordinator.ask(number, None)
        assert coordinator.asked == asked


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
