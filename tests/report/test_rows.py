"""Which cells a row shows, and what it says about the others."""

import math

from hqlt_lab.report.rows import rows_of

TEST = "test/normalised_accuracy"
SLOW, FAST = {"train.lr": 1e-4}, {"train.lr": 1e-2}
GRID = "tune: {train.lr: [1e-4, 1e-2]}\nseeds: 2\n"
SEARCH = "tune: {train.lr: {low: 1e-4, high: 1e-1, log: true, trials: 2}}\nseeds: 2\n"


def row(experiment, records):
    return rows_of(experiment, records)[0]


def test_rows_keep_the_order_of_the_file_and_quotes_come_last(asked, cell):
    experiment = asked(f"seeds: 1\nquoted: {{Mamba: {{{TEST}: {{best: 100.0}}}}}}\n")
    rows = rows_of(experiment, [cell("retention", 0, 1.0), cell("delta", 0, 2.0)])
    assert [row.title for row in rows] == ["delta", "linear", "retention", "Mamba"]
    assert [row.quoted for row in rows] == [False, False, False, True]
    assert rows[3].published[TEST] == {"best": 100.0} and not rows[3].summaries and rows[3].steps is None


def test_a_crossed_arm_is_a_row_of_its_own(asked, cell):
    experiment = asked("cross: {model.mixer: [sum, vector]}\nseeds: 1\n", arms="")
    rows = rows_of(experiment, [cell("base, mixer=vector", 0, 5.0)])
    assert [(row.title, len(row.done)) for row in rows] == [("base, mixer=sum", 0), ("base, mixer=vector", 1)]


def test_without_tuning_every_seed_is_shown(asked, cell):
    made = row(asked(), [cell("delta", 0, 10.0), cell("delta", 1, 30.0), cell("linear", 0, 99.0)])
    assert made.point == {} and made.summaries[TEST].mean == 20.0 and made.summaries[TEST].n == 2


def test_a_lost_seed_gives_no_number_and_is_counted(asked, cell):
    records = [cell("delta", 0, 10.0), cell("delta", 1, 99.0, state="diverged"), cell("delta", 2, state="failed")]
    made = row(asked("seeds: 4\n"), [*records, cell("delta", 3)])
    assert made.summaries[TEST].n == 1 and made.summaries[TEST].median == 10.0
    assert (len(made.done), made.seeds) == (1, 4)
    assert made.unfinished == {"waiting": 1, "running": 0, "failed": 1, "diverged": 1, "pruned": 0}


def test_a_value_that_is_no_number_is_left_out_but_did_not_solve(asked, cell):
    records = [cell("delta", 0, 100.0), cell("delta", 1, math.nan), cell("delta", 2, 100.0, metrics={})]
    made = row(asked("measure: {solved: 99.0}\n"), records)
    assert made.summaries[TEST].n == 1 and made.summaries[TEST].solved == (1, 3)


def test_the_validation_set_chooses_whatever_the_test_set_says(asked, cell):
    misleading = [cell("delta", seed, test=100.0, valid=10.0, point=SLOW) for seed in (0, 1)]
    better = [cell("delta", seed, test=1.0, valid=20.0, point=FAST) for seed in (0, 1)]
    made = row(asked(GRID), misleading + better)
    assert made.point == FAST and made.summaries[TEST].median == 1.0
    assert (made.points, made.cells) == (2, 4)


def test_a_point_that_diverges_is_not_chosen_but_was_tried(asked, cell):
    lost = [cell("delta", seed, state="diverged", point=FAST) for seed in (0, 1)]
    made = row(asked(GRID), lost + [cell("delta", seed, 5.0, point=SLOW) for seed in (0, 1)])
    assert made.point == SLOW and (made.points, made.cells) == (2, 4) and made.unfinished["diverged"] == 2


def test_an_arm_is_trained_in_vain_once_nothing_of_it_waits_any_more(asked, cell):
    lost = [cell("delta", seed, point=FAST, state="diverged") for seed in (0, 1)]
    waiting = [cell("delta", seed, point=SLOW) for seed in (0, 1)]
    assert not row(asked(GRID), [*lost, *waiting]).in_vain
    assert row(asked(GRID), [*lost, *(cell("delta", seed, point=SLOW, state="failed") for seed in (0, 1))]).in_vain
    assert not row(asked(GRID), [*lost, *(cell("delta", seed, 3.0, point=SLOW) for seed in (0, 1))]).in_vain
    assert not row(asked(GRID), []).in_vain


def test_a_failed_cell_is_no_budget(asked, cell):
    made = row(asked(GRID), [cell("delta", 0, 5.0, point=SLOW), cell("delta", 0, state="failed", point=FAST)])
    assert (made.points, made.cells) == (1, 1)


def test_the_cells_of_a_search_choose_and_are_not_shown(asked, cell):
    search = [
        cell("delta", 0, test=100.0, valid=5.0, point=SLOW, counts=False),
        cell("delta", 0, test=100.0, valid=50.0, point=FAST, counts=False),
    ]
    final = [cell("delta", seed, test=40.0 + seed, valid=1.0, point=FAST) for seed in (1, 2)]
    made = row(asked(SEARCH), search + final)
    assert made.point == FAST and made.summaries[TEST].mean == 41.5 and made.summaries[TEST].n == 2
    assert (made.points, made.cells) == (2, 2)


def test_seeds_of_a_point_that_no_longer_wins_are_not_shown(asked, cell):
    search = [cell("delta", 0, 5.0, point=SLOW, counts=False), cell("delta", 0, 9.0, point=FAST, counts=False)]
    made = row(asked(SEARCH), [*search, cell("delta", 1, 90.0, point=SLOW)])
    assert made.point == FAST and not made.summaries and made.seeds == 2


def test_before_anything_ended_there_is_no_point(asked, cell):
    made = row(asked(GRID), [cell("delta", 0, point=SLOW), cell("delta", 0, state="running", point=FAST)])
    assert made.point is None and (len(made.done), made.seeds) == (0, 2)
    assert made.unfinished["waiting"] == made.unfinished["running"] == 1


def test_size_speed_and_steps_are_those_of_the_finished_seeds(asked, cell):
    told = [(300, 10.0), (120, 30.0), (200, 90.0)]
    records = [
        cell("delta", seed, 1.0, step=step, tokens_per_second=speed, parameters=77)
        for seed, (step, speed) in enumerate(told)
    ]
    made = row(asked("seeds: 4\n"), [*records, cell("delta", 3, state="diverged", step=2, tokens_per_second=1e9)])
    assert made.steps == (120, 300) and made.tokens_per_second == 30.0 and made.parameters == 77


def test_each_metric_knows_what_is_best(asked, cell):
    records = [cell("delta", n, 10.0, metrics={TEST: 10.0 + n, "test/loss": 0.5 + n}) for n in range(2)]
    experiment = asked(
        "measure: {select: valid/loss, direction: minimize, report: [test/loss, test/normalised_accuracy]}\n"
    )
    summaries = row(experiment, records).summaries
    assert (summaries[TEST].best, summaries["test/loss"].best) == (11.0, 0.5)


def test_only_the_first_metric_can_be_solved(asked, cell):
    experiment = asked("measure: {report: [test/normalised_accuracy, test/loss], solved: 50.0}\n")
    record = cell("delta", 0, 60.0, metrics={TEST: 60.0, "test/loss": 0.5})
    made = row(experiment, [record]).summaries
    assert made[TEST].solved == (1, 1) and made["test/loss"].solved is None
