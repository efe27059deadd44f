"""A component whose analysis fails is trained and tested as usual; outcome, run output and report show it."""

import pytest
from rich.console import Console

import hqlt_lab as lab
from hqlt_lab.cli.terminal.study_progress import StudyProgress
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.components.update_rules.delta import Delta
from hqlt_lab.errors import ConfigError, ConfigIssue, RegistryError
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.files import DiskFull
from hqlt_lab.registry import register
from hqlt_lab.report.wording.caveats import describe_failed_analyses
from hqlt_lab.rundir.outcome import read_outcome
from hqlt_lab.study.ledger.cell_record import CellRecord
from hqlt_lab.train.fit import fit_in_process
from hqlt_lab.train.interrupt import RunInterrupted
from hqlt_lab.train.trainer_state import TrainerState, record_analysis_failure

from .conftest import tiny_cell


class Uncountable(Delta):
    def count_flops(self, q, k, v, gates, state, context):
        raise KeyError("flops")

    def backend_choice(self, gates, spec):
        raise AttributeError("backend")


class Unweighted(Mixer):
    def forward(self, x, fw, kv):
        return fw + kv

    def weights(self, x):
        raise IndexError("weights")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with lab.temporary_components():
        register("update_rule", "uncountable")(Uncountable)
        register("mixer", "unweighted")(Unweighted)
        model = {"update_rule": "uncountable", "mixer": "unweighted"}
        fit_in_process(tiny_cell(model=model, steps=2, valid_every=1), folder)
    return read_outcome(folder)


def test_cell_whose_analysis_fails_is_done_with_its_metrics_and_parameters(outcome):
    assert (outcome.status, outcome.step) == ("done", 2)
    assert "test/accuracy" in outcome.metrics and outcome.parameters > 0
    assert (outcome.state_bytes, outcome.flops_per_token) == (0, 0)


def test_each_failed_analysis_is_a_warning_of_the_outcome_once(outcome):
    causes = ("AttributeError", "IndexError", "KeyError")  # backends, probes of two validations, sizes
    assert len(outcome.warnings) == len(causes)
    assert all(cause in warning for cause, warning in zip(causes, outcome.warnings, strict=True))


class Misconfigured(Mixer):
    def forward(self, x, fw, kv):
        return fw + kv

    def weights(self, x):
        raise ConfigError.at("model.mixer", "test", "weights.")


class Unknown(Delta):
    def count_flops(self, q, k, v, gates, state, context):
        raise RegistryError(ConfigIssue("model.update_rule", "test", "sizes."))


def test_error_about_settings_in_an_analysis_after_training_is_a_warning_too(tmp_path):
    with lab.temporary_components():
        register("mixer", "misconfigured")(Misconfigured)
        register("update_rule", "unknown")(Unknown)
        model = {"update_rule": "unknown", "mixer": "misconfigured"}
        fit_in_process(tiny_cell(model=model, steps=2, valid_every=1), tmp_path)
    outcome = read_outcome(tmp_path)
    assert outcome.status == "done" and "test/accuracy" in outcome.metrics and outcome.parameters > 0
    assert [warning.rpartition(" ")[2] for warning in outcome.warnings] == ["weights.", "sizes."]


class WithoutBackend(Delta):
    def backend_choice(self, gates, spec):
        raise ConfigError.at("model.update_rule.backend", "test", "there is none.")


def test_error_about_settings_before_training_ends_the_run(tmp_path):
    with lab.temporary_components(), pytest.raises(ConfigError):
        register("update_rule", "without_backend")(WithoutBackend)
        fit_in_process(tiny_cell(model={"update_rule": "without_backend"}, steps=2), tmp_path)


@pytest.mark.parametrize("error", [RunInterrupted("stopped"), DiskFull("full")])
def test_stop_signal_and_full_disk_during_an_analysis_are_raised(error):
    trainer_state = TrainerState()
    with pytest.raises(type(error)), record_analysis_failure(trainer_state, "Sizes"):
        raise error
    assert not trainer_state.warnings


def test_report_counts_the_cells_of_each_failed_analysis():
    records = [
        CellRecord(key=str(seed), arm="a", seed=seed, state=state, warnings=["Probes: KeyError"])
        for seed, state in enumerate(("done", "done", "failed"))
    ]
    (warning,) = describe_failed_analyses(records)
    assert "2" in warning and "Probes: KeyError" in warning


def test_run_output_shows_the_warnings_of_a_finished_cell():
    record = CellRecord(key="0", arm="a", seed=0, state="done", warnings=["Probes: KeyError"])
    assert "Probes: KeyError" in StudyProgress(Console(), MeasureConfig()).format_record(record)
