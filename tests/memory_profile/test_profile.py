"""A profile is run, resumed, saved and compared; its scores are those of the studies of its tests."""

import json
import os
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import hqlt_lab as lab
from hqlt_lab.api import compare_profiles, make_report
from hqlt_lab.cli.app import app
from hqlt_lab.cli.terminal.exit_codes import ExitCode
from hqlt_lab.errors import StoreError
from hqlt_lab.memory_profile.load_battery import BATTERY
from hqlt_lab.memory_profile.memory_profile import MemoryProfile, load_profile
from hqlt_lab.memory_profile.profile_comparison import ProfileComparison
from hqlt_lab.memory_profile.profile_figures import LOWEST, draw_comparison, draw_profile
from hqlt_lab.memory_profile.profile_scores import ProfileScore, score_test
from hqlt_lab.memory_profile.profile_tables import build_comparison_table, build_profile_table
from hqlt_lab.study.study_callback import StudyCallback
from tests.issues import raises_issue

TINY = ["model.mixer=fw_only", "train.steps=2", "task.eval_size=6", "seeds=2", "trainer.accelerator=cpu"]
TESTS = ["s3_words", "recall_8"]


class CellCounter(StudyCallback):
    """Callback that counts cells that are trained."""

    def __init__(self):
        self.ends = []

    def on_cell_end(self, record):
        self.ends.append(record)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The working directory, in which two tests of a profile were run."""
    folder, original_folder = tmp_path_factory.mktemp("profile"), os.getcwd()
    os.chdir(folder)
    options = [argument for override in TINY for argument in ("--set", override)]
    options += [argument for test in TESTS for argument in ("--test", test)]
    result = CliRunner().invoke(app, ["profile", "--name", "tiny", *options, "--workers", "1"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (folder / "output.txt").write_text(result.stdout)
    yield folder
    os.chdir(original_folder)


def make_score(test="parity", metric="test/accuracy", mean=75.0, **fields):
    return ProfileScore(test=test, metric=metric, mean=mean, **({"chance": 50.0, "seeds": 3, "ended": 3} | fields))


def make_profile(*scores, name="mine"):
    return MemoryProfile(name=name, composition="mixer=sum", settings={}, scores=scores)


def test_profile_prints_a_row_per_metric_and_what_is_missing(folder):
    output = (folder / "output.txt").read_text()
    rows = re.findall(r"^ (s3 words|recall 8|parity)(.*)$", output, re.MULTILINE)
    assert [name for name, _ in rows] == ["s3 words", "s3 words", "recall 8"]
    assert "16.7" in rows[0][1] and "0 of 2" in rows[0][1]
    assert "Tests without a result: parity, recall_16, copying, selective_copying." in output
    assert "The battery was changed, so that this profile is not comparable: train.steps=2" in output
    assert "runs/profiles/tiny/profile.svg" in output


def test_scores_are_the_results_of_ordinary_studies(folder):
    stored = load_profile(folder / "runs/profiles/tiny")
    for test in TESTS:
        report = make_report(folder / f"runs/profiles/tiny/profile_tiny_{test}.yaml")
        scores = [score for score in stored.scores if score.test == test]
        assert score_test(test, report) == scores
        for score in scores:
            values = [record.metrics[score.metric] for record in report.records]
            assert sorted(score.values) == sorted(values)
            assert len(values) == 2 and score.mean == pytest.approx(sum(values) / 2)
    assert len(lab.results("runs/profiles/tiny/profile_tiny_recall_8.yaml")) == 2


def test_files_of_the_profile_are_written(folder):
    files = {file.name for file in (folder / "runs/profiles/tiny").iterdir()}
    assert files == {
        *("profile.json", "profile.md", "profile.svg", "profile.png"),
        *(f"profile_tiny_{test}.yaml" for test in TESTS),
    }
    assert "| s3 words, length 3 to 24 |" in (folder / "runs/profiles/tiny/profile.md").read_text()


def test_repeated_profile_trains_nothing_and_keeps_the_scores_of_other_tests(folder):
    before, counter = load_profile(folder / "runs/profiles/tiny"), CellCounter()
    result = lab.profile(name="tiny", overrides=TINY, tests=["recall_8"], callback=counter)
    assert result.complete and counter.ends == []
    assert result.profile == before
    assert not result.has_failed_cells
    assert "# Memory profile: tiny" in repr(result)


def test_a_name_belongs_to_one_composition_and_one_battery(folder):
    for change in ("model.mixer=sum", "train.steps=3"):
        with raises_issue("--name", "profile_of_other_composition"):
            lab.profile(name="tiny", overrides=[*TINY, change])


def test_workers_and_launcher_are_not_part_of_the_profile(folder):
    result = lab.profile(name="tiny", overrides=[*TINY, "launcher.workers=2"], tests=["recall_8"])
    assert "launcher" not in result.profile.settings["overrides"]
    assert "launcher" not in (folder / "runs/profiles/tiny/profile_tiny_recall_8.yaml").read_text()


def test_plan_shows_the_cost_and_writes_nothing(tmp_path):
    line = ["profile", "--set", "model.mixer=sum", "--name", "x", "--plan", "--runs", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, [*line, "--json"], catch_exceptions=False)
    entries = json.loads(result.stdout)
    assert [entry["test"] for entry in entries] == list(BATTERY)
    assert all(entry["cells"] == 3 and entry["seconds"] > 0 for entry in entries)
    assert "18 cells: about" in CliRunner().invoke(app, line, catch_exceptions=False).stdout
    assert not (tmp_path / "runs").exists()


def test_without_composition_all_profiles_are_compared(folder):
    result = CliRunner().invoke(app, ["profile"], catch_exceptions=False)
    assert "s3 words, length 25 to 64" in result.stdout and "tiny: mixer=fw_only." in result.stdout
    assert {file.name for file in (folder / "runs/profiles").glob("profiles.*")} == {
        *("profiles.md", "profiles.svg", "profiles.png")
    }
    (document,) = json.loads(CliRunner().invoke(app, ["profile", "--json"], catch_exceptions=False).stdout)
    assert document["name"] == "tiny" and document["scores"][0]["chance"] == pytest.approx(100 / 6)


def test_options_of_a_profile_need_a_composition(tmp_path):
    with raises_issue("--plan", "no_composition"):
        CliRunner().invoke(app, ["profile", "--plan", "--runs", str(tmp_path)], catch_exceptions=False)
    with pytest.raises(StoreError, match="there are no profiles"):
        compare_profiles(tmp_path)


def test_a_profile_with_failed_cells_ends_with_exit_code_3(folder, monkeypatch):
    line = ["profile", "--name", "fails", "--test", "recall_8", "--set", "train.lr=1e30", "--set", "train.clip=null"]
    options = [argument for override in TINY for argument in ("--set", override)]
    result = CliRunner().invoke(app, [*line, *options], catch_exceptions=False)
    assert result.exit_code == ExitCode.PARTIAL_FAILURE, result.output
    assert "2 diverged" in result.stdout


def test_normalized_scores_are_0_at_chance_and_100_if_perfect():
    assert [make_score(mean=mean).normalized for mean in (50.0, 75.0, 100.0, None)] == [0.0, 50.0, 100.0, None]


def test_profile_file_keeps_all_scores(tmp_path):
    profile = make_profile(
        make_score(
            low=40.0, high=90.0, values=(60.0, 90.0), lengths=(3, 40), trained_length=40, threshold=95.0, state_bytes=12
        ),
        make_score("copying", mean=None, unfinished={"waiting": 3}),
    )
    profile.save(tmp_path)
    assert load_profile(tmp_path) == profile


@pytest.mark.parametrize(
    "damage",
    [
        {"scores": [{"test": "parity"}]},
        {"scores": [ProfileScore(test="parity", metric="m").__dict__ | {"values": ["x"]}]},
        {"scores": "none"},
        {"name": "a\x1b[31m"},
        {"notes": [1]},
    ],
)
def test_a_damaged_profile_file_is_reported(tmp_path, damage):
    profile = make_profile(make_score())
    profile.save(tmp_path)
    (tmp_path / "profile.json").write_text(json.dumps(json.loads(profile.to_json()) | damage))
    with pytest.raises(StoreError, match="damaged"):
        load_profile(tmp_path)


def test_new_scores_replace_those_of_the_same_test_in_the_order_of_the_battery():
    profile = make_profile(make_score("copying"), make_score("parity", mean=60.0))
    profile = profile.with_scores("parity", [make_score("parity", mean=90.0)])
    assert [(score.test, score.mean) for score in profile.scores] == [("parity", 90.0), ("copying", 75.0)]


def test_table_has_states_of_unfinished_cells():
    table = build_profile_table(make_profile(make_score(mean=None, ended=1, unfinished={"waiting": 2})))
    assert table.rows[0][table.columns.index("unfinished")] == "2 waiting"
    assert table.rows[0][table.columns.index("normalized")] == ""


def test_figure_shows_normalized_means_intervals_and_lengths():
    length_40 = {"metric": "test/accuracy/length_3_40", "lengths": (3, 40), "trained_length": 40}
    trained = make_score(low=60.0, high=90.0, values=(65.0, 75.0, 85.0), **length_40)
    longer = replace(trained, metric="test/accuracy/length_41_80", mean=20.0, low=10.0, high=30.0, lengths=(41, 80))
    figure = draw_profile(make_profile(trained, longer, make_score("copying", mean=100.0)))
    scores, lengths = figure.figure.axes
    dots = [line for line in scores.lines if line.get_marker() == "o"]
    assert [dot.get_xdata()[0] for dot in dots] == [50.0, LOWEST, 100.0]
    assert [dot.get_markerfacecolor() == "white" for dot in dots] == [False, True, False]
    intervals = [tuple(line.get_xdata()) for line in scores.lines if len(line.get_xdata()) == 2]
    assert (20.0, 80.0) in intervals
    assert list(next(line for line in scores.lines if line.get_marker() == "|").get_xdata()) == [30.0, 50.0, 70.0]
    (line,) = lengths.lines
    assert list(line.get_xdata()) == [1.0, 2.0] and list(line.get_ydata()) == [50.0, LOWEST]
    assert "mixer=sum" in figure.to_svg()


def test_profile_without_results_has_no_figure():
    profile = make_profile(make_score(mean=None))
    assert draw_profile(profile) is None and draw_comparison([profile]) is None


def test_comparison_has_a_column_per_profile_and_a_row_per_score(tmp_path):
    first = make_profile(make_score("copying", mean=100.0), make_score("parity", mean=60.0), name="first")
    second = make_profile(make_score("parity", mean=100.0), name="second")
    table = build_comparison_table([first, second])
    assert table.columns == ["test", "first", "second"]
    assert table.rows == [["parity", "20.0", "100.0"], ["copying", "100.0", ""]]
    figure = draw_comparison([first, second])
    legend = [text.get_text() for text in figure.figure.legends[0].get_texts()]
    assert legend == ["first", "second"]
    comparison = ProfileComparison((first, second))
    assert [file.name for file in comparison.save(tmp_path)] == ["profiles.md", "profiles.svg", "profiles.png"]
    assert "| copying | 100.0 |  |" in repr(comparison)
