"""Which cells a row shows, and how it counts the others."""

import math

from hqlt_lab.report.arm_rows import build_rows

METRIC = "test/normalized_accuracy"
SMALL_LR, LARGE_LR = {"train.lr": 1e-4}, {"train.lr": 1e-2}
GRID = "tune: {train.lr: [1e-4, 1e-2]}\nseeds: 2\n"
SEARCH = "tune: {train.lr: {low: 1e-4, high: 1e-1, log: true, trials: 2}}\nseeds: 2\n"


def build_first_row(experiment, records):
    return build_rows(experiment, records)[0]


def test_rows_keep_the_order_of_the_file_and_quoted_results_come_last(make_experiment, make_record):
    experiment = make_experiment(f"seeds: 1\nquoted: {{Mamba: {{{METRIC}: {{best: 100.0}}}}}}\n")
    rows = build_rows(experiment, [make_record("retention", 0, 1.0), make_record("delta", 0, 2.0)])
    assert [row.title for row in rows] == ["delta", "linear", "retention", "Mamba"]
    assert [row.is_quoted for row in rows] == [False, False, False, True]
    assert rows[3].published_values[METRIC] == {"best": 100.0} and not rows[3].summaries and rows[3].step_range is None


def test_a_crossed_arm_is_a_row_of_its_own(make_experiment, make_record):
    experiment = make_experiment("cross: {model.mixer: [sum, vector]}\nseeds: 1\n", arms="")
    rows = build_rows(experiment, [make_record("base, mixer=vector", 0, 5.0)])
    assert [(row.title, len(row.finished_records)) for row in rows] == [
        ("base, mixer=sum", 0),
        ("base, mixer=vector", 1),
    ]


def test_without_tuning_every_seed_is_shown(make_experiment, make_record):
    row = build_first_row(
        make_experiment(),
        [make_record("delta", 0, 10.0), make_record("delta", 1, 30.0), make_record("linear", 0, 99.0)],
    )
    assert row.point == {} and row.summaries[METRIC].mean == 20.0 and row.summaries[METRIC].n == 2


def test_a_lost_seed_gives_no_number_and_is_counted(make_experiment, make_record):
    records = [
        make_record("delta", 0, 10.0),
        make_record("delta", 1, 99.0, state="diverged"),
        make_record("delta", 2, state="failed"),
    ]
    row = build_first_row(make_experiment("seeds: 4\n"), [*records, make_record("delta", 3)])
    assert row.summaries[METRIC].n == 1 and row.summaries[METRIC].median == 10.0
    assert (len(row.finished_records), row.num_seeds) == (1, 4)
    assert row.unfinished_counts == {"waiting": 1, "running": 0, "failed": 1, "diverged": 1, "pruned": 0}


def test_a_nan_value_is_left_out_and_counts_as_not_solved(make_experiment, make_record):
    records = [
        make_record("delta", 0, 100.0),
        make_record("delta", 1, math.nan),
        make_record("delta", 2, 100.0, metrics={}),
    ]
    row = build_first_row(make_experiment("measure: {solved: 99.0}\n"), records)
    assert row.summaries[METRIC].n == 1 and row.summaries[METRIC].solved == (1, 3)


def test_the_point_is_selected_by_validation_and_not_by_test(make_experiment, make_record):
    misleading = [make_record("delta", seed, test=100.0, valid=10.0, point=SMALL_LR) for seed in (0, 1)]
    better = [make_record("delta", seed, test=1.0, valid=20.0, point=LARGE_LR) for seed in (0, 1)]
    row = build_first_row(make_experiment(GRID), misleading + better)
    assert row.point == LARGE_LR and row.summaries[METRIC].median == 1.0
    assert (row.points_tried, row.cells_tried) == (2, 4)


def test_a_diverged_point_is_not_selected_but_counts_as_tried(make_experiment, make_record):
    lost = [make_record("delta", seed, state="diverged", point=LARGE_LR) for seed in (0, 1)]
    row = build_first_row(
        make_experiment(GRID), lost + [make_record("delta", seed, 5.0, point=SMALL_LR) for seed in (0, 1)]
    )
    assert (
        row.point == SMALL_LR
        and (row.points_tried, row.cells_tried) == (2, 4)
        and row.unfinished_counts["diverged"] == 2
    )


