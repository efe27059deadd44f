"""lm-eval in a study: after training, in the report, in MLflow, by the verb, and whatever happens on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hqlt_lab as lab
from hqlt_lab.api import load_experiment, report, tracker_of
from hqlt_lab.api.trained import chosen_folders
from hqlt_lab.cli.app import app
from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.plan import plan
from hqlt_lab.report.protocols import alike, mixed
from hqlt_lab.track.sent import read_sent
from hqlt_lab.track.store import Store
from hqlt_lab.train.harness_file import FILE, answers_in, numbers_of, shown
from tests.evaluation.questions import local

pytestmark = pytest.mark.usefixtures("study")


def typed(*words, code=0):
    told = CliRunner().invoke(app, [*words], catch_exceptions=False)
    assert told.exit_code == code, told.output
    return told.stdout


def folders():
    return chosen_folders(load_experiment("study.yaml"), "runs", [])


def run_of(folder):
    return Store(tracker_of("runs")).open(), read_sent(folder).run


def test_only_the_chosen_points_were_asked_and_the_report_has_the_answers(study):
    asked = sorted(Path("runs").glob(f"studies/*/cells/*/{FILE}"))
    assert [file.parent for file in asked] == sorted(one.relative_to(Path.cwd()) for one in folders())
    assert len(asked) == 2 and not study.unanswered
    rows = {row.title: row for row in study.report.rows}
    for folder, row in zip(folders(), rows.values(), strict=True):
        found = numbers_of(shown(answers_in(folder)))
        assert row.summaries["eval/piqa/acc"].median == found["eval/piqa/acc"].value
        assert row.summaries["eval/wikitext/word_perplexity"].median > 1
    text = study.report.markdown()
    assert "eval/: lm-eval 0.4." in text and "length 64, 0 shots" in text and "66.2" in text
    seed = json.loads(study.report.json())["rows"][0]["seeds"][0]
    assert "all 3 documents" in seed["made_by"]["eval/piqa/acc"]


def test_accuracies_are_better_when_larger_whatever_is_selected_on(study):
    ways = {name: study.report.experiment.measure.way(name) for name in study.report.experiment.measure.report}
    assert ways == {
        "test/perplexity": "minimize",
        "eval/piqa/acc": "maximize",
        "eval/wikitext/word_perplexity": "minimize",
    }


def test_asking_is_not_training_so_the_keys_are_the_same():
    keys = [{one.key for one in plan(load_experiment("study.yaml", change))} for change in ([], ["evaluate.limit=1"])]
    assert keys[0] == keys[1]


def test_mlflow_has_the_answers_and_every_document(study):
    assert study.untracked is None
    for folder in folders():
        client, run = run_of(folder)
        found = numbers_of(shown(answers_in(folder)))
        metrics = client.get_run(run).data.metrics
        assert metrics["eval/piqa/acc"] == pytest.approx(found["eval/piqa/acc"].value)
        assert {one.path for one in client.list_artifacts(run)} >= {FILE, "samples"}
        names = [one.path for one in client.list_artifacts(run, "samples")]
        assert sorted(Path(name).name.split(".")[0] for name in names) == ["piqa", "wikitext"]
        lines = (folder / answers_in(folder)[0].samples).read_text().splitlines()
        assert len(lines) == 3 and json.loads(lines[0])["doc"]["goal"] == "To open a door"


def test_the_same_run_again_asks_nothing():
    before = [(folder / FILE).stat().st_mtime_ns for folder in folders()]
    lab.run("study.yaml")
    assert [(folder / FILE).stat().st_mtime_ns for folder in folders()] == before


def test_the_verb_asks_what_is_missing_in_columns_and_tells_mlflow():
    told = typed(
        "evaluate", "study.yaml", "--tasks", "general", "--local", "local", "--batch-size", "3", "--into", "all.json"
    )
    for word in ("Wiki. ppl", "LMB. acc", "Hella.", "ARC-c", "Avg.", "vector", "softmax"):
        assert word in told
    first, second = json.loads(Path("all.json").read_text())
    assert first["metrics"]["eval/general/average"] > 0 and second["arm"] == "softmax"
    assert len(answers_in(folders()[0])) == 7
    client, run = run_of(folders()[0])
    average = client.get_run(run).data.metrics["eval/general/average"]
    assert average == pytest.approx(first["metrics"]["eval/general/average"])


def test_a_cell_by_its_key_answers_with_a_memory_silent_too():
    folder = folders()[0]
    (told,) = json.loads(
        typed("evaluate", folder.name, "--tasks", "wikitext", "--local", "local", "--lesion", "fw", "--json")
    )
    whole, silent = (told["metrics"][f"{before}eval/wikitext/word_perplexity"] for before in ("", "without_fw/"))
    assert whole != silent
    client, run = run_of(folder)
    assert client.get_run(run).data.metrics["without_fw/eval/wikitext/word_perplexity"] == pytest.approx(silent)
    said = typed("evaluate", "study.yaml", "--tasks", "wikitext", "--local", "local", "--lesion", "fw", code=3)
    assert "vector without fw" in said and "this model has kv alone" in said


def test_a_look_at_some_documents_stands_beside_the_answer_to_all_and_is_never_shown_for_it():
    folder = folders()[1]
    before = numbers_of(shown(answers_in(folder)))
    told = json.loads(
        typed(
            "evaluate", folder.name, "--tasks", "piqa", "--local", "local", "--limit", "1", "--length", "80", "--json"
        )
    )[0]
    assert "the first 1 documents" in told["made_by"]["eval/piqa/acc"]
    assert "80 tokens of context are more than the 64 of training" in told["remarks"][0]
    assert numbers_of(shown(answers_in(folder))) == before


def test_numbers_that_were_made_otherwise_are_left_out_and_the_reader_is_told():
    made = report("study.yaml")
    assert not any("asked otherwise" in sentence for sentence in made.warnings)
    records = list(made.records)
    number = next(number for number, record in enumerate(records) if "eval/piqa/acc" in record.made_by)
    other = records[number].made_by["eval/piqa/acc"].replace("all 3", "the first 2")
    records[number] = replace(records[number], made_by=dict(records[number].made_by) | {"eval/piqa/acc": other})
    (sentence,) = mixed(records, ["eval/piqa/acc"])
    assert sentence.startswith("eval/piqa/acc: vector was asked otherwise") and "the first 2 documents" in sentence
    assert "eval/piqa/acc" not in alike(records)[number].metrics
    assert "eval/piqa/acc" in records[number].metrics
    again = type(made).make(made.experiment, records)
    assert "eval/piqa/acc" not in again.rows[0].summaries and sentence in again.warnings


def test_a_dataset_that_is_not_there_is_told_and_everything_else_is_kept(tmp_path):
    some = local(tmp_path / "some", ("arc_easy",))
    key = folders()[0].name
    told = typed("evaluate", key, "--tasks", "swde,arc_easy", "--local", str(some), "--length", "60", code=3)
    assert "swde: there is no" in told and "arc_easy/acc" in told
    assert any(one.task == "arc_easy" and one.protocol.length == 60 for one in answers_in(folders()[0]))


FOUR = "arc_easy,arc_challenge,lambada_openai,hellaswag"


def test_an_evaluation_that_is_broken_off_goes_on_with_what_is_missing():
    class Broken(BaseException):
        pass

    def told(what, done, total):
        if "lambada" in what:
            raise Broken

    key, options = folders()[0].name, {"local": "local", "length": 58}
    with pytest.raises(Broken):
        lab.evaluate_tasks(key, FOUR.split(","), told=told, **options)
    known = asked_at(folders()[0], 58)
    assert [one.task for one in known] == ["arc_easy", "arc_challenge"]
    asked = []
    lab.evaluate_tasks(key, FOUR.split(","), told=lambda what, done, total: asked.append(what), **options)
    assert asked_at(folders()[0], 58)[:2] == known
    assert {what.rpartition(" ")[2] for what in asked} == {"lambada_openai", "hellaswag"}


@pytest.mark.slow
def test_a_killed_evaluation_goes_on_with_what_is_missing():
    folder = folders()[1]
    words = ["evaluate", folder.name, "--tasks", FOUR, "--local", "local", "--length", "56", "--batch-size", "1"]
    running = subprocess.Popen(
        [Path(sys.executable).with_name("hqlt"), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while running.poll() is None and not asked_at(folder, 56):
        time.sleep(0.001)
    os.kill(running.pid, signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    known = asked_at(folder, 56)
    assert 1 <= len(known) < 4
    typed(*words)
    found = asked_at(folder, 56)
    assert len(found) == 4 and found[: len(known)] == known


def asked_at(folder, length):
    return [one for one in answers_in(folder) if one.protocol.length == length]


def test_again_asks_again():
    folder = folders()[0]
    words = ("evaluate", folder.name, "--tasks", "piqa", "--local", "local")
    first = (folder / FILE).read_text()
    typed(*words)
    assert (folder / FILE).read_text() == first
    typed(*words, "--again")
    assert (folder / FILE).read_text() != first and len(json.loads(first)) == len(answers_in(folder))


def test_plan_says_what_will_be_asked():
    assert (
        "Then every reported cell is asked piqa, wikitext, with as many tokens as in training of context, on"
        in " ".join(typed("plan", "study.yaml").split())
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("evaluate=[generl]", r"evaluate\.tasks: no task is called 'generl'\. Did you mean 'general'\?"),
        ("evaluate=[nowhere.yaml]", r"evaluate\.tasks: there is no file nowhere\.yaml"),
        ("evaluate={tasks: [piqa], length: 0}", r"evaluate\.length: at least 1 is needed, got 0"),
        ("evaluate={tasks: [piqa], lenght: 3}", r"evaluate\.lenght: .*Did you mean 'length'\?"),
        ("evaluate=[]", r"evaluate: a list of tasks is needed"),
        ("evaluate=[piqa]", r"measure\.report: 'eval/wikitext/word_perplexity' is no task's answer"),
        ("task=parity", r"evaluate: these tasks are about text, and arm 'vector' learns 'parity'"),
    ],
)
def test_what_is_wrong_with_the_section_is_told_when_the_file_is_read(change, sentence):
    changes = [
        change,
        *(
            [
                "measure.report=[eval/piqa/acc,eval/wikitext/word_perplexity]",
                "measure.select=valid/loss",
                "measure.direction=minimize",
            ]
        ),
    ]
    with pytest.raises(ConfigError, match=sentence):
        load_experiment("study.yaml", changes)
