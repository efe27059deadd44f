"""The experiment file that a study belongs to: another file of the same name is refused, a moved one is not."""

import pytest

from hqlt_lab.errors import StoreError
from hqlt_lab.study.experiment_file_record import open_study, read_study_file, record_study_file


@pytest.fixture
def owner(tmp_path):
    """The file of a study in the folder `runs`."""
    file = tmp_path / "a/study.yaml"
    for folder in ("a", "b", "runs/studies/study"):
        (tmp_path / folder).mkdir(parents=True)
    file.write_text("question: first\n")
    record_study_file(tmp_path / "runs/studies/study", file)
    return file


def test_other_file_of_the_same_name_is_refused(owner, tmp_path):
    other = tmp_path / "b/study.yaml"
    other.write_text("question: second\n")
    with pytest.raises(StoreError, match=r"a/study\.yaml"):
        open_study(tmp_path / "runs", other)
    assert open_study(tmp_path / "other_runs", other).name == "study"


@pytest.mark.parametrize("content", ["question: first\n", "question: changed\n"])
def test_moved_file_keeps_its_study(owner, tmp_path, content):
    moved = owner.rename(tmp_path / "b/study.yaml")
    moved.write_text(content)
    store = open_study(tmp_path / "runs", moved)
    record_study_file(store.folder, moved)
    assert read_study_file(store.folder) == moved


def test_changed_file_equal_copy_and_copy_in_the_study_are_accepted(owner, tmp_path):
    equal_copy, own_copy = tmp_path / "b/study.yaml", tmp_path / "runs/studies/study/study.yaml"
    equal_copy.write_text(owner.read_text())
    own_copy.write_text("question: resolved\n")
    for file in (owner, equal_copy, own_copy):
        assert open_study(tmp_path / "runs", file).name == "study"
    record_study_file(own_copy.parent, own_copy)
    assert read_study_file(own_copy.parent) == owner
    owner.write_text("question: changed\n")
    assert open_study(tmp_path / "runs", owner).name == "study"


def test_whole_project_may_be_moved(owner, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    for folder in ("a", "runs"):
        (tmp_path / folder).rename(moved / folder)
    assert read_study_file(moved / "runs/studies/study") == moved / "a/study.yaml"