def test_an_arm_has_ended_without_result_once_no_cell_is_pending(make_experiment, make_record):
    lost = [make_record("delta", seed, point=LARGE_LR, state="diverged") for seed in (0, 1)]
    waiting = [make_record("delta", seed, point=SMALL_LR) for seed in (0, 1)]
    assert not build_first_row(make_experiment(GRID), [*lost, *waiting]).has_ended_without_result
    assert build_first_row(
        make_experiment(GRID), [*lost, *(make_record("delta", seed, point=SMALL_LR, state="failed") for seed in (0, 1))]
    ).has_ended_without_result
    assert not build_first_row(
        make_experiment(GRID), [*lost, *(make_record("delta", seed, 3.0, point=SMALL_LR) for seed in (0, 1))]
    ).has_ended_without_result
    assert not build_first_row(make_experiment(GRID), []).has_ended_without_result


def test_a_failed_cell_does_not_count_toward_the_budget(make_experiment, make_record):
    row = build_first_row(
        make_experiment(GRID),
        [make_record("delta", 0, 5.0, point=SMALL_LR), make_record("delta", 0, state="failed", point=LARGE_LR)],
    )
    assert (row.points_tried, row.cells_tried) == (1, 1)


def test_search_cells_select_the_point_and_are_not_shown(make_experiment, make_record):
    search = [
        make_record("delta", 0, test=100.0, valid=5.0, point=SMALL_LR, is_reported=False),
        make_record("delta", 0, test=100.0, valid=50.0, point=LARGE_LR, is_reported=False),
    ]
    final = [make_record("delta", seed, test=40.0 + seed, valid=1.0, point=LARGE_LR) for seed in (1, 2)]
    row = build_first_row(make_experiment(SEARCH), search + final)
    assert row.point == LARGE_LR and row.summaries[METRIC].mean == 41.5 and row.summaries[METRIC].n == 2
    assert (row.points_tried, row.cells_tried) == (2, 2)


def test_seeds_of_a_point_that_is_no_longer_selected_are_not_shown(make_experiment, make_record):
    search = [
        make_record("delta", 0, 5.0, point=SMALL_LR, is_reported=False),
        make_record("delta", 0, 9.0, point=LARGE_LR, is_reported=False),
    ]
    row = build_first_row(make_experiment(SEARCH), [*search, make_record("delta", 1, 90.0, point=SMALL_LR)])
    assert row.point == LARGE_LR and not row.summaries and row.num_seeds == 2


def test_without_ended_cells_there_is_no_point(make_experiment, make_record):
    row = build_first_row(
        make_experiment(GRID),
        [make_record("delta", 0, point=SMALL_LR), make_record("delta", 0, state="running", point=LARGE_LR)],
    )
    assert row.point is None and (len(row.finished_records), row.num_seeds) == (0, 2)
    assert row.unfinished_counts["waiting"] == row.unfinished_counts["running"] == 1


def test_size_speed_and_steps_are_those_of_the_finished_seeds(make_experiment, make_record):
    steps_and_speeds = [(300, 10.0), (120, 30.0), (200, 90.0)]
    records = [
        make_record("delta", seed, 1.0, step=step, tokens_per_second=speed, parameters=77)
        for seed, (step, speed) in enumerate(steps_and_speeds)
    ]
    row = build_first_row(
        make_experiment("seeds: 4\n"),
        [*records, make_record("delta", 3, state="diverged", step=2, tokens_per_second=1e9)],
    )
    assert row.step_range == (120, 300) and row.tokens_per_second == 30.0 and row.parameters == 77


def test_each_metric_has_its_own_direction(make_experiment, make_record):
    records = [make_record("delta", n, 10.0, metrics={METRIC: 10.0 + n, "test/loss": 0.5 + n}) for n in range(2)]
    experiment = make_experiment(
        "measure: {select: valid/loss, direction: minimize, report: [test/loss, test/normalized_accuracy]}\n"
    )
    summaries = build_first_row(experiment, records).summaries
    assert (summaries[METRIC].best, summaries["test/loss"].best) == (11.0, 0.5)


def test_only_the_primary_metric_has_a_solved_count(make_experiment, make_record):
    experiment = make_experiment("measure: {report: [test/normalized_accuracy, test/loss], solved: 50.0}\n")
    record = make_record("delta", 0, 60.0, metrics={METRIC: 60.0, "test/loss": 0.5})
    summaries = build_first_row(experiment, [record]).summaries
    assert summaries[METRIC].solved == (1, 1) and summaries["test/loss"].solved is None
