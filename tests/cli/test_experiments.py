"""plan, train and schema, as a newcomer types them."""

import json
from contextlib import chdir

import pytest
from typer.testing import CliRunner

from hqlt_lab.cli.app import app
from hqlt_lab.errors import HqltError
from hqlt_lab.words import about, in_bytes, in_numbers, in_time

FILE = """
question: Does it run?
task: {name: parity, train_length: [3, 8], test_length: [8, 12], eval_size: 16}
model: {width: 8, heads: 2, layers: 1, mlp_width: 8, timing: {name: synchronous, window: 2}, positions: none}
train: {steps: 4, batch_size: 4, valid_every: 2, checkpoint_every: 2}
arms: {one: {}, two: {model.mixer: sum}}
tune: {train.lr: {low: 1e-4, high: 1e-2, log: true, trials: 5}}
seeds: 2
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "question.yaml").write_text(FILE)
    return tmp_path


def hqlt(folder, *words, code=0):
    """In this process, which has loaded Lightning once; `main` makes a sentence of the lab's errors."""
    with chdir(folder):
        done = CliRunner().invoke(app, words, env={"COLUMNS": "160"})
    assert isinstance(done.exception, HqltError) == bool(code), done.output
    return str(done.exception) if code else done.output


def test_plan_tells_what_would_be_trained_and_what_it_costs(folder):
    told = hqlt(folder, "plan", "question.yaml")
    assert "Does it run?" in told and "4 cells" in told and "a rough estimate" in told
    assert "Searched: train.lr, from 0.0001 to 0.01, 5 points per arm." in told and "cells on top" in told
    assert not (folder / "runs").exists()


def test_plan_tells_how_large_the_models_are(folder):
    told = hqlt(folder, "plan", "question.yaml", "--set", "task.train_length=[3, 9]", "--only", "arm=two")
    line = next(line.split() for line in told.splitlines() if line.startswith("two"))
    # three numbers to read and to predict, 4 projections of 8 x 8, the rule's 2 x 8, an MLP of 3 x 64, norms of 28
    assert line[1] == str(2 * 3 * 8 + 4 * 64 + 16 + 3 * 64 + 28)
    assert line[2:4] == [str(8 + 2 * 4 * 4 * 4 + 2 * 2 * 8 * 4), "B"]
    assert "state: bytes of one row after 8 tokens" in told


def test_plan_tells_sizes_part_by_part(folder):
    told = hqlt(folder, "plan", "question.yaml", "--sizes")
    lines = [line.split() for line in told.splitlines()]
    assert [line[0] for line in lines if line[1:2] == ["parameters"]] == ["one", "two"]
    assert [line[:2] for line in lines if line[:1] == ["mixer"]] == [["mixer", "64"]]  # a sum has none
    (cell,) = json.loads(hqlt(folder, "plan", "question.yaml", "--json", "--only", "arm=one,seed=0"))
    sizes, parts = cell["sizes"], cell["sizes"]["parts"]
    assert parts["mixer"]["training_flops_per_token"] == 6 * 64 and parts["mixer"]["decoding_flops_per_token"] == 2 * 64
    assert all(sizes[name] == pytest.approx(sum(part[name] for part in parts.values())) for name in parts["mixer"])


def test_plan_tells_upper_bounds_on_tokens_per_second_when_asked(folder):
    told = hqlt(folder, "plan", "question.yaml", "--roofline")
    assert "H100" not in hqlt(folder, "plan", "question.yaml")
    assert "Upper bounds on tokens per second" in told and "A100-SXM-80GB" in told
    (cell,) = json.loads(hqlt(folder, "plan", "question.yaml", "--json", "--only", "arm=one,seed=0"))
    slower, faster = (cell["roofline"][chip] for chip in ("A100-SXM-80GB", "H100-SXM"))
    assert 0 < slower["most_tokens_per_second"] < faster["most_tokens_per_second"]
    assert faster["most_tokens_per_second"] == pytest.approx(1 / sum(faster["seconds_per_token"].values()))
    line = next(line.split() for line in told.splitlines() if line.startswith("one") and "%" in line)
    assert line[1:3] == [in_numbers(bound["most_tokens_per_second"]) for bound in (slower, faster)]


def test_devices_share_the_batch_of_a_cell(folder):
    one, four = (
        json.loads(hqlt(folder, "plan", "question.yaml", "--json", "--only", "arm=one,seed=0", "--set", words))[0]
        for words in ("trainer.devices=1", "trainer.devices=4")
    )
    seconds = [cell["roofline"]["H100-SXM"]["seconds_per_token"]["optimiser"] for cell in (one, four)]
    assert seconds[1] == pytest.approx(4 * seconds[0])


