"""Estimate of the remaining time, compared with results computed by hand."""

from hqlt_lab.study.eta import EtaEstimator, StepTally, Workload, sum_tallies_by_arm
from hqlt_lab.study.ledger.cell_record import CellRecord

WORK = Workload("sum", 100)
DONE = CellRecord(key="a", arm="sum", seed=0, state="done", step=100, seconds=3.0)


def run_partially(eta, key, work=WORK, now=0, steps=(0, 50)):
    eta.start_cell(key, work, now=now)
    for step in steps:
        eta.advance_cell(key, step)
    return eta


def test_there_is_no_estimate_before_the_first_step():
    eta = EtaEstimator({"a": WORK}, workers=2)
    assert eta.estimate_remaining(now=0) is None
    eta.start_cell("a", WORK, now=0)
    assert eta.estimate_remaining(now=5) is None


def test_remaining_steps_take_as_long_as_the_steps_so_far():
    eta = EtaEstimator(dict.fromkeys("abc", WORK), workers=2)
    run_partially(run_partially(eta, "a"), "b")
    # 0.2 s per step; 50 + 50 + 100 steps remain on two workers
    assert eta.estimate_remaining(now=10) == 100 * 0.2


def test_estimate_is_at_least_the_time_of_the_longest_cell():
    assert run_partially(EtaEstimator({}, workers=4), "a").estimate_remaining(now=10) == 50 * 0.2


def test_throughput_of_a_resumed_cell_excludes_the_steps_before_it_was_resumed():
    assert run_partially(EtaEstimator({}, workers=1), "a", steps=(80, 90)).estimate_remaining(now=10) == 10 * 1.0


def test_throughput_of_ended_cells_counts():
    eta = run_partially(EtaEstimator({"b": WORK}, workers=1), "a", steps=(0, 100))
    assert eta.end_cell("a", DONE, now=20) == Workload("sum", 0)
    assert eta.estimate_remaining(now=20) == 100 * 0.2


def test_final_cells_of_an_unfinished_search_are_included():
    eta = run_partially(EtaEstimator({"a": WORK}, workers=1, pending=[WORK, WORK]), "a", steps=(0, 100))
    eta.end_cell("a", DONE, now=20)
    assert eta.estimate_remaining(now=20) == 200 * 0.2
    eta.start_cell("final", WORK, now=20)  # one of the pending cells, now with a key
    assert eta.estimate_remaining(now=20) == 200 * 0.2


def test_arm_uses_its_own_throughput_and_an_unmeasured_arm_that_of_all():
    fast, slow, unknown = Workload("fast", 100), Workload("slow", 100), Workload("unknown", 100)
    eta = EtaEstimator({"b": fast, "c": slow, "d": unknown}, workers=1, past_tallies={"slow": StepTally(300, 90)})
    run_partially(eta, "a", fast)
    # 0.1 s per step of the fast arm, 0.3 s of the slow one, (5 + 90) / (50 + 300) s of all
    assert abs(eta.estimate_remaining(now=5) - (50 * 0.1 + 100 * 0.1 + 100 * 0.3 + 100 * 95 / 350)) < 1e-9


def test_resumed_study_uses_the_throughput_of_cells_done_before():
    records = [
        CellRecord(key="a", arm="slow", seed=0, state="done", step=300, seconds=90.0),
        CellRecord(key="b", arm="slow", seed=1, state="done", step=100, seconds=30.0),
        CellRecord(key="c", arm="slow", seed=2, state="failed", step=5, seconds=500.0),
        CellRecord(key="d", arm="fast", seed=0, state="waiting"),
    ]
    past_tallies = sum_tallies_by_arm(records)
    assert past_tallies == {"slow": StepTally(400, 120)}
    eta = EtaEstimator({"e": Workload("slow", 50)}, workers=1, past_tallies=past_tallies)
    assert eta.estimate_remaining(now=0) == 50 * 0.3


def test_pending_cells_are_matched_by_arm_and_not_by_steps():
    eta = EtaEstimator({}, workers=1, pending=[Workload("a", 100), Workload("b", 100)])
    eta.start_cell("final", Workload("b", 50), now=0)
    assert eta.pending == [Workload("a", 100)]
    eta.start_cell("another", Workload("c", 50), now=0)  # of an arm that a limit had excluded
    assert eta.pending == []


def test_throughput_of_cells_trained_by_peers_is_taken_from_their_records():
    eta = EtaEstimator({"own": WORK}, workers=1, past_tallies={"sum": StepTally(300, 90)})
    eta.start_cell("peer", Workload("sum", 0), now=0)
    assert eta.estimate_remaining(now=1000) == 100 * 0.3  # the cell has not reported any step
    eta.end_cell("peer", CellRecord(key="peer", arm="sum", seed=1, state="done", step=100, seconds=10.0), now=1000)
    assert eta.past_tallies == {"sum": StepTally(400, 100)}
