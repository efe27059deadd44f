"""Damaged files give a StoreError or are ignored, whatever stands in them: journal, run folder, plan cache and index.

Each file is written by the lab once.  Then one value in it is replaced by any JSON value, or its text is damaged.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hqlt_lab.data.corpus_index import CorpusIndex, FileChecksum, SplitContents, read_index
from hqlt_lab.errors import StoreError, TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.rundir.cell_file import CELL_FILE, read_cell
from hqlt_lab.rundir.code_hashes import CODE_FILE, read_code_hashes
from hqlt_lab.rundir.diagnostics import (
    DETERMINISM_FILE,
    OPS_FILE,
    DeterminismCheck,
    read_backends,
    read_determinism_check,
)
from hqlt_lab.rundir.evaluations import (
    EVALUATIONS_FILE,
    LONG_CONTEXT_FILE,
    Evaluation,
    LongContextCurve,
    list_evaluations,
    read_long_context_curves,
)
from hqlt_lab.rundir.lm_eval_results import (
    LM_EVAL_FILE,
    EvalProtocol,
    TaskResult,
    collect_metric_values,
    format_protocols,
    latest_complete_results,
    read_task_results,
)
from hqlt_lab.rundir.metrics import METRICS_FILE, read_last_step, read_rows
from hqlt_lab.rundir.outcome import OUTCOME_FILE, Outcome, read_outcome
from hqlt_lab.rundir.sync_state import SYNC_STATE_FILE, SyncState, read_sync_state
from hqlt_lab.study.experiment_file_record import FILE_NOTE, read_study_file
from hqlt_lab.study.ledger.ledger import Ledger
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.study.ledger.trial_reader import PostgresReader
from hqlt_lab.study.plan.plan_cache import PLAN_FILE, load_plan
from hqlt_lab.study.study_snapshot import load_snapshot
from tests.train.conftest import tiny_cell

NESTED = "[" * 100_000 + "]" * 100_000
ARM = {"name": "a", "levels": {}}
CELL = {"key": "k", "arm": ARM, "seed": 0, "point": {"train.lr": 0.1}, "is_reported": True, "code": {"lab": "1"}}
RESULT = {"step": 5, "metrics": {"test/accuracy": 99.0}, "seconds": 3.0, "tokens_per_second": 1e4, "parameters": 7}
RESULT |= {"state_bytes": 640, "flops_per_token": 2.5e3, "errors": {"test/accuracy": 0.5}, "repeatable": True}
ROW = {"step": 1, "time": 1_790_000_000_000, "metrics": {"train/loss": 0.5}}
PLAN = {"fingerprint": "f", "report": ["test/accuracy"], "retries": 2, "arms": [["a", {}]], "points": [{}]}
PLAN |= {"warnings": []}
PLAN |= {"cells": [["0" * 16, 0, 0, 0]]}
INDEX = CorpusIndex(
    splits=dict.fromkeys(("train", "valid", "test"), SplitContents(1, 10, 8)),
    vocabulary=257,
    separator=256,
    dtype="uint16",
    shard_tokens=100,
    tokenizer="bytes",
    files={f"{split}-00000.tokens": FileChecksum(20, "0" * 64) for split in ("train", "valid", "test")},
    skipped={},
    source={},
    options={},
    versions={},
)
TASK_RESULT = TaskResult(
    task="piqa",
    lesion=None,
    protocol=EvalProtocol(harness="0.4", length=8, limit=None, source="", documents=3),
    metrics={"eval/piqa/acc": 60.0},
    errors={"eval/piqa/acc": 1.0},
    time=1,
)
CURVE = LongContextCurve(name="loss", axis="position", points=[(64, 3.2)], trained=256, length_factor=8, time=1)
json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.just(10**400),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from(["done", "k", "..", "/"]),
    ),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values, max_size=3),
    max_leaves=5,
)


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a JSON document."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        yield from list_paths(child, (*path, name))


def replace_at(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replace_at(value[path[0]], path[1:], new)
    return copy


@st.composite
def damaged_texts(draw: st.DrawFn, document: Any) -> str:
    """A document with one value replaced, or its text cut off, or with other text inside."""
    text = json.dumps(document)
    match draw(st.sampled_from(["value", "value", "value", "cut", "insert"])):
        case "value":
            path = draw(st.sampled_from(list(list_paths(document))))
            return json.dumps(replace_at(document, path, draw(json_values)))
        case "cut":
            return text[: draw(st.integers(0, len(text)))]
        case _:
            position = draw(st.integers(0, len(text)))
            return text[:position] + draw(st.sampled_from(["\0", "NaN", "Infinity", "}", '"', "é"])) + text[position:]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The operations of a journal with one finished attempt."""
    store = StudyStore(tmp_path_factory.mktemp("journal"), "study")
    with store.session():
        ledger = Ledger(store)
        attempt = ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL)
        ledger.finish_attempt(attempt, "done", 3.0, why="", **RESULT)
        ledger.open_study("a").set_user_attr("generations", {"other": 1})
    return [json.loads(line) for line in store.journal_file.read_text().splitlines()]


