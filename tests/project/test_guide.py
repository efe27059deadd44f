"""Checks of every page of the guide: commands exist, experiments load, and all Python code is run by a test."""

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib

import pytest
import yaml
from typer.main import get_command

import hqlt_lab as lab
from hqlt_lab.api import load_experiment
from hqlt_lab.cli.app import app
from hqlt_lab.experiment.expand_cells import expand_plan
from tests.project.doc_pages import GUIDE, ROOT, bash_commands, code_blocks, component_page_files, replace_in_file

# without the reference, which is generated from the code
PAGES = [ROOT / "README.md", *(page for page in GUIDE if page.parent.name != "reference")]
# page -> the test in this folder that runs its Python code
TEST_OF_PAGE = {
    "README.md": "test_docs.py::test_python_of_the_readme_runs_and_its_rule_passes_the_checks",
    "docs/add_attention.md": "test_guide.py::test_attention_of_the_attention_page_computes_its_formula",
    "docs/add_mixer.md": "test_guide.py::test_components_of_the_component_pages_pass_the_conformance_checks",
    "docs/add_parallel_scan.md": "test_guide.py::test_components_of_the_component_pages_pass_the_conformance_checks",
    "docs/add_task.md": "test_guide.py::test_components_of_the_component_pages_pass_the_conformance_checks",
    "docs/add_timing.md": "test_guide.py::test_components_of_the_component_pages_pass_the_conformance_checks",
    "docs/add_update_rule.md": "test_guide.py::test_rule_of_the_update_rule_page_computes_its_formula",
    "docs/check_module.md": "test_guide.py::test_layer_of_the_check_module_page_fails_and_is_repaired",
    "docs/data.md": "test_docs.py::test_data_page_does_what_it_says",
    "docs/how_it_works.md": "test_guide.py::test_python_of_the_how_it_works_page_prints_what_it_says",
    "docs/language.md": "test_docs.py::test_language_page_does_what_it_says",
    "docs/mlflow.md": "test_tutorials.py::test_filters_and_python_of_the_mlflow_page_find_runs",
    "docs/notebooks.md": "test_notebooks.py::test_notebooks_page_does_what_it_says_in_a_kernel",
    "docs/probes.md": "test_docs.py::test_python_of_the_probes_page_prints_what_it_says",
    "docs/rl.md": "test_docs.py::test_python_of_the_rl_page_prints_what_it_says",
    "docs/streaming.md": "test_docs.py::test_python_of_the_streaming_page_prints_what_it_says",
    "docs/studies.md": "test_docs.py::test_python_of_the_studies_page_runs",
    "docs/your_own_component.md": "test_tutorials.py::test_own_component_is_checked_compared_and_reported",
}


def page_id(page):
    return page.relative_to(ROOT).as_posix()


def parse_command(arguments, command=None, parent=None):
    """Parse arguments with click without running the command; invalid ones raise as they would for a user."""
    command = command or get_command(app)
    context = command.make_context("hqlt", list(arguments), parent=parent)
    if not hasattr(command, "commands"):
        return
    _, subcommand, rest = command.resolve_command(context, [*context._protected_args, *context.args])
    parse_command(rest, subcommand, context)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_of_a_page_can_be_parsed(page):
    text = page.read_text().replace("\\\n", " ")  # commands on several lines
    indented = [line.split(" #")[0].strip() for line in re.findall(r"^    (hqlt .*)$", text, re.MULTILINE)]
    for line in [line for line in [*bash_commands(text), *indented] if line.startswith("hqlt ")]:
        parse_command(shlex.split(line)[1:])


def test_unknown_commands_and_options_are_detected():
    for line in ("rnu FILE", "run FILE --olny arm=a", "plan", "data prepair x"):
        with pytest.raises(Exception, match=r"No such|Missing"):
            parse_command(line.split())


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_and_options_mentioned_in_the_text_exist(page):
    """`hqlt evaluate --lesion` in a sentence is not a complete command, but command and option must exist."""
    commands = get_command(app).commands
    for mention in re.findall(r"`hqlt ([a-z][^`]*)`", page.read_text()):
        name, *arguments = mention.split(" #")[0].split()
        assert name in commands, mention
        command = commands[name]
        if hasattr(command, "commands") and arguments:
            command = command.commands[arguments[0]]
        options = {name for option in command.params for name in [*option.opts, *option.secondary_opts]}
        used = {argument.split("=")[0] for argument in arguments if argument.startswith("--")}
        assert used <= options | {"--help"}, mention


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_experiments_of_a_page_can_be_planned(page, tmp_path):
    with lab.temporary_components():
        for name, text in component_page_files().items():  # an experiment may use components of other pages
            if "register(" in text:
                (tmp_path / name).write_text(text)
                lab.load_components(tmp_path / name)
        for number, block in enumerate(code_blocks(page.read_text())):
            if block.language == "yaml" and re.search(r"^task:", block.text, re.MULTILINE):
                file = tmp_path / f"experiment_{number}.yaml"
                file.write_text(block.text if "question:" in block.text else f"question: Which?\n{block.text}")
                assert expand_plan(load_experiment(file))


def test_links_between_markdown_files_resolve():
    other_pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "experiments").rglob("*.md")]
    for page in [*GUIDE, *other_pages]:
        for link in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.relative_to(ROOT)}: {link}"


