"""What every page of the guide may rely on: commands that exist, files that load, snippets that somebody runs."""

import importlib.util
import re
import shlex
import tomllib

import pytest
import yaml
from typer.main import get_command

import hqlt_lab as lab
from hqlt_lab.api import load_experiment
from hqlt_lab.cli.app import app
from hqlt_lab.experiment.plan import plan
from tests.house.pages import GUIDE, ROOT, blocks_of, commands

# the reference is written from the code itself: signatures, not snippets
PAGES = [ROOT / "README.md", *(page for page in GUIDE if page.parent.name != "reference")]
# who runs the Python of a page; in test files beside this one
RUN_BY = {
    "README.md": "test_docs.py::test_the_python_of_the_readme_runs_from_top_to_bottom",
    "docs/data.md": "test_docs.py::test_the_page_on_data_does_what_it_says",
    "docs/how_it_works.md": "test_guide.py::test_the_python_of_the_page_on_how_it_works_says_what_it_prints",
    "docs/language.md": "test_docs.py::test_the_page_on_language_models_does_what_it_says",
    "docs/mlflow.md": "test_walks.py::test_the_filters_and_the_python_of_the_page_on_mlflow_find_runs",
    "docs/probes.md": "test_docs.py::test_the_python_of_the_page_on_probes_says_what_it_prints",
    "docs/rl.md": "test_docs.py::test_the_python_of_the_page_on_agents_says_what_it_prints",
    "docs/streaming.md": "test_docs.py::test_the_python_of_the_streaming_page_says_what_it_prints",
    "docs/studies.md": "test_docs.py::test_the_python_of_the_guide_runs",
    "docs/your_own_part.md": "test_guide.py::test_the_parts_of_the_page_on_parts_conform",
}


def named(page):
    return page.relative_to(ROOT).as_posix()


def parse(words, command=None, above=None):
    """What click makes of these words, without doing it; a mistake raises as it would for a user."""
    command = command or get_command(app)
    context = command.make_context("hqlt", list(words), parent=above)
    if not hasattr(command, "commands"):
        return
    rest = [*context._protected_args, *context.args]
    _, verb, rest = command.resolve_command(context, rest)
    parse(rest, verb, context)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_of_a_page_can_be_typed(page):
    text = page.read_text()
    indented = [line.split(" #")[0].strip() for line in re.findall(r"^    (hqlt .*)$", text, re.MULTILINE)]
    for line in [line for line in [*commands(text), *indented] if line.startswith("hqlt ")]:
        parse(shlex.split(line)[1:])


def test_a_command_that_does_not_exist_is_noticed():
    for line in ("rnu FILE", "run FILE --olny arm=a", "plan", "data prepair x"):
        with pytest.raises(Exception, match=r"No such|Missing"):
            parse(line.split())


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_option_that_is_mentioned_in_passing_exists(page):
    """`hqlt evaluate --lesion` in a sentence is no whole command, but its words exist."""
    verbs = get_command(app).commands
    for words in re.findall(r"`hqlt ([a-z][^`]*)`", page.read_text()):
        verb, *rest = words.split(" #")[0].split()
        assert verb in verbs, words
        command = verbs[verb]
        if hasattr(command, "commands") and rest:
            command = command.commands[rest[0]]
        known = {name for option in command.params for name in [*option.opts, *option.secondary_opts]}
        assert {word.split("=")[0] for word in rest if word.startswith("--")} <= known | {"--help"}, words


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_experiment_of_a_page_is_planned(page, tmp_path):
    files = blocks_of(page.read_text())
    with lab.temporarily():
        for number, block in enumerate(files):
            if block.language == "python" and block.title and "register(" in block.text:
                (tmp_path / block.title).write_text(block.text)
                lab.include(tmp_path / block.title)
            if block.language == "yaml" and re.search(r"^task:", block.text, re.MULTILINE):
                file = tmp_path / f"experiment_{number}.yaml"
                file.write_text(block.text if "question:" in block.text else f"question: Which?\n{block.text}")
                assert plan(load_experiment(file))


