"""A component file that changes or disappears, between two runs or during one, is detected and never mixed up."""

import pytest

from hqlt_lab.errors import TrainingError
from hqlt_lab.registry import CodeChanged, export_to_subprocesses, load_components, temporary_components
from hqlt_lab.registry.plugins import DIGESTS_VARIABLE, FILES_VARIABLE
from hqlt_lab.track.provenance import cell_code_hashes, source_hash
from hqlt_lab.train.distributed.fit_in_subprocess import fit_in_subprocess
from hqlt_lab.train.fit import discard_metrics
from tests.issues import raises_issue

from .conftest import FAULTY


def test_component_changed_since_training_is_reported(lab, tmp_path):
    component_file = tmp_path / "my_mixer.py"
    component_file.write_text(FAULTY.read_text())
    with temporary_components():
        load_components(component_file)
        experiment = lab.experiment("arms: {mine: {model.mixer: faulty}, sum: {}}\nseeds: 1")
        lab.run(experiment)
        assert not any(record.changed for record in lab.records(experiment))
        component_file.write_text(FAULTY.read_text() + "# fixed\n")
        clear_source_caches()
        assert {record.arm: record.changed for record in lab.records(experiment)} == {
            "mine": ("mixer faulty",),
            "sum": (),
        }


@pytest.fixture
def component_file(tmp_path):
    """A user's component file that tests may change; hashes of earlier contents are not cached."""
    file = tmp_path / "my_mixer.py"
    file.write_text(FAULTY.read_text())
    with temporary_components():
        load_components(file)
        clear_source_caches()
        yield file
        clear_source_caches()


def clear_source_caches():
    source_hash.cache_clear()


def test_cells_are_not_trained_with_a_component_that_changed_during_the_run(lab, component_file):
    experiment = lab.experiment("arms: {mine: {model.mixer: faulty}}\nseeds: 1")
    cell_code_hashes(experiment.make_cell(experiment.arms[0], {}, 0))  # cached: the coordinator has read the file
    component_file.write_text(FAULTY.read_text() + "# other\n")
    with pytest.raises(TrainingError, match="mixer faulty"):
        lab.run(experiment)
    assert [(record.state, record.metrics) for record in lab.records(experiment)] == [("waiting", {})]
    clear_source_caches()
    lab.run(experiment)
    (record,) = lab.records(experiment)
    assert record.state == "done" and not record.changed and "+" not in record.code["mixer faulty"]


@pytest.mark.slow
def test_component_file_deleted_during_the_run_costs_no_attempt(lab, component_file):
    experiment = lab.experiment("arms: {mine: {model.mixer: faulty}}\nseeds: 1", overrides=("launcher.retries=0",))
    cell_code_hashes(experiment.make_cell(experiment.arms[0], {}, 0))
    component_file.rename(component_file.with_suffix(".moved"))
    with pytest.raises(TrainingError, match=r"my_mixer\.py"):
        lab.run(experiment)
    component_file.with_suffix(".moved").rename(component_file)
    lab.run(experiment)
    assert lab.states(experiment) == {"done": 1}


def test_subprocess_of_a_cell_refuses_a_component_that_differs_from_its_workers(
    lab, component_file, tmp_path, monkeypatch
):
    """The subprocess of a multi-device cell reads the component file itself."""
    for name in (FILES_VARIABLE, DIGESTS_VARIABLE):
        monkeypatch.setenv(name, "")  # restored after the test
    experiment = lab.experiment("arms: {mine: {model.mixer: faulty}}\nseeds: 1")
    cell = experiment.make_cell(experiment.arms[0], {}, 0)
    export_to_subprocesses([component_file])
    component_file.write_text(FAULTY.read_text() + "# other\n")
    with raises_issue("", "code_changed", CodeChanged):
        fit_in_subprocess(cell, tmp_path / "cell", discard_metrics)
    component_file.unlink()
    with raises_issue("", "code_unavailable", CodeChanged):
        fit_in_subprocess(cell, tmp_path / "cell", discard_metrics)
    component_file.write_text(FAULTY.read_text())
    assert fit_in_subprocess(cell, tmp_path / "cell", discard_metrics).status == "done"


def test_cell_resumed_after_a_component_change_is_recorded_with_both_versions(lab, component_file, tmp_path):
    arm = f"arms: {{mine: {{model.mixer: {{name: faulty, how: die, step: 5, mark: {tmp_path}/died}}}}}}\nseeds: 1"
    experiment = lab.experiment(arm, overrides=("launcher.retries=0",))
    lab.run(experiment)
    (record,) = lab.records(experiment)
    old_hash = record.code["mixer faulty"]
    assert record.state == "failed" and (record.folder / "last.ckpt").exists()
    component_file.write_text(FAULTY.read_text() + "# fixed\n")
    clear_source_caches()
    lab.run(experiment)
    (record,) = lab.records(experiment)
    assert record.state == "done" and record.changed == ("mixer faulty",)
    assert record.code["mixer faulty"].startswith(f"{old_hash}+")
