"""A part whose file changes or goes away, between two runs or during one: told, and never mixed."""

import pytest

from hqlt_lab.errors import TrainingError
from hqlt_lab.registry import OtherCode, hand_on, include, temporarily
from hqlt_lab.registry.outside import DIGESTS, INHERITED
from hqlt_lab.track.provenance import code_of, of_source, parts_of
from hqlt_lab.train.apart import fit_apart
from hqlt_lab.train.fit import ignore

from .conftest import FAULTY


def test_a_part_that_changed_since_is_told(lab, tmp_path):
    part = tmp_path / "my_mixer.py"
    part.write_text(FAULTY.read_text())
    with temporarily():
        include(part)
        experiment = lab.experiment("arms: {mine: {model.mixer: faulty}, sum: {}}\nseeds: 1")
        lab.run(experiment)
        assert not any(record.changed for record in lab.records(experiment))
        part.write_text(FAULTY.read_text() + "# mended\n")
        of_source.cache_clear()
        parts_of.cache_clear()
        assert {record.arm: record.changed for record in lab.records(experiment)} == {
            "mine": ("mixer faulty",),
            "sum": (),
        }


@pytest.fixture
def part(tmp_path):
    """A file of one's own, which may change; what is known of it is what a new process would know."""
    file = tmp_path / "my_mixer.py"
    file.write_text(FAULTY.read_text())
    with temporarily():
        include(file)
        read_anew()
        yield file
        read_anew()


def read_anew():
    of_source.cache_clear()
    parts_of.cache_clear()


def test_a_part_that_changes_while_the_study_runs_is_not_trained_as_if_it_had_not(lab, part):
    experiment = lab.experiment("arms: {mine: {model.mixer: faulty}}\nseeds: 1")
    code_of(experiment.cell(experiment.arms[0], {}, 0))  # the coordinator has read it
    part.write_text(FAULTY.read_text() + "# other\n")
    with pytest.raises(TrainingError, match=r"file of mixer faulty has changed since the run began. Run the same comm"):
        lab.run(experiment)
    assert [(record.state, record.metrics) for record in lab.records(experiment)] == [("waiting", {})]
    read_anew()
    lab.run(experiment)
    (record,) = lab.records(experiment)
    assert record.state == "done" and not record.changed and "+" not in record.code["mixer faulty"]


@pytest.mark.slow
def test_a_part_that_is_gone_while_the_study_runs_costs_no_attempt(lab, part):
    experiment = lab.experiment("arms: {mine: {model.mixer: faulty}}\nseeds: 1", overrides=("launcher.retries=0",))
    code_of(experiment.cell(experiment.arms[0], {}, 0))
    part.rename(part.with_suffix(".away"))
    with pytest.raises(
        TrainingError, match=r"now cannot be\. --with .*my_mixer.py: there is no such file. Run the same"
    ):
        lab.run(experiment)
    part.with_suffix(".away").rename(part)
    lab.run(experiment)
    assert lab.states(experiment) == {"done": 1}


def test_the_process_of_a_cell_trains_nothing_but_what_its_worker_has_read(lab, part, tmp_path, monkeypatch):
    """One for several devices reads the file itself."""
    for name in (INHERITED, DIGESTS):
        monkeypatch.setenv(name, "")  # and as it was, afterwards
    experiment = lab.experiment("arms: {mine: {model.mixer: faulty}}\nseeds: 1")
    cell = experiment.cell(experiment.arms[0], {}, 0)
    hand_on([part])
    part.write_text(FAULTY.read_text() + "# other\n")
    with pytest.raises(OtherCode, match=r"my_mixer\.py has changed since the run began\. Run the same command again"):
        fit_apart(cell, tmp_path / "cell", ignore)
    part.unlink()
    with pytest.raises(OtherCode, match=r"now cannot be\. --with .*my_mixer\.py: there is no such file"):
        fit_apart(cell, tmp_path / "cell", ignore)
    part.write_text(FAULTY.read_text())
    assert fit_apart(cell, tmp_path / "cell", ignore).status == "done"


def test_a_cell_that_goes_on_after_its_part_changed_is_told_to_be_of_both(lab, part, tmp_path):
    arm = f"arms: {{mine: {{model.mixer: {{name: faulty, how: die, step: 5, mark: {tmp_path}/died}}}}}}\nseeds: 1"
    experiment = lab.experiment(arm, overrides=("launcher.retries=0",))
    lab.run(experiment)
    (record,) = lab.records(experiment)
    before = record.code["mixer faulty"]
    assert record.state == "failed" and (record.folder / "last.ckpt").exists()
    part.write_text(FAULTY.read_text() + "# mended\n")
    read_anew()
    lab.run(experiment)
    (record,) = lab.records(experiment)
    assert record.state == "done" and record.changed == ("mixer faulty",)
    assert record.code["mixer faulty"].startswith(f"{before}+")
