"""`hqlt generate` and `hqlt export`: language models on the command line."""

import json

import pytest
from typer.testing import CliRunner

import hqlt_lab as lab
from hqlt_lab.cli.app import app
from hqlt_lab.errors import ConfigError, StoreError
from tests.generation.speakers import trained
from tests.tasks.texts import prepared


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    return trained(folder, prepared(folder / "data"))


def typed(*words, given=None):
    told = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False, input=given)
    assert told.exit_code == 0, told.output
    return told


def test_one_prompt_is_answered_with_its_text_alone_and_the_speed_goes_to_standard_error(cell):
    options = ["--tokens", 12, "--temperature", 0.9, "--top-k", 50, "--top-p", 0.9, "--seed", 4]
    told = typed("generate", cell, "--prompt", "the key", *options)
    (expected,) = lab.generate(cell, ["the key"], lab.Sampling(tokens=12, temperature=0.9, top_k=50, top_p=0.9, seed=4))
    assert told.stdout == expected.text + "\n"
    assert "tokens/s" in told.stderr and "Ended by: length." in told.stderr
    assert typed("generate", cell, *options, given="the key").stdout == told.stdout


def test_several_prompts_are_told_one_after_the_other_or_as_json(cell, tmp_path):
    (tmp_path / "prompts").write_text('the key\n"two\\nlines"\n"quoted" word\n')
    told = typed("generate", cell, "--prompts", tmp_path / "prompts", "--tokens", 5, "--json")
    found = json.loads(told.stdout)
    assert [one["prompt"] for one in found] == ["the key", "two\nlines", '"quoted" word']
    assert all(len(one["tokens"]) == 5 and one["reason"] == "length" and one["speed"]["prompt"] > 0 for one in found)
    plain = typed("generate", cell, "--prompt", "a", "--prompt", "b", "--tokens", 3).stdout
    assert plain.startswith('--- "a"\n') and '\n--- "b"\n' in plain


def test_a_text_that_goes_beyond_the_training_rows_is_mentioned(cell):
    assert "it was trained on rows of 48" in typed("generate", cell, "--prompt", "", "--tokens", 60).stderr
    assert "trained on rows" not in typed("generate", cell, "--prompt", "", "--tokens", 5).stderr


def test_an_export_speaks_like_its_cell(cell, tmp_path):
    told = typed("export", cell, tmp_path / "small")
    assert "model.safetensors" in told.stdout and "hqlt generate" in told.stdout
    words = ["--prompt", "the key", "--tokens", 9, "--seed", 1]
    assert typed("generate", tmp_path / "small", *words).stdout == typed("generate", cell, *words).stdout


def test_mistakes_are_told(cell, tmp_path):
    for words, sentence in (
        (["--prompt", "a", "--prompts", "b"], "not by both"),
        (["--prompts", tmp_path / "none"], "there is no file"),
        (["--prompt", "a", "--top-p", 2], "top_p: a probability"),
        (["--prompt", "a", "--temperature", -1, "--tokens", 0], "tokens: at least 1.*\ntemperature: at least 0"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            typed("generate", cell, *words)
    with pytest.raises(StoreError, match="one cell is needed"):
        typed("generate", "nowhere", "--prompt", "a", "--runs", tmp_path)
