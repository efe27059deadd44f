"""`hqlt plan`, `hqlt train` and `hqlt schema`."""

import json
from contextlib import chdir

import pytest
from typer.testing import CliRunner

from hqlt_lab.cli.app import app
from hqlt_lab.errors import HqltError
from hqlt_lab.formatting import format_bytes, format_count, format_duration, format_estimate

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


def run_hqlt(folder, *arguments, code=0):
    """Run a command in this process, to import Lightning only once; return its output or its error message."""
    with chdir(folder):
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})
    assert isinstance(result.exception, HqltError) == bool(code), result.output
    return str(result.exception) if code else result.output


def test_plan_prints_the_cells_and_their_cost(folder):
    output = run_hqlt(folder, "plan", "question.yaml")
    assert "Does it run?" in output and "4 cells" in output and "rough estimate" in output
    assert "Search: train.lr from 0.0001 to 0.01, 5 trials per arm." in output and "The search adds 30 cells" in output
    assert not (folder / "runs").exists()


def test_plan_prints_the_size_of_the_models(folder):
    output = run_hqlt(folder, "plan", "question.yaml", "--set", "task.train_length=[3, 9]", "--only", "arm=two")
    line = next(line.split() for line in output.splitlines() if line.startswith("two"))
    # embedding and output for three tokens, 4 projections of 8 x 8, the rule's 2 x 8, an MLP of 3 x 64, norms of 28
    assert line[1] == str(2 * 3 * 8 + 4 * 64 + 16 + 3 * 64 + 28)
    assert line[2:4] == [str(8 + 2 * 4 * 4 * 4 + 2 * 2 * 8 * 4), "B"]
    assert "state: bytes per sequence after 8 tokens" in output


def test_plan_prints_the_sizes_of_the_components(folder):
    output = run_hqlt(folder, "plan", "question.yaml", "--sizes")
    lines = [line.split() for line in output.splitlines()]
    assert [line[0] for line in lines if line[1:2] == ["parameters"]] == ["one", "two"]
    assert [line[:2] for line in lines if line[:1] == ["mixer"]] == [["mixer", "64"]]  # a sum has none
    (cell,) = json.loads(run_hqlt(folder, "plan", "question.yaml", "--json", "--only", "arm=one,seed=0"))
    sizes, components = cell["sizes"], cell["sizes"]["components"]
    mixer = components["mixer"]
    assert mixer["training_flops_per_token"] == 6 * 64 and mixer["decoding_flops_per_token"] == 2 * 64
    for name in mixer:
        assert sizes[name] == pytest.approx(sum(component[name] for component in components.values()))


def test_plan_prints_rooflines_on_request(folder):
    output = run_hqlt(folder, "plan", "question.yaml", "--roofline")
    assert "H100" not in run_hqlt(folder, "plan", "question.yaml")
    assert "Upper bounds on tokens per second" in output and "A100-SXM-80GB" in output
    (cell,) = json.loads(run_hqlt(folder, "plan", "question.yaml", "--json", "--only", "arm=one,seed=0"))
    slower, faster = (cell["roofline"][chip] for chip in ("A100-SXM-80GB", "H100-SXM"))
    assert 0 < slower["most_tokens_per_second"] < faster["most_tokens_per_second"]
    assert faster["most_tokens_per_second"] == pytest.approx(1 / sum(faster["seconds_per_token"].values()))
    line = next(line.split() for line in output.splitlines() if line.startswith("one") and "%" in line)
    assert line[1:3] == [format_count(bound["most_tokens_per_second"]) for bound in (slower, faster)]


def test_devices_share_the_batch_of_a_cell(folder):
    seconds = []
    for devices in (1, 4):
        arguments = ("--json", "--only", "arm=one,seed=0", "--set", f"trainer.devices={devices}")
        (cell,) = json.loads(run_hqlt(folder, "plan", "question.yaml", *arguments))
        seconds.append(cell["roofline"]["H100-SXM"]["seconds_per_token"]["optimizer"])
    assert seconds[1] == pytest.approx(4 * seconds[0])