def test_python_of_every_page_is_run_by_a_test():
    with_python = {
        page_id(page) for page in PAGES if any(b.language == "python" for b in code_blocks(page.read_text()))
    }
    assert with_python == set(TEST_OF_PAGE)
    for test_id in TEST_OF_PAGE.values():
        file, test = test_id.split("::")
        assert f"\ndef {test}(" in (ROOT / "tests/project" / file).read_text(), test_id


def test_python_of_the_how_it_works_page_prints_what_it_says(capsys):
    (script,) = [b.text for b in code_blocks((ROOT / "docs/how_it_works.md").read_text()) if b.language == "python"]
    exec(script, {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"\)  # (.+)", script)


def test_components_of_the_component_pages_pass_the_conformance_checks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = component_page_files()
    with lab.temporary_components():
        for name, text in files.items():
            (tmp_path / name).write_text(text)
            if "register(" in text:
                lab.load_components(tmp_path / name)
        for kind, name in (
            ("update_rule", "rwkv6"),
            ("update_rule", "gated_linear_attention"),
            ("attention", "cosine"),
            ("attention", "alibi"),
            ("mixer", "balanced"),
            ("timing", "synchronous_chunk"),
        ):
            assert f"{name}.py" in files
            lab.check_component(kind, name, quick=True).assert_passed()
        batch = lab.build("task", "flip_flop").get_examples("train", seed=0, first=0, count=64)
    for tokens, label in zip(batch.tokens.tolist(), batch.labels.max(1).values.tolist(), strict=True):
        assert label == [token for token in tokens if 1 <= token <= 4][-1]  # the last letter before the end


def test_layer_of_the_check_module_page_fails_and_is_repaired(tmp_path):
    page = (ROOT / "docs/check_module.md").read_text()
    for block in code_blocks(page):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_layer.py"]
    failed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert failed.returncode == 1 and "padding leaves the state: after a prompt with 3 padded tokens" in failed.stdout
    (correction,) = re.findall("`(keep = [^`]*)`", page)
    masked_value = r"(value = value \* mask\[..., None\])"
    replace_in_file(tmp_path / "my_layer.py", {masked_value: rf"\1\n            {correction}"})
    assert subprocess.run(command, cwd=tmp_path).returncode == 0


def test_rule_of_the_update_rule_page_computes_its_formula(tmp_path):
    """Compare with S_t = diag(exp(-exp(b + W_2 tanh(W_1 x_t)))) S_{t-1} + k_t v_t^T, computed step by step."""
    import torch

    (tmp_path / "rwkv6.py").write_text(component_page_files()["rwkv6.py"])
    with lab.temporary_components():
        lab.load_components(tmp_path / "rwkv6.py")
        rule = lab.build("update_rule", "rwkv6", width=8, heads=2).double()
    x, keys, values = (torch.randn(*shape).double() for shape in ((1, 5, 8), (1, 2, 5, 4), (1, 2, 5, 4)))
    rate = torch.tanh(x @ rule.to_hidden.weight.mT) @ rule.to_rate.weight.mT  # [1, 5, 8]
    keep = torch.exp(-torch.exp(rate.view(1, 5, 2, 4) + rule.log_rate))
    memory = torch.zeros(1, 2, 4, 4).double()
    context = importlib.import_module("hqlt_lab.ops.gates").DEFAULT_CONTEXT
    for t in range(5):
        memory = keep[:, t, :, :, None] * memory + keys[:, :, t, :, None] * values[:, :, t, None, :]
    _, state = rule.scan(keys, keys, values, rule.gates(x), None, context)
    torch.testing.assert_close(state, memory)


def test_attention_of_the_attention_page_computes_its_formula(tmp_path):
    import torch
    import torch.nn.functional as F

    settings = {"width": 8, "heads": 2, "layers": 1, "mixer": "kv_only", "positions": "none"}
    with lab.temporary_components():
        for name in ("cosine", "alibi"):
            (tmp_path / f"{name}.py").write_text(component_page_files()[f"{name}.py"])
            lab.load_components(tmp_path / f"{name}.py")
        layers = {
            name: lab.build_model(attention=name, timing={"name": "synchronous", "window": 4}, **settings).memories[0]
            for name in ("cosine", "alibi")
        }
    x, distance = torch.randn(1, 9, 8).double(), torch.arange(9)[:, None] - torch.arange(9)
    for name, layer in layers.items():
        q, k, v, _ = layer.double().project(x, None, None)
        if name == "cosine":
            factor = torch.log2(torch.tensor(64**2 - 64).double())
            scores = factor * F.cosine_similarity(q[:, :, :, None], k[:, :, None], -1)
        else:
            scores = q @ k.mT / 2 - torch.tensor([2**-4, 2**-8])[:, None, None] * distance
        weights = scores.masked_fill((distance < 0) | (distance >= 4), -torch.inf).softmax(-1)
        answer = (layer.norm(weights @ v)).transpose(1, 2).flatten(2)
        torch.testing.assert_close(layer(x)[0], layer.to_out(answer), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ("layer", "timings"))
def test_figures_of_the_guide_match_the_code(name):
    script = ROOT / f"docs/figures/{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_figure", script)
    figure = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figure)
    assert figure.FILE.read_text() == figure.draw_figure(), f"`.venv/bin/python {script}` draws it again."


def test_citation_names_this_version_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "type", "license", "references"} <= set(citation)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert citation["version"] == version == lab.__version__
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Irie", "Yau", "Gershman"]
