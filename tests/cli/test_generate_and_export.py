"""`hqlt generate` and `hqlt export`: language models on the command line."""

import json

import pytest
from typer.testing import CliRunner

import hqlt_lab as lab
from hqlt_lab.cli.app import app
from hqlt_lab.errors import StoreError
from tests.generation.text_models import train_language_cell
from tests.issues import raises_issue
from tests.tasks.small_corpus import prepare_small_corpus


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    return train_language_cell(folder, prepare_small_corpus(folder / "data"))


def run_command(*arguments, stdin=None):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False, input=stdin)
    assert result.exit_code == 0, result.output
    return result


def test_one_prompt_prints_only_the_text_and_the_speed_to_standard_error(cell):
    options = ["--tokens", 12, "--temperature", 0.9, "--top-k", 50, "--top-p", 0.9, "--seed", 4]
    result = run_command("generate", cell, "--prompt", "the key", *options)
    (expected,) = lab.generate(cell, ["the key"], lab.Sampling(tokens=12, temperature=0.9, top_k=50, top_p=0.9, seed=4))
    assert result.stdout == expected.text + "\n"
    assert "tokens/s" in result.stderr and "Ended by: length." in result.stderr
    assert run_command("generate", cell, *options, stdin="the key").stdout == result.stdout


def test_several_prompts_are_printed_in_order_or_as_json(cell, tmp_path):
    (tmp_path / "prompts").write_text('the key\n"two\\nlines"\n"quoted" word\n')
    result = run_command("generate", cell, "--prompts", tmp_path / "prompts", "--tokens", 5, "--json")
    entries = json.loads(result.stdout)
    assert [entry["prompt"] for entry in entries] == ["the key", "two\nlines", '"quoted" word']
    for entry in entries:
        assert len(entry["tokens"]) == 5 and entry["reason"] == "length" and entry["speed"]["prompt"] > 0
    output = run_command("generate", cell, "--prompt", "a", "--prompt", "b", "--tokens", 3).stdout
    assert output.startswith('--- "a"\n') and '\n--- "b"\n' in output


def test_text_longer_than_the_training_rows_gets_a_remark(cell):
    assert ("the model was trained on sequences of 48") in run_command(
        "generate", cell, "--prompt", "", "--tokens", 60
    ).stderr
    assert "trained on sequences" not in run_command("generate", cell, "--prompt", "", "--tokens", 5).stderr


def test_export_generates_the_same_text_as_its_cell(cell, tmp_path):
    result = run_command("export", cell, tmp_path / "small")
    assert "model.safetensors" in result.stdout and "hqlt generate" in result.stdout
    options = ["--prompt", "the key", "--tokens", 9, "--seed", 1]
    exported = run_command("generate", tmp_path / "small", *options)
    assert exported.stdout == run_command("generate", cell, *options).stdout


def test_invalid_options_are_errors(cell, tmp_path):
    for options, path, code in (
        (["--prompt", "a", "--prompts", "b"], "--prompt", "prompt_and_prompts"),
        (["--prompts", tmp_path / "none"], "--prompts", "file_not_found"),
        (["--prompt", "a", "--top-p", 2], "top_p", "out_of_range"),
        (["--prompt", "a", "--temperature", -1, "--tokens", 0], "tokens", "below_minimum"),
        (["--prompt", "a", "--temperature", -1, "--tokens", 0], "temperature", "below_minimum"),
    ):
        with raises_issue(path, code):
            run_command("generate", cell, *options)
    with pytest.raises(StoreError, match="No trained cell matches 'nowhere'"):
        run_command("generate", "nowhere", "--prompt", "a", "--runs", tmp_path)
