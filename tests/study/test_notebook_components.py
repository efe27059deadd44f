"""A study trains a component that was defined in a notebook, and tells its versions apart."""

import pytest

from hqlt_lab.registry import list_loaded_files, temporary_components
from hqlt_lab.study.notebook_components import COMPONENTS_FOLDER, write_notebook_components
from hqlt_lab.track.provenance import component_hash, hash_files
from tests.issues import raises_issue
from tests.registry.notebook_cells import FakeNotebook

CELL = """
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.registry import register

SCALE = 0.5

@register("mixer", "mine")
class Mine(Mixer):
    def weights(self, x):
        return SCALE, SCALE
"""
ARMS = "arms: {sum: {}, mine: {model.mixer: mine}}\n"


@pytest.fixture
def notebook():
    with temporary_components():
        notebook = FakeNotebook()
        notebook.run_cell(CELL)
        yield notebook
        notebook.close()


def write_components(lab, experiment):
    """Write the files of the notebook's components and return those that workers load."""
    write_notebook_components(experiment, lab.runs / "studies" / experiment.name)
    return list_loaded_files()


def test_cells_of_a_notebook_component_are_trained_and_its_versions_are_told_apart(lab, notebook):
    experiment = lab.experiment(f"{ARMS}seeds: 1")
    (first_file,) = write_components(lab, experiment)
    lab.run(experiment)
    assert lab.states(experiment) == {"done": 2}
    code = {record.arm: record.code for record in lab.records(experiment)}
    assert code["mine"]["mixer mine"] == hash_files([first_file]) == component_hash("mixer", "mine")

    notebook.run_cell("SCALE = 0.25")
    assert {record.arm: record.changed for record in lab.records(experiment)} == {"sum": (), "mine": ("mixer mine",)}
    experiment = lab.experiment(f"{ARMS}seeds: 2")
    (second_file,) = write_components(lab, experiment)
    lab.run(experiment)
    hashes = {record.seed: record.code["mixer mine"] for record in lab.records(experiment) if record.arm == "mine"}
    assert hashes == {0: hash_files([first_file]), 1: hash_files([second_file])} and first_file != second_file


def test_only_components_that_the_experiment_names_are_written(lab, notebook):
    notebook.run_cell('table = object()\n@register("mixer", "other")\nclass Other(Mine):\n    reads = ("kv",)')
    notebook.run_cell(
        '@register("mixer", "broken")\nclass Broken(Mine):\n    def weights(self, x):\n        return table'
    )
    assert write_components(lab, lab.experiment("seeds: 1")) == []
    (file,) = write_components(lab, lab.experiment("arms: {sum: {}}\ncross: {model.mixer: [sum, mine]}\nseeds: 1"))
    assert file.parent == (lab.runs / "studies/tiny" / COMPONENTS_FOLDER).resolve() and file.stem.startswith("mine_")


def test_component_that_cannot_be_copied_is_refused_before_anything_is_written(lab, notebook):
    notebook.run_cell("SCALE = [0.5]")
    experiment = lab.experiment(f"{ARMS}seeds: 1")
    notebook.run_cell(CELL.replace("SCALE = 0.5", ""))
    with raises_issue("mixer", "names_not_in_source") as error:
        write_components(lab, experiment)
    assert "SCALE" in error.value.issues[0].message
    assert not (lab.runs / "studies").exists() and component_hash("mixer", "mine") == "unknown"