def test_plan_prints_the_settings_that_match_the_arms(folder):
    wider = ("--set", "model.width=32", "--set", "model.mlp_width=64")
    output = run_hqlt(folder, "plan", "question.yaml", *wider, "--set", "match=parameters")
    (line,) = (line.split() for line in output.splitlines() if line.startswith("two") and "mlp_width" in line)
    assert line[:2] == ["two", "mlp_width"] and line[-1] == "one" and "parameters" in line and "%" in line
    assert any(line.split() == ["one", "as", "written"] for line in output.splitlines())
    cells = json.loads(run_hqlt(folder, "plan", "question.yaml", *wider, "--set", "match=parameters", "--json"))
    first, second = (next(cell for cell in cells if cell["arm"] == arm) for arm in ("one", "two"))
    match = second["matched"]
    assert first["matched"] is None
    assert f"{match['value']}," == line[2] and second["model"]["mlp_width"] == match["value"]
    sizes = [cell["sizes"]["parameters"] for cell in (first, second)]
    assert match["residual"] == pytest.approx(sizes[1] / sizes[0] - 1) and abs(match["residual"]) <= 0.01


@pytest.mark.parametrize("arguments", [(), ("--sizes",), ("--set", "match={on: parameters, within: 0.1}")])
def test_plan_prints_brackets_in_names_literally(folder, arguments):
    text = FILE.replace("Does it run?", "'Does [it] run?'").replace("two:", "'two [bold]':")
    (folder / "question.yaml").write_text(text)
    output = run_hqlt(folder, "plan", "question.yaml", *arguments)
    assert "Does [it] run?" in output and output.count("two [bold]") == (3 if "--set" in arguments else 2)


def test_plan_can_measure_steps_and_print_json(folder):
    assert "rough estimate" not in run_hqlt(folder, "plan", "question.yaml", "--probe", "--only", "arm=two")
    (cell,) = json.loads(run_hqlt(folder, "plan", "question.yaml", "--only", "arm=two,seed=1", "--json"))
    assert cell["model"]["mixer"] == {"name": "sum"} and cell["seed"] == 1 and len(cell["key"]) == 16


def test_train_trains_one_cell_and_shows_its_result_if_it_is_repeated(folder):
    output = run_hqlt(folder, "train", "question.yaml", "--only", "arm=two")
    assert "two, seed 0 (the first of 2 that match)" in output and "step 2 of 4" in output
    assert "test/normalized_accuracy" in output and "done at step 4" in output
    repeated = run_hqlt(folder, "train", "question.yaml", "--only", "arm=two")
    assert "step 2 of 4" not in repeated and "done at step 4" in repeated
    assert "step 2 of 4" in run_hqlt(folder, "train", "question.yaml", "--only", "arm=two", "--again")


def test_train_accepts_overrides(folder):
    assert "done at step 2" in run_hqlt(folder, "train", "question.yaml", "--set", "train.steps=2")


def test_schema_is_printed_or_written(folder):
    assert json.loads(run_hqlt(folder, "schema"))["title"] == "hqlt_lab experiment"
    assert "yaml-language-server: $schema=s.json" in run_hqlt(folder, "schema", "--into", "s.json")
    assert json.loads((folder / "s.json").read_text())["properties"]["train"]["properties"]["lr"]["default"] == 1e-3


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (("plan", "nowhere.yaml"), "nowhere.yaml: ", 1),
        (("plan", "question.yaml", "--set", "train.step=3"), "train.step: ", 2),
        (("train", "question.yaml", "--only", "arm=tow"), "--only: ", 2),
    ],
)
def test_user_error_is_reported_in_a_sentence(folder, arguments, message, code):
    assert message in run_hqlt(folder, *arguments, code=code)


def test_durations_bytes_and_counts_are_rounded_for_people():
    assert [format_duration(s) for s in (42.4, 170, 9000, 4e5)] == ["42.4 s", "2.83 min", "2.5 h", "4.63 d"]
    assert [format_duration(days * 86_400) for days in (700, 31_100)] == ["700 d", "85.1 years"]
    assert [format_estimate(s) for s in (0.003, 42.4, 170, 9130, 1e5 * 86_400)] == [
        "less than a second", "about 42 s", "about 2.8 min", "about 2.5 h", "about 274 years",
    ]  # fmt: skip
    assert [format_bytes(3.2e18), format_count(4.5e15)] == ["3,200 PB", "4,500T"]
    assert [format_bytes(b) for b in (12, 34500, 1.2e9)] == ["12 B", "34.5 kB", "1.2 GB"]
    assert [format_count(n) for n in (950, 595392, 1465750528)] == ["950", "595k", "1.47B"]
