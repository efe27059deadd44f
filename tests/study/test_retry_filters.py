"""The filters that select the cells that failed or diverged select exactly these."""

import pytest

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.cell_filters import select_items
from hqlt_lab.study.ledger.cell_record import CellRecord
from hqlt_lab.study.suggest_retry_filters import list_retry_filters, short_labels


def make_records(failed, names=("a", "b", "c, d"), mixers=(None,), rates=(None,)):
    """Return the records of all arms with seeds 0 to 2; those of `failed` (name, mixer, rate, seed) failed."""
    cells = [(name, mixer, rate, seed) for name in names for mixer in mixers for rate in rates for seed in range(3)]
    return [
        CellRecord(
            key=str(number),
            arm=ArmTitle(name, levels := {"model.mixer": mixer} if mixer else {}),
            seed=seed,
            levels=levels,
            point={"train.lr": rate} if rate else {},
            state="failed" if (name, mixer, rate, seed) in failed else "done",
        )
        for number, (name, mixer, rate, seed) in enumerate(cells)
    ]


@pytest.mark.parametrize(
    ("failed", "filters"),
    [
        ([("b", None, None, 0)], ["arm=b,seed=0"]),
        ([("b", None, None, 0), ("b", None, None, 2)], ["arm=b,seed=0,seed=2"]),
        ([("b", None, None, seed) for seed in range(3)], ["arm=b"]),
        ([(name, None, None, 1) for name in ("a", "b", "c, d")], ["seed=1"]),
        ([("a", None, None, 0), ("c, d", None, None, 1)], ["arm=a,seed=0", 'arm="c, d",seed=1']),
        ([(name, None, None, seed) for name in ("a", "b", "c, d") for seed in range(3)], [""]),
        ([], []),
    ],
)
def test_filters_are_as_short_as_possible(failed, filters):
    assert list_retry_filters(make_records(failed)) == filters


@pytest.mark.parametrize(
    "failed",
    [
        [("a", "sum", 0.1, 0)],
        [("a", "sum", 0.1, 0), ("b", "sum", 0.1, 0)],
        [("a", "sum", 0.1, 0), ("b", "vector", 0.2, 1), ("b", "vector", 0.2, 2)],
        [("c, d", "sum", rate, 1) for rate in (0.1, 0.2)],
    ],
)
def test_filters_of_crossed_and_tuned_cells_select_exactly_those_that_failed(failed):
    records = make_records(failed, mixers=("sum", "vector"), rates=(0.1, 0.2))
    labels = [short_labels(record) for record in records]
    selected = [record for only in list_retry_filters(records) for record in select_items(records, labels, [only])]
    keys = [record.key for record in selected]
    assert sorted(keys) == sorted(record.key for record in records if record.state == "failed")
    assert len(keys) == len(set(keys))


def test_diverged_cells_are_retried_too():
    records = [
        CellRecord(key=state, arm=ArmTitle(state), seed=0, state=state) for state in ("done", "diverged", "pruned")
    ]
    assert list_retry_filters(records) == ["arm=diverged"]
