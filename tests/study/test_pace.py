"""How long it will take: by hand."""

from hqlt_lab.study.pace import Pace, Spent, Work, spent_on
from hqlt_lab.study.record import Record

CELL = Work("sum", 100)
DONE = Record(key="a", arm="sum", seed=0, state="done", step=100, seconds=3.0)


def under_way(pace, key, work=CELL, now=0, steps=(0, 50)):
    pace.begin(key, work, now=now)
    for step in steps:
        pace.advance(key, step)
    return pace


def test_before_any_step_nobody_knows():
    pace = Pace({"a": CELL}, workers=2)
    assert pace.remaining(now=0) is None
    pace.begin("a", CELL, now=0)
    assert pace.remaining(now=5) is None


def test_steps_that_are_left_at_the_pace_of_those_that_were_taken():
    pace = Pace(dict.fromkeys("abc", CELL), workers=2)
    under_way(under_way(pace, "a"), "b")
    # 0.2 s per step; 50 + 50 + 100 steps are left on two workers
    assert pace.remaining(now=10) == 100 * 0.2


def test_no_sooner_than_the_longest_cell():
    assert under_way(Pace({}, workers=4), "a").remaining(now=10) == 50 * 0.2


def test_a_resumed_cell_is_not_taken_for_a_fast_one():
    assert under_way(Pace({}, workers=1), "a", steps=(80, 90)).remaining(now=10) == 10 * 1.0


def test_cells_that_have_ended_count():
    pace = under_way(Pace({"b": CELL}, workers=1), "a", steps=(0, 100))
    assert pace.end("a", DONE, now=20) == Work("sum", 0)
    assert pace.remaining(now=20) == 100 * 0.2


def test_cells_that_a_search_will_lead_to_are_waited_for():
    pace = under_way(Pace({"a": CELL}, workers=1, later=[CELL, CELL]), "a", steps=(0, 100))
    pace.end("a", DONE, now=20)
    assert pace.remaining(now=20) == 200 * 0.2
    pace.begin("found", CELL, now=20)  # one of them, by its name
    assert pace.remaining(now=20) == 200 * 0.2


def test_an_arm_goes_by_its_own_pace_and_an_unknown_one_by_that_of_all():
    fast, slow, unknown = Work("fast", 100), Work("slow", 100), Work("unknown", 100)
    pace = Pace({"b": fast, "c": slow, "d": unknown}, workers=1, before={"slow": Spent(300, 90)})
    under_way(pace, "a", fast)
    # 0.1 s per fast step, 0.3 of the slow ones before, (5 + 90) / (50 + 300) of all
    assert abs(pace.remaining(now=5) - (50 * 0.1 + 100 * 0.1 + 100 * 0.3 + 100 * 95 / 350)) < 1e-9


def test_who_resumes_knows_at_once_what_cells_took_before():
    records = [
        Record(key="a", arm="slow", seed=0, state="done", step=300, seconds=90.0),
        Record(key="b", arm="slow", seed=1, state="done", step=100, seconds=30.0),
        Record(key="c", arm="slow", seed=2, state="failed", step=5, seconds=500.0),
        Record(key="d", arm="fast", seed=0, state="waiting"),
    ]
    assert spent_on(records) == {"slow": Spent(400, 120)}
    assert Pace({"e": Work("slow", 50)}, workers=1, before=spent_on(records)).remaining(now=0) == 50 * 0.3


def test_of_cells_that_a_search_leads_to_the_arm_counts_and_not_the_steps():
    pace = Pace({}, workers=1, later=[Work("a", 100), Work("b", 100)])
    pace.begin("found", Work("b", 50), now=0)
    assert pace.later == [Work("a", 100)]
    pace.begin("another", Work("c", 50), now=0)  # of an arm that a limit had left out
    assert pace.later == []


def test_cells_that_others_train_count_by_what_they_say_in_the_end():
    pace = Pace({"mine": CELL}, workers=1, before={"sum": Spent(300, 90)})
    pace.begin("theirs", Work("sum", 0), now=0)
    assert pace.remaining(now=1000) == 100 * 0.3  # nothing was told of its steps
    pace.end("theirs", Record(key="theirs", arm="sum", seed=1, state="done", step=100, seconds=10.0), now=1000)
    assert pace.before == {"sum": Spent(400, 100)}
