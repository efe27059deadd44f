"""Two coordinators in one process share a study: a cell may be claimed by the other one at any moment."""

import io
import signal

from rich.console import Console

from hqlt_lab.cli.terminal.study_progress import StudyProgress


def test_cell_that_needs_too_many_gpus_is_not_claimed_instead_of_one_that_fits(lab, join):
    """The peer has claimed the first cell in the meantime, and the next one needs more GPUs than there are."""
    experiment = lab.experiment("arms: {small: {}, large: {model.mixer: vector}}\nseeds: 1")
    peer, coordinator = join(experiment), join(experiment, gpus_of=lambda cell: 2 if cell.arm == "large" else 0)
    assert coordinator.next_cell().arm.name == "small"
    assert peer.claim_cell().cell_ref.arm.name == "small"
    assert coordinator.claim_cell() is None and coordinator.jobs == {}
    assert coordinator.next_cell().arm.name == "large"  # still waiting, for a worker with enough GPUs
    assert peer.claim_cell().cell_ref.arm.name == "large"


def test_repeated_signal_within_a_moment_counts_as_one_stop_request(lab, join):
    """SLURM signals every process and a wrapper forwards the signal; a second Ctrl-C, however, is intended."""
    coordinator = join(lab.experiment("seeds: 1"))
    for number, stop_requests in ((signal.SIGTERM, 1), (signal.SIGTERM, 1), (signal.SIGINT, 2)):
        coordinator.handle_signal(number, None)
        assert coordinator.stop_requests == stop_requests


def test_cell_that_moves_between_peer_and_us_is_displayed_while_it_runs(lab, join):
    experiment = lab.experiment("seeds: 1")
    progress = StudyProgress(Console(file=io.StringIO()), experiment.measure)
    peer, coordinator = join(experiment), join(experiment, progress)
    (key,) = (cell_ref.key for cell_ref in coordinator.plan.list_cells())
    for _ in range(2):
        job = peer.claim_cell()
        coordinator.peers.poll_peers({}, force=True)
        assert list(progress.running_cells) == [key]
        peer.ledger.finish_attempt(job.attempt, "interrupted", step=0)
        del peer.jobs[key]
        coordinator.ledger.refresh()  # as when another cell is claimed; peers have not been polled since
        coordinator.dispatch_cells()
        coordinator.executor.kill_all()
        while coordinator.jobs:
            for event in coordinator.executor.poll_events(1):
                coordinator.handle_event(event)
        assert list(progress.running_cells) == []
