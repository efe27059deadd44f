"""How long it will take: by hand."""

from hqlt_lab.study.pace import Pace


def test_before_any_step_nobody_knows():
    pace = Pace({"a": 100}, workers=2)
    assert pace.remaining(now=0) is None
    pace.begin("a", 100, now=0)
    assert pace.remaining(now=5) is None


def test_steps_that_are_left_at_the_pace_of_those_that_were_taken():
    pace = Pace({"a": 100, "b": 100, "c": 100}, workers=2)
    pace.begin("a", 100, now=0)
    pace.begin("b", 100, now=0)
    for key in "ab":
        pace.advance(key, 0)
        pace.advance(key, 50)
    # 0.2 s per step; 50 + 50 + 100 steps are left on two workers
    assert pace.remaining(now=10) == 100 * 0.2


def test_no_sooner_than_the_longest_cell():
    pace = Pace({}, workers=4)
    pace.begin("a", 100, now=0)
    pace.advance("a", 0)
    pace.advance("a", 50)
    assert pace.remaining(now=10) == 50 * 0.2


def test_a_resumed_cell_is_not_taken_for_a_fast_one():
    pace = Pace({}, workers=1)
    pace.begin("a", 100, now=0)
    pace.advance("a", 80)
    pace.advance("a", 90)
    assert pace.remaining(now=10) == 10 * 1.0


def test_cells_that_have_ended_count():
    pace = Pace({"b": 100}, workers=1)
    pace.begin("a", 100, now=0)
    pace.advance("a", 0)
    pace.advance("a", 100)
    pace.end("a", now=20)
    assert pace.remaining(now=20) == 100 * 0.2


def test_cells_that_a_search_will_lead_to_are_waited_for():
    pace = Pace({"a": 100}, workers=1, later=[100, 100])
    pace.begin("a", 100, now=0)
    pace.advance("a", 0)
    pace.advance("a", 100)
    pace.end("a", now=20)
    assert pace.remaining(now=20) == 200 * 0.2
    pace.begin("found", 100, now=20)  # one of them, by its name
    assert pace.remaining(now=20) == 200 * 0.2