def test_links_on_disk_lead_somewhere_too():
    """Whoever reads the pages as plain Markdown follows them as well."""
    for page in [*GUIDE, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "experiments/README.md"))]:
        for link in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.relative_to(ROOT)}: {link}"


def test_the_python_of_every_page_is_run_by_a_test():
    with_python = {named(page) for page in PAGES if any(b.language == "python" for b in blocks_of(page.read_text()))}
    assert with_python == set(RUN_BY)
    for told in RUN_BY.values():
        file, test = told.split("::")
        assert f"\ndef {test}(" in (ROOT / "tests/house" / file).read_text(), told


def test_the_python_of_the_page_on_how_it_works_says_what_it_prints(capsys):
    (script,) = [b.text for b in blocks_of((ROOT / "docs/how_it_works.md").read_text()) if b.language == "python"]
    exec(script, {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"\)  # (.+)", script)


def test_the_parts_of_the_page_on_parts_conform(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = [b for b in blocks_of((ROOT / "docs/your_own_part.md").read_text()) if b.language == "python"]
    with lab.temporarily():
        for block in files:
            (tmp_path / block.title).write_text(block.text)
            if not block.title.startswith("test_"):
                lab.include(tmp_path / block.title)
        for kind, name in (("update_rule", "mamba2"), ("mixer", "balanced"), ("timing", "synchronous_chunk")):
            assert f"{name}.py" in [block.title for block in files]
            lab.check_part(kind, name, quick=True).assert_passed()
        batch = lab.build("task", "flip_flop").examples("train", seed=0, first=0, count=64)
    for tokens, label in zip(batch.tokens.tolist(), batch.labels.max(1).values.tolist(), strict=True):
        assert label == [token for token in tokens if 1 <= token <= 4][-1]  # the latest letter, looked for from the end


def test_the_rule_of_the_page_is_the_formula_it_tells(tmp_path):
    """h_t = exp(-a d_t) h_{t-1} + d_t x_t B_t^T, written out by hand."""
    import torch

    text = next(b.text for b in blocks_of((ROOT / "docs/your_own_part.md").read_text()) if b.title == "mamba2.py")
    (tmp_path / "mamba2.py").write_text(text)
    with lab.temporarily():
        lab.include(tmp_path / "mamba2.py")
        rule = lab.build("update_rule", "mamba2", width=8, heads=2).double()
    x, keys, values = torch.randn(1, 5, 8).double(), torch.randn(1, 2, 5, 3).double(), torch.randn(1, 2, 5, 4).double()
    step = torch.nn.functional.softplus(x @ rule.to_step.weight.mT + rule.step_bias)  # [1, 5, 2]
    memory = torch.zeros(1, 2, 3, 4).double()
    course = importlib.import_module("hqlt_lab.ops.steps").PLAIN
    for t in range(5):
        keep, write = (-rule.log_rate.exp() * step[:, t]).exp(), step[:, t]
        pair = keys[:, :, t, :, None] * values[:, :, t, None, :]
        memory = keep[..., None, None] * memory + write[..., None, None] * pair
    _, found = rule.scan(keys, keys, values, rule.gates(x), None, course)
    torch.testing.assert_close(found, memory)


def test_the_figure_of_the_timings_is_what_the_schedules_say():
    spec = importlib.util.spec_from_file_location("timings_figure", ROOT / "docs/figures/timings.py")
    figure = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figure)
    assert figure.FILE.read_text() == figure.draw(), "`.venv/bin/python docs/figures/timings.py` draws it anew."


def test_the_citation_names_this_version_and_the_paper():
    told = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "type", "license", "references"} <= set(told)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert told["version"] == version == lab.__version__
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
    (paper,) = told["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Irie", "Yau", "Gershman"]