def read_study(folder: Path, lines: list[str]) -> None:
    """Read a study with this journal, and format its records as `hqlt status` does."""
    store = StudyStore(folder, "study")
    store.folder.mkdir(parents=True, exist_ok=True)
    store.journal_file.write_text("".join(f"{line}\n" for line in lines))
    for record in load_snapshot(store).records:
        numbers = (*record.metrics.values(), *record.errors.values(), record.seconds, record.flops_per_token)
        assert all(f"{number:.4g}" for number in numbers)
        assert record.step + record.seed + record.parameters + record.state_bytes is not None
        assert isinstance(record.why, str) and isinstance(record.state, str)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_damaged_journal_is_a_store_error(journal, tmp_path_factory, data):
    number = data.draw(st.integers(0, len(journal) - 1))
    lines = [json.dumps(operation) for operation in journal]
    lines[number] = data.draw(damaged_texts(journal[number])).replace("\n", " ")
    lines.append(lines[-1])  # a damaged last line could still be incomplete
    try:
        read_study(tmp_path_factory.getbasetemp() / "fuzz", lines)
    except StoreError as error:
        assert str(tmp_path_factory.getbasetemp()) in str(error)


@pytest.mark.parametrize("metric", ["0.5", None, [], True, 10**400])
def test_a_journal_with_a_metric_that_is_not_a_number_is_a_store_error(journal, tmp_path, metric):
    lines = [
        json.dumps(operation).replace('{"test/accuracy": 99.0}', '{"test/accuracy": METRIC}') for operation in journal
    ]
    with pytest.raises(StoreError):
        read_study(tmp_path, [line.replace("METRIC", json.dumps(metric)) for line in lines])


@pytest.mark.parametrize("generations", [[], "", "k", None, 0, True, {"k": "1"}, {"k": None}, {"k": 10**400}])
def test_a_journal_whose_generations_are_damaged_is_a_store_error(journal, tmp_path, generations):
    lines = [json.dumps(operation).replace('{"other": 1}', json.dumps(generations)) for operation in journal]
    with pytest.raises(StoreError) as error:
        read_study(tmp_path, lines)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("text", [NESTED, "[]", "null", '{"key": ', "\0"])
def test_a_damaged_value_of_the_database_is_a_value_error(text):
    trials = [("study/a", 1, 0, "RUNNING", text, None)]
    with pytest.raises(ValueError):
        list(PostgresReader(lambda *_, **__: trials, "study/").read_rows())
    with pytest.raises(ValueError):
        list(PostgresReader(lambda *_, **__: [(text,)], "study/").read_generations())


READERS: dict[str, tuple[str, Any, Any]] = {  # file -> document, reader of its folder
    "index.json": ("", INDEX.to_dict(), read_index),
    OUTCOME_FILE: ("", RESULT | {"status": "done"}, read_outcome),
    SYNC_STATE_FILE: ("", vars(SyncState(uri="u", experiment="1", run="2")), read_sync_state),
    PLAN_FILE: ("", PLAN, lambda folder: load_plan(folder, "f")),
    METRICS_FILE: ("\n", ROW, lambda folder: (read_last_step(folder), read_rows(folder))),
    CELL_FILE: ("", tiny_cell().to_dict(), read_cell),
    DETERMINISM_FILE: ("", {"repeatable": False, "differs": ["loss"]}, read_determinism_check),
    OPS_FILE: ("", {"device": "cpu", "scan": "chunked"}, read_backends),
    CODE_FILE: ("", {"lab": "0c1f"}, read_code_hashes),
    EVALUATIONS_FILE: ("", [{"split": "test", "lesion": None, "time": 1, "metrics": {"loss": 0.5}}], list_evaluations),
    LM_EVAL_FILE: ("", [asdict(TASK_RESULT)], read_task_results),
    LONG_CONTEXT_FILE: ("", [asdict(CURVE)], read_long_context_curves),
    FILE_NOTE: ("", {"file": "../a.yaml"}, read_study_file),
}
# an error about a cell is a TrainingError
DAMAGE_ERRORS = (StoreError, TrainingError)


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_the_lab_wrote_is_read(tmp_path, name):
    end, document, read = READERS[name]
    (tmp_path / name).write_text(json.dumps(document) + end)
    assert read(tmp_path)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_a_store_error_or_ignored(tmp_path_factory, name, data):
    end, document, read = READERS[name]
    folder = tmp_path_factory.getbasetemp()
    (folder / name).write_text(data.draw(damaged_texts(document)) + end)
    try:
        check_values(read(folder))
    except DAMAGE_ERRORS as error:
        assert str(folder / name) in str(error)


def check_values(value: Any) -> None:
    """Use a value as its readers do."""
    match value:
        case Outcome():
            assert all(f"{number:.4g}" for number in (*value.metrics.values(), value.seconds, value.step))
        case (int(), (rows, _)):
            assert all(f"{number:.4g}" for row in rows for number in row.metrics.values())
        case [Evaluation(), *_]:
            assert all(f"{number:.4g}" for evaluation in value for number in evaluation.metrics.values())
        case [TaskResult(), *_]:
            for metric in collect_metric_values(latest_complete_results(value)).values():
                assert f"{metric.value:.4g} {format_protocols(metric.protocols)}"
        case [LongContextCurve(), *_]:
            assert all(f"{x:d} {y:.4g} {curve.title}" for curve in value for x, y in curve.points)
        case DeterminismCheck():
            assert value.warning_message
        case Cell():
            assert value.arm.name is not None and value.train.steps > 0
        case CorpusIndex():
            assert value.digest and sum(value.num_shards(split) for split in value.splits) >= 0


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("text", [NESTED, "null", '{"splits": null}', '{"retries": Infinity}', ""])
def test_a_file_with_other_content_is_a_store_error_or_ignored(tmp_path, name, text):
    end, _, read = READERS[name]
    (tmp_path / name).write_text(text + end)
    try:
        assert not read(tmp_path) or name in (METRICS_FILE, OPS_FILE, CODE_FILE)
    except DAMAGE_ERRORS as error:
        assert str(tmp_path / name) in str(error)
