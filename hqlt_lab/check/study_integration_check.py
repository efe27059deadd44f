"""Check that a component can be used as in a study: it is validated, planned, trained, probed, tested and reported."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hqlt_lab.check.component_under_test import ComponentCase
from hqlt_lab.check.conformance_report import CheckFailed, CheckResult
from hqlt_lab.errors import IssueError

if TYPE_CHECKING:
    from hqlt_lab.rundir.outcome import Outcome

# long enough that training and test share almost no example, and that every window is crossed
SMALL_TASK = {"name": "parity", "train_length": [20, 24], "test_length": [24, 28], "eval_size": 8}
TRAIN = {"steps": 2, "batch_size": 4, "valid_every": 1, "log_every": 1, "warmup": 0, "keep": "none"}


def can_be_used_in_a_study(case: ComponentCase) -> Iterator[CheckResult]:
    """A study with the component can be planned, trained for two steps, probed, measured and reported."""
    from hqlt_lab.experiment.expand_cells import expand_plan
    from hqlt_lab.experiment.load_experiment import load_experiment
    from hqlt_lab.report.study_report import Report
    from hqlt_lab.study.ledger.cell_record import CellRecord
    from hqlt_lab.train.cost.estimate import estimate_cell_cost
    from hqlt_lab.train.fit import fit_in_process

    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "study.yaml"
        file.write_text(json.dumps(experiment_settings(case)))
        try:
            experiment = load_experiment(file)
        except IssueError as error:  # without the location, which is in a temporary file
            raise CheckFailed(" ".join(issue.format("") for issue in error.issues)) from error
        ((key, cell),) = expand_plan(experiment)
        planned_sizes = estimate_cell_cost(cell, measure=False).sizes.total
        outcome = fit_in_process(cell, Path(name) / "cell")
        assert_finished(outcome)
        if (outcome.parameters, outcome.state_bytes) != (planned_sizes.parameters, planned_sizes.state):
            raise CheckFailed("the sizes of the plan differ from those of the trained model.")
        results = asdict(outcome)
        fields = {name: results[name] for name in ("step", "metrics", "parameters", "state_bytes", "flops_per_token")}
        record = CellRecord(key=key, arm=cell.arm, seed=cell.seed, state="done", folder=Path(name) / "cell", **fields)
        report = Report.from_records(experiment, [record])
        report.to_markdown()
        report.to_json()
    yield CheckResult("can be used in a study", "passed")


def experiment_settings(case: ComponentCase) -> dict[str, Any]:
    """Return the content of an experiment file with the component."""
    model = ComponentCase("mixer", "sum").model_settings() if case.kind == "task" else case.model_settings()
    return {
        "question": f"Can {case.kind} {case.name} be used?",
        "task": case.spec | {"eval_size": SMALL_TASK["eval_size"]} if case.kind == "task" else SMALL_TASK,
        "model": model,
        "train": TRAIN,
        "trainer": {"accelerator": "cpu", "precision": "32"},
        "seeds": 1,
        "measure": {"select": "valid/loss", "direction": "minimize", "report": ["test/loss"]},
    }


def assert_finished(outcome: "Outcome") -> None:
    """Raise CheckFailed unless the run is done and all analyses of its model succeeded."""
    if outcome.status != "done":
        raise CheckFailed(
            (f"the status after {outcome.step} training steps is {outcome.status}. {outcome.message}").rstrip()
        )
    if outcome.warnings:
        raise CheckFailed(" ".join(outcome.warnings))