def test_plan_tells_what_was_solved_to_match_the_arms(folder):
    wider = ("--set", "model.width=32", "--set", "model.mlp_width=64")
    told = hqlt(folder, "plan", "question.yaml", *wider, "--set", "match=parameters")
    (line,) = (line.split() for line in told.splitlines() if line.startswith("two") and "mlp_width" in line)
    assert line[:2] == ["two", "mlp_width"] and line[-1] == "one" and "parameters" in line and "%" in line
    assert any(line.split() == ["one", "as", "written"] for line in told.splitlines())
    cells = json.loads(hqlt(folder, "plan", "question.yaml", *wider, "--set", "match=parameters", "--json"))
    first, second = (next(cell for cell in cells if cell["arm"] == arm) for arm in ("one", "two"))
    found = second["matched"]
    assert (
        first["matched"] is None and f"{found['value']}," == line[2] and second["model"]["mlp_width"] == found["value"]
    )
    sizes = [cell["sizes"]["parameters"] for cell in (first, second)]
    assert found["residual"] == pytest.approx(sizes[1] / sizes[0] - 1) and abs(found["residual"]) <= 0.01


@pytest.mark.parametrize("words", [(), ("--sizes",), ("--set", "match={on: parameters, within: 0.1}")])
def test_plan_shows_brackets_in_names_and_obeys_none(folder, words):
    text = FILE.replace("Does it run?", "'Does [it] run?'").replace("two:", "'two [bold]':")
    (folder / "question.yaml").write_text(text)
    told = hqlt(folder, "plan", "question.yaml", *words)
    assert "Does [it] run?" in told and told.count("two [bold]") == (3 if "--set" in words else 2)


def test_plan_can_be_probed_and_read_by_programs(folder):
    assert "a rough estimate" not in hqlt(folder, "plan", "question.yaml", "--probe", "--only", "arm=two")
    (cell,) = json.loads(hqlt(folder, "plan", "question.yaml", "--only", "arm=two,seed=1", "--json"))
    assert cell["model"]["mixer"] == {"name": "sum"} and cell["seed"] == 1 and len(cell["key"]) == 16


def test_train_trains_one_cell_and_again_shows_it(folder):
    told = hqlt(folder, "train", "question.yaml", "--only", "arm=two")
    assert "two, seed 0 (the first of 2 that match)" in told and "step 2 of 4" in told
    assert "test/normalised_accuracy" in told and "done at step 4" in told
    again = hqlt(folder, "train", "question.yaml", "--only", "arm=two")
    assert "step 2 of 4" not in again and "done at step 4" in again
    assert "step 2 of 4" in hqlt(folder, "train", "question.yaml", "--only", "arm=two", "--again")


def test_train_can_be_changed_from_the_command_line(folder):
    assert "done at step 2" in hqlt(folder, "train", "question.yaml", "--set", "train.steps=2")


def test_schema_is_printed_or_written(folder):
    assert json.loads(hqlt(folder, "schema"))["title"] == "hqlt_lab experiment"
    assert "yaml-language-server: $schema=s.json" in hqlt(folder, "schema", "--into", "s.json")
    assert json.loads((folder / "s.json").read_text())["properties"]["train"]["properties"]["lr"]["default"] == 1e-3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("plan", "nowhere.yaml"), "nowhere.yaml: cannot be read (No such file or directory)."),
        (
            ("plan", "question.yaml", "--set", "train.step=3"),
            "train.step: there is no such setting. Did you mean 'steps'?",
        ),
        (
            ("train", "question.yaml", "--only", "arm=tow"),
            "--only arm=tow: there is no such value. Did you mean 'two'?",
        ),
    ],
)
def test_a_mistake_is_a_sentence_and_an_exit_code(folder, words, says):
    assert says in hqlt(folder, *words, code=1)


def test_numbers_are_for_people():
    assert [in_time(s) for s in (42.4, 170, 9000, 4e5)] == ["42.4 s", "2.83 min", "2.5 h", "4.63 d"]
    assert [in_time(days * 86_400) for days in (700, 31_100)] == ["700 d", "85.1 years"]
    assert [about(s) for s in (0.003, 42.4, 170, 9130, 1e5 * 86_400)] == [
        "less than a second", "about 42 s", "about 2.8 min", "about 2.5 h", "about 274 years",
    ]  # fmt: skip
    assert [in_bytes(3.2e18), in_numbers(4.5e15)] == ["3,200 PB", "4,500T"]
    assert [in_bytes(b) for b in (12, 34500, 1.2e9)] == ["12 B", "34.5 kB", "1.2 GB"]
    assert [in_numbers(n) for n in (950, 595392, 1465750528)] == ["950", "595k", "1.47B"]
