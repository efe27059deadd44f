"""One minimal mistake for each code of an issue. `python -m tests.golden` writes their messages to the golden file.

Each case is a function that raises an error with issues. It runs in an empty folder, so that file names are short.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from typer.testing import CliRunner

from hqlt_lab import registry
from hqlt_lab.agent.networks import ObservationEncoder
from hqlt_lab.api.run_profile import prepare_profile
from hqlt_lab.api.task_evaluation import merge_evaluate_config
from hqlt_lab.check.backend_comparison import compare_backends
from hqlt_lab.check.conformance import check_component, select_checks
from hqlt_lab.check.modules.check_module import check_module
from hqlt_lab.check.triton_interpreter import enable_triton_interpreter
from hqlt_lab.cli.app import app
from hqlt_lab.cli.commands.components import check_conformance, check_other_module, find_component, parse_options
from hqlt_lab.cli.commands.generate import read_prompts
from hqlt_lab.cli.templates import write_component
from hqlt_lab.data.corpus_reader import open_corpus
from hqlt_lab.data.prepare import prepare_data
from hqlt_lab.data.prepare_options import PrepareRequest
from hqlt_lab.data.sources.file_readers import encode_text, extract_field
from hqlt_lab.data.sources.hub_dataset import HubSource
from hqlt_lab.data.sources.source_by_name import open_source
from hqlt_lab.data.tokenizers._base import import_optional
from hqlt_lab.data.tokenizers.bpe import BpeTokenizer
from hqlt_lab.data.tokenizers.hub_tokenizer import HubTokenizer, separator_token_id
from hqlt_lab.errors import ConfigIssue, HqltError, IssueError, StoreError, list_issues
from hqlt_lab.evaluation.long_context_evaluation import LongContextEval
from hqlt_lab.experiment.cell_filters import select_items
from hqlt_lab.experiment.lm_eval_section import EvaluateConfig
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.experiment.run_settings import TrainConfig, TrainerConfig
from hqlt_lab.experiment.yaml.read_experiment_files import parse_value
from hqlt_lab.generation.prefill_decode import tokenize_prompts
from hqlt_lab.generation.sampling_options import Sampling
from hqlt_lab.generation.text_model import TextModel
from hqlt_lab.model.analysis.component_sizes import sizes
from hqlt_lab.model.analysis.lesions import require_both_memories
from hqlt_lab.model.analysis.roofline import roofline
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.ops.dispatch import SCAN_BACKENDS, OpSpec, select_backend
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.registry.kinds import get_kind
from hqlt_lab.registry.notebook_source import generate_source
from hqlt_lab.registry.plugins import (
    DIGESTS_VARIABLE,
    FILES_VARIABLE,
    list_project_files,
    load_declared_components,
    load_inherited_files,
)
from hqlt_lab.report.compare.build_comparison import compare_targets
from hqlt_lab.report.compare.comparison_targets import ComparedCell, ComparedStudy
from hqlt_lab.study.executors.launch_context import LaunchContext
from hqlt_lab.study.executors.ray_executor import connect_cluster, find_cluster, require_slots
from hqlt_lab.study.executors.resources import MachineResources, gpu_fraction, max_concurrent_cells
from hqlt_lab.study.executors.slurm_executor import format_directive, run_command
from hqlt_lab.tasks._to_gymnasium import gym_environment
from hqlt_lab.tasks.text.language import Language
from hqlt_lab.train.micro_batches import check_batch_division
from hqlt_lab.train.trainer import lightning_precision
from tests.experiment import test_config_errors, test_size_matching, test_untrusted_files, test_yaml_syntax_errors
from tests.registry.notebook_cells import FakeNotebook
from tests.tasks.small_corpus import prepare_small_corpus

Case = Callable[[], object]
GOLDEN_FILE = Path(__file__).with_name("config_messages.txt")
DATA_CODES = ("data_changed", "too_few_rows", "too_few_windows")
VALID = "\n".join(test_config_errors.VALID_SECTIONS.values()) + "\n"
CPU = OpSpec("cpu", torch.float32, 8, 8)
UNEVEN_TASK = registry.build("task", {"name": "parity", "rows": 130})
SMALL_MODEL = {"vocabulary": 3, "width": 8, "heads": 2}


def shift_tokens(tokens):
    """Return the previous token: a target of `hqlt check module`."""
    return tokens.roll(1, 1)


def list_file_cases() -> Iterator[tuple[str, str, str | bytes]]:
    """Yield path and code of an issue, and the text of an experiment file that has it; each path and code once."""
    for sections, path, code, *_ in test_config_errors.MISTAKES.values():
        yield path, code, "\n".join((test_config_errors.VALID_SECTIONS | sections).values())
    for text, _, code in test_yaml_syntax_errors.TEXTS.values():
        yield "", code, f"question: Does it?\n{text}"
    for section, (path, code) in test_size_matching.MISTAKES.items():
        yield path, code, f"{test_size_matching.BASE}arms: {{a: {{}}, b: {{model.mixer: sum}}}}\n{section}\n"
    for text, path, code in test_untrusted_files.FILES.values():
        if code != "file_cannot_be_read":  # of a file with a very long name
            yield path, code, text
    language = "question: What?\ntask: {name: language, data: nowhere, vocabulary_size: 9}\n"
    measure = "measure: {select: valid/loss, direction: minimize, report: [test/loss]}\n"
    overlap = VALID.replace("[3, 20], test_length: [20, 40]", "[3, 4], test_length: [3, 4]")
    yield "measure.direction", "wrong_direction", VALID + "measure: {select: valid/loss}\n"
    yield "measure.margin", "below_minimum", VALID + "measure: {margin: -1}\n"
    yield "model.tie_embeddings", "no_embeddings", "question: What?\ntask: t_maze\nmodel: {tie_embeddings: true}\n"
    stages = "question: What?\ntask: {name: parity, stages: [{%s}, {%s}]}\n"
    yield "task.stages[0].steps", "stage_without_steps", stages % ("train_length: [3, 9]", "")
    yield "task.stages[1].steps", "steps_of_last_stage", stages % ("steps: 3", "steps: 4")
    yield "task.stages", "stages_of_finite_set", "question: What?\ntask: {name: parity, rows: 9, stages: [{}]}\n"
    yield "model.layer_kind", "model_without_memory", VALID + "arms: {a: {model.layer_kind: gated_conv}}\n"
    yield "task.updates", "more_updates_than_pairs", "question: What?\ntask: {name: forgetting_recall, updates: 5}\n"
    languages = "question: What?\ntask: {name: in_context_languages, %s}\n"
    yield "task.symbols", "too_many_symbols", languages % "symbols: [4, 61]"
    yield "task.edges", "too_many_edges", languages % "states: [3, 12]"
    yield "model.mixer", "layers_not_divisible", VALID + "arms: {a: {model.mixer: [sum, sum, sum]}}\n"
    positions = "arms: {a: {model.positions: {name: learned, length: 9}}}\n"
    yield "model.positions", "document_longer_than_positions", VALID + positions
    yield "model.layers", "above_maximum", VALID + "arms: {a: {model.layers: 100000}}\n"
    yield "task.test_length", "train_test_overlap", overlap
    yield "tune", "not_a_mapping_of_paths", VALID + "tune: [train.lr]\n"
    yield "tune.train.lr.low", "not_positive", VALID + "tune: {train.lr: {low: 0, high: 1, log: true}}\n"
    yield "prune", "prune_without_tune", VALID + "prune: {after: 1}\n"
    yield "measure", "not_a_mapping_of_settings", VALID + "measure: 3\n"
    yield "seeds", "no_final_seed", VALID + "tune: {train.lr: {low: 1, high: 2}}\nseeds: 1\ntune_seeds: [0]\n"
    yield "seeds.min", "too_few_seeds", VALID + "seeds: {min: 2}\n"
    yield "seeds.max", "max_below_min", VALID + "seeds: {min: 30}\n"
    yield "seeds.looks", "invalid_looks", VALID + "seeds: {looks: [3, 8]}\n"
    yield "seeds", "nothing_to_decide", VALID + "seeds: {max: 12}\n"
    two_arms = "arms: {a: {}, b: {model.mixer: sum}}\n"
    tuned = "tune: {train.lr: [1e-2, 1e-3]}\ntune_seeds: [0, 1000]\n"
    yield "tune_seeds", "tune_seed_reported", VALID + two_arms + "seeds: {max: 12}\n" + tuned
    evaluated = "measure: {report: [eval/piqa/acc]}\nevaluate: [piqa]\n"
    yield "measure.report", "decided_by_lm_eval", VALID + two_arms + "seeds: {max: 12}\n" + evaluated
    published = "published: {base: {test/accuracy: {best: a lot, medain: 3}}}\n"
    yield "published.base.test/accuracy.best", "not_a_number", VALID + published
    yield "published.base.test/accuracy.medain", "unknown_statistic", VALID + published
    yield "measure.report", "metric_of_missing_task", VALID + "measure: {report: [eval/piqa/acc]}\n"
    yield "evaluate", "not_a_list_of_tasks", language + measure + "evaluate: []\n"
    yield "evaluate.tasks", "unknown_evaluation_task", language + measure + "evaluate: [generl]\n"
    yield "evaluate.tasks", "task_file_not_found", language + measure + "evaluate: [nowhere.yaml]\n"
    yield "evaluate.tasks", "task_file_not_loaded", language + measure + "evaluate: [question.yaml]\n"
    yield "evaluate", "evaluation_without_language", VALID + "evaluate: [piqa]\n"
    colliding = 'arms: {a: {}, "a, mixer=sum": {}}\none_at_a_time: {model.mixer: [sum]}\n'
    yield "arms.a, mixer=sum", "same_title", VALID + colliding
    yield "arms.a", "same_title", VALID + 'arms: {a: {}}\ncross: {model.mlp_width: [16, "16"]}\n'
    yield "", "empty_file", ""
    yield "", "yaml_syntax", "\x00"
    yield "train.lr", "not_positive", VALID.replace("steps: 10", "steps: 10, lr: 0")
    yield "train.betas", "out_of_range", VALID.replace("steps: 10", "steps: 10, betas: [1]")
    yield "train.lr_floor", "out_of_range", VALID.replace("steps: 10", "steps: 10, lr_floor: 2")
    yield "train.clip", "not_positive", VALID.replace("steps: 10", "steps: 10, clip: 0")
    agent = "question: What?\ntask: t_maze\nagent: {target_rate: 2, hidden: [0], updates_per_step: 0}\n"
    yield "agent.target_rate", "out_of_range", agent
    yield "agent.hidden", "out_of_range", agent
    yield "agent.updates_per_step", "not_positive", agent
    yield "train.steps", "steps_and_epochs", VALID.replace("steps: 10", "steps: 10, epochs: 2")
    yield "train.epochs", "epochs_without_rows", VALID.replace("steps: 10", "epochs: 2")
    yield "train.lr_interval", "interval_without_epochs", VALID.replace("steps: 10", "lr_interval: epoch")
    yield "train.head", "labeled_head_with_compile", VALID.replace("steps: 10", "head: labeled, compile: true")
    yield "train.head", "labeled_head_not_supported", language + measure + "train: {head: labeled}\n"
    unread = "arms: {a: {model.mixer: fw_only, train.memories.kv.start_step: 5}}\n"
    yield "train.memories.kv", "unread_memory", VALID + unread
    drawn = "arms: {a: {model.mixer: fw_only, train.window: {low: 2, high: 8}}}\n"
    yield "train.window", "no_window_to_draw", VALID + drawn
    yield "train.memories.kw", "unknown_memory", VALID + "arms: {a: {train.memories.kw.start_step: 5}}\n"


def load_file(text: str | bytes, name: str = "question.yaml", overrides: tuple[str, ...] = ()) -> object:
    """Load an experiment file with this text."""
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_experiment(name, overrides)


def load_extending_files() -> object:
    """Load a file that extends a file that extends another, and so on."""
    for number in range(30):
        Path(f"{number}.yaml").write_text(f"extends: {number + 1}.yaml\n")
    return load_experiment("0.yaml")


def load_pipe() -> object:
    os.mkfifo("pipe.yaml")
    return load_experiment("pipe.yaml")


def list_warnings(text: str, code: str) -> object:
    """Raise the warnings of an experiment file as issues with this code."""
    raise IssueError(*(ConfigIssue("", code, warning) for warning in load_file(text).warnings))


def load_clashing_files() -> None:
    """Load two files that register components under one name."""
    text = "from hqlt_lab.registry import register\n\n\n@register('mixer', 'clash')\nclass Mine: ...\n"
    with registry.temporary_components():
        for name in ("one.py", "two.py"):
            Path(name).write_text(text)
            registry.load_components(name)


def run_hqlt(*arguments: str) -> object:
    """Run a command and raise its exception."""
    result = CliRunner().invoke(app, arguments)
    assert result.exception is not None
    raise result.exception


def build_own(kind: str, factory: Any, spec: Any = "mine", **provided: Any) -> object:
    """Build a component of one's own."""
    with registry.temporary_components():
        registry.register(kind, "mine")(factory)
        return registry.build(kind, spec, **provided)


def build_own_model(kind: str, factory: Any) -> object:
    """Build a model with a component of one's own, and apply it."""
    with registry.temporary_components():
        registry.register(kind, "mine")(factory)
        return build_model(**SMALL_MODEL, **{kind: "mine"})(torch.zeros(1, 3, dtype=torch.long))


def needs_window(window: int) -> Schedule:
    return Schedule(window=window)


class NoMixer(torch.nn.Module):
    """A class without the methods of a mixer."""


class UninitializedMixer(type(registry.build("mixer", "sum"))):
    """A mixer with a parameter that is not initialized."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))


class WideGatesRule(type(registry.build("update_rule", "delta", width=8, heads=2))):
    """A linear rule whose gates have a dimension too many."""

    def gates(self, x: torch.Tensor) -> Any:
        return super().gates(x)._replace(write=torch.zeros(1, 2, 3, 4, 5))


def generate_notebook_source(cell: str) -> object:
    """Generate the source of a component that a notebook cell defines."""
    notebook = FakeNotebook()
    try:
        with registry.temporary_components():
            notebook.run_cell(
                "from hqlt_lab.ops.memory_schedule import Schedule\nfrom hqlt_lab.registry import register"
            )
            notebook.run_cell("SIZES = [4]")
            notebook.run_cell(cell)
            return generate_source("timing", "mine")
    finally:
        notebook.close()


def load_project(text: str) -> object:
    """Load the components that a pyproject.toml lists."""
    Path("pyproject.toml").write_text(text)
    list_project_files()
    return load_declared_components()


def load_inherited(text: str | None) -> object:
    """Load a file of which the parent process has given another hash."""
    file = Path("mine.py").resolve()
    if text is not None:
        file.write_text(text)
    with registry.temporary_components(), patch.dict(os.environ, {FILES_VARIABLE: str(file), DIGESTS_VARIABLE: "0123"}):
        return load_inherited_files()


def load_component_file(text: str, name: str = "mine.py") -> object:
    Path(name).write_text(text)
    return registry.load_components(name)


def make_existing_file() -> object:
    Path("mine.py").touch()
    return write_component("mixer", "mine", Path())


def make_task(**options: Any) -> Language:
    """Make a language task on a small text."""
    prepare_small_corpus(Path("text"), documents=50)
    return Language(data="text", length=16, **options)


def make_slurm_executor(**changes: Any) -> object:
    context = {"file": Path("a.yaml"), "overrides": (), "only": (), "runs": Path(), "study_folder": Path("study")}
    launch_context = LaunchContext(**context | {"is_shared": True} | changes)
    return registry.build("launcher", "slurm", context=launch_context).make_executor([])


def prepare_empty_text() -> object:
    Path("a.txt").touch()
    return prepare_data(PrepareRequest(source="a.txt"), Path("into"), workers=1)


def read_undecodable_prompts() -> object:
    Path("prompts.txt").write_bytes(b"\xff")
    return read_prompts(None, Path("prompts.txt"))


def read_prompts_of_terminal() -> object:
    with patch("sys.stdin", SimpleNamespace(isatty=lambda: True)):
        return read_prompts(None, None)


def join_broken_cluster() -> object:
    """Connect to a cluster whose address answers, but which Ray cannot join."""

    def refuse(**options: Any) -> None:
        raise ConnectionError("it is another version.")

    ray = SimpleNamespace(is_initialized=lambda: False, init=refuse)
    private = SimpleNamespace(worker=SimpleNamespace())
    with patch.dict(sys.modules, {"ray": ray, "ray._private": private}):
        return connect_cluster("local")


def without_hub(package: str, case: Case) -> object:
    """Run a case with a library that cannot reach the hub."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError("the hub is not available")

    library = SimpleNamespace(load_dataset=refuse, AutoTokenizer=SimpleNamespace(from_pretrained=refuse))
    with patch.dict(sys.modules, {package: library}):
        return case()


def compare_kinds(*kinds: type) -> object:
    """Compare a cell and a study, or only one of them."""
    experiment = load_file(VALID)
    targets = {
        ComparedCell: ComparedCell(name="one", settings={}, outcome=None),
        ComparedStudy: ComparedStudy(name="two", experiment=experiment, records=(), arm_settings={}),
    }
    return compare_targets([targets[kind] for kind in kinds])


def raise_store_error() -> object:
    raise IssueError(*list_issues(StoreError("runs: the disk is full.")))


def run_with_gpu(case: Case) -> object:
    with patch("torch.cuda.is_available", lambda: True):
        return case()


def profile_two_compositions() -> object:
    for mixer in ("sum", "vector"):
        prepared = prepare_profile(None, name="mine", overrides=[f"model.mixer={mixer}"], tests=["recall_8"])
        prepared.profile.save(prepared.folder)
    return None


def profile_arm(arm: str | None) -> object:
    Path("study.yaml").write_text("question: Which?\ntask: parity\narms: {plain: {}, other: {model.mixer: sum}}\n")
    return prepare_profile("study.yaml", arm=arm)


FILTERED_LABELS: list[Mapping[str, str]] = [{"arm": "a", "seed": "0"}, {"arm": "b", "seed": "1"}]
DEVICES = SimpleNamespace(train=TrainConfig(batch_size=12), trainer=TrainerConfig(devices=4))

CASES: list[Case] = [
    # components
    lambda: registry.build("mixer", {"window": 4}),
    lambda: registry.build("mixer", False, width=8, heads=2),
    lambda: registry.build("timing", {"name": "synchronous", "window": 1e3}),
    lambda: registry.build("update_rule", "delta"),
    lambda: registry.build("positions", "rope", width=6, heads=2),
    lambda: registry.build("positions", {"name": "rope", "base": 0}, width=8, heads=2),
    lambda: registry.register("mixer", "My-Mixer"),
    load_clashing_files,
    lambda: get_kind("mixr"),
    lambda: build_own("timing", needs_window),
    lambda: build_own("mixer", NoMixer, width=8, heads=2),
    lambda: build_own_model("mixer", UninitializedMixer),
    lambda: build_own_model("update_rule", WideGatesRule),
    lambda: Schedule(delay=-1),
    lambda: Schedule(gates="late"),
    lambda: build_model(**SMALL_MODEL, update_rule="linear_attention", feature_map="silu_l2"),
    lambda: build_model(**SMALL_MODEL, positions=["rope", "sinusoidal"]),
    lambda: build_model(**SMALL_MODEL, update_rule="gla", feature_map="taylor"),
    lambda: build_model(**SMALL_MODEL, positions={"name": "learned", "length": 2})(torch.zeros(1, 3, dtype=torch.long)),
    lambda: ModelConfig(layers=4, mixer={"default": "sum", "at": {4: "vector"}}),
    lambda: ModelConfig(layers=4, mixer={"default": "sum", "at": {3: "vector", -1: "static"}}),
    lambda: ModelConfig(layers=4, mixer={"repeat": [["sum", 3]]}),
    lambda: ModelConfig(mixer={"repeat": [["sum", 2]], "at": {}}),
    lambda: ModelConfig(mixer={"at": {"first": "sum"}, "each": 2}),
    lambda: ModelConfig(mixer={"default": "sum", "at": [0]}),
    lambda: ModelConfig(mixer={"repeat": []}),
    lambda: ModelConfig(mixer={"repeat": [["sum"]]}),
    lambda: ModelConfig(mlp=["gelu", "relu"]),
    lambda: ModelConfig(fw={"groups": 2, "heads": 0}, kv={"key_dim": 2.5}),
    lambda: build_model(**SMALL_MODEL, kv={"groups": 3}),
    lambda: build_model(**SMALL_MODEL, mixer={"name": "head_split", "fw_heads": 3}),
    lambda: build_model(**SMALL_MODEL, mixer="head_split", fw={"heads": 2}),
    lambda: build_model(**SMALL_MODEL, fw={"key_dim": 6, "value_dim": 8}),
    # memory profiles
    lambda: prepare_profile(None, arm="plain"),
    lambda: prepare_profile(None),
    lambda: prepare_profile(None, name="../mine"),
    lambda: prepare_profile(None, name="mine", tests=["recall_9"]),
    lambda: profile_arm(None),
    lambda: profile_arm("plane"),
    profile_two_compositions,
    lambda: run_hqlt("profile", "--plan"),
    # files with components
    lambda: registry.load_components("nowhere.py"),
    lambda: registry.load_components(Path.cwd()),
    lambda: load_component_file("1 / 0\n"),
    lambda: load_component_file("", name="mine.txt"),
    lambda: load_project("[tool.hqlt_lab\n"),
    lambda: load_project('[tool.hqlt_lab]\nwith = ["mine.py"]\n'),
    lambda: load_project('[tool.hqlt_lab]\nwith = "mine.py"\n'),
    lambda: load_project("[tool.hqlt_lab]\nwiht = []\n"),
    lambda: load_inherited(None),
    lambda: load_inherited("pass\n"),
    lambda: generate_notebook_source('register("timing", "mine")(lambda: Schedule(window=4))'),
    lambda: generate_notebook_source(
        '@register("timing", "mine")\ndef mine() -> Schedule:\n    return Schedule(window=SIZES[0])'
    ),
    lambda: write_component("mixr", "mine", Path()),
    lambda: write_component("update_rule", "mine", Path(), form="steps"),
    lambda: write_component("mixer", "My-Mixer", Path()),
    lambda: write_component("mixer", "sum", Path()),
    lambda: write_component("mixer", "class", Path()),
    make_existing_file,
    lambda: find_component("mixer"),
    lambda: find_component("vectr"),
    lambda: parse_options(["max_beta"]),
    lambda: parse_options(["max_beta=["]),
    lambda: run_hqlt("list", "mixer", "rubbish"),
    lambda: select_checks("launcher"),
    lambda: check_component("task", "t_maze"),
    lambda: list(compare_backends("flas")),
    lambda: check_conformance("mixer", "sum", settings=["width=3"]),
    lambda: check_other_module(None, [], [], None, False),
    lambda: check_module("transformers"),
    lambda: check_module("no_such_package:Layer"),
    lambda: check_module("torch.nn:Lineal"),
    lambda: check_module(torch.nn.Linear(2, 2)),
    lambda: check_module(torch.lerp),
    lambda: check_module(torch.nn.Linear),
    lambda: check_module(torch.nn.Embedding, call={"input": "tokens"}),
    lambda: check_module(torch.nn.Linear, call={"mask": "padding"}),
    lambda: check_module(torch.nn.GRU, call={"documents": "hx", "width": 4}),
    lambda: check_module(torch.nn.Linear, call={"size": 4}),
    lambda: check_module(torch.nn.Linear, call={"chunk": 0}),
    lambda: check_module(torch.nn.Linear, call={"input": "audio"}),
    lambda: check_module(shift_tokens, call={"tensor.g": "BTH"}),
    lambda: check_module(shift_tokens),
    lambda: check_module(shift_tokens, call={"tensor.tokens": "TH"}),
    lambda: check_module(shift_tokens, call={"tensor.tokens": "BTH:loud"}),
    enable_triton_interpreter,
    # tasks
    lambda: registry.build("task", {"name": "parity", "train_length": [40]}),
    lambda: registry.build("task", {"name": "modular_arithmetic", "train_length": [2, 9]}),
    lambda: registry.build("task", {"name": "modular_arithmetic", "brackets": True, "label": "every"}),
    lambda: registry.build("task", {"name": "associative_recall", "power": 0}),
    lambda: registry.build("task", {"name": "word_problem", "group": "D4"}),
    lambda: registry.build("task", {"name": "word_problem", "group": "S9"}),
    lambda: registry.build("task", {"name": "word_problem", "group": "Z60", "max_moved": 2}),
    lambda: registry.build("task", {"name": "parity", "rows": 5, "segments": []}),
    lambda: registry.build("task", {"name": "parity", "segments": []}),
    lambda: registry.build("task", {"name": "parity", "segments": [{"rows": 0, "lable": 1}, {"label": "every"}]}),
    lambda: registry.build("task", {"name": "parity", "segments": [{"rows": 1.5, "label": 1}]}),
    lambda: registry.build("task", {"name": "parity", "test_slices": [{"label": "last"}, {"label": "last"}]}),
    lambda: registry.build("task", {"name": "associative_recall", "test_slices": [{"keys": 80}]}),
    lambda: registry.build("task", {"name": "parity", "targets": "all_next"}),
    lambda: check_batch_division(
        SimpleNamespace(train=TrainConfig(accumulate=4), trainer=TrainerConfig()), UNEVEN_TASK
    ),
    lambda: registry.build("task", {"name": "visual_match", "phases": [15], "apples": 23, "colors": ["gren", "red"]}),
    lambda: registry.build("task", {"name": "visual_match", "colors": ["red"]}),
    lambda: gym_environment("parity"),
    lambda: ObservationEncoder((4, 4), 1, 8),
    lambda: Language(data="nowhere").vocabulary,
    lambda: make_task(digest="0").check_ready(),
    lambda: make_task(vocabulary_size=3).check_ready(),
    lambda: make_task(eval_size=100_000).check_ready(),
    # data
    lambda: PrepareRequest(source="python", valid=-0.1, test=1.2, limit_documents=0),
    lambda: open_source(PrepareRequest(source="nowhere.txt")),
    lambda: extract_field(b'{"body": "a"}', "text", Path("a.jsonl"), 3),
    lambda: extract_field(b"[]", "text", Path("a.jsonl"), 3),
    lambda: encode_text(0, "number", "a.jsonl", 3),
    prepare_empty_text,
    lambda: without_hub("datasets", lambda: HubSource("nobody/nothing", None, "train", "text")),
    lambda: without_hub("transformers", lambda: HubTokenizer("nobody/nothing")),
    lambda: separator_token_id(SimpleNamespace(bos_token_id=None, eos_token_id=None), "nobody/nothing"),
    lambda: import_optional("no_such_module", "no-such-package", "tokenizer"),
    lambda: BpeTokenizer.train_from_texts([], 100),
    lambda: make_task().corpus.read_windows("train", 0, 0, 1, 1_000_000),
    lambda: make_task() and open_corpus("text").num_tokens("short"),
    # experiment files and the command line
    lambda: load_file(VALID.replace("window: 4", "window: 4, hold: 4")),
    lambda: load_experiment("nowhere.yaml"),
    lambda: load_experiment("a\0b.yaml"),
    lambda: load_file("extends: nowhere.yaml\n"),
    lambda: load_file(VALID, name=".hidden.yaml"),
    lambda: load_file(VALID, overrides=("train.lr",)),
    lambda: load_file(VALID, overrides=("train.lr=[",)),
    lambda: load_file(VALID, overrides=("model.width.x=3",)),
    lambda: load_file(VALID, overrides=("trian.lr=3",)),
    load_extending_files,
    load_pipe,
    lambda: list_warnings(
        VALID.replace("synchronous, window: 4", "delayed_stream, window: 12"), "mostly_empty_fast_weights"
    ),
    lambda: list_warnings(VALID.replace("window: 4", "window: 100000"), "window_far_too_long"),
    lambda: list_warnings(VALID + "arms: {a: {train.memories.kv.lr_scale: 0.5}}\n", "memory_without_parameters"),
    lambda: parse_value("!!python/name:os.system"),
    lambda: select_items([0, 1], FILTERED_LABELS, ["arm"]),
    lambda: select_items([0, 1], FILTERED_LABELS, ["armm=a"]),
    lambda: select_items([0, 1], FILTERED_LABELS, ["arm=c"]),
    lambda: select_items([0, 1], FILTERED_LABELS, ["arm=a,seed=1"]),
    lambda: run_hqlt("report", "study.yaml", "--csv", "--importance"),
    lambda: run_hqlt("report", "study.yaml", "--latex", "--html"),
    lambda: run_hqlt("lm-eval", "study.yaml", "--tasks", "piqa", "--into", "nowhere/x.json"),
    raise_store_error,
    # models, training and evaluation
    lambda: ModelConfig(layers=3, mixer=["sum", "vector"]),
    lambda: ModelConfig(dropout=1.0),
    lambda: TrainConfig(memories={"kv": 500}),
    lambda: TrainConfig(window={"low": 8}),
    lambda: TrainConfig(window={"low": 8, "high": 4}),
    lambda: TrainConfig(window={"low": 8, "high": 9}, compile=True),
    lambda: sizes(None, 0),
    lambda: roofline(None, 1, 0),
    lambda: require_both_memories({"fw"}, "fw"),
    lambda: require_both_memories({"fw", "kv"}, "kw"),
    lambda: select_backend({}, "auto", CPU),
    lambda: select_backend(SCAN_BACKENDS, "fal", CPU),
    lambda: select_backend(SCAN_BACKENDS, "fla", CPU),
    lambda: check_batch_division(SimpleNamespace(train=TrainConfig(batch_size=10), trainer=DEVICES.trainer), None),
    lambda: check_batch_division(DEVICES, SimpleNamespace(eval_size=3, train_batch_sizes=lambda size: [size])),
    lambda: lightning_precision(TrainerConfig(precision="16-mixed", accelerator="cpu")),
    lambda: run_with_gpu(lambda: lightning_precision(TrainerConfig(precision="16-mixed", strategy="fsdp2"))),
    lambda: Sampling(tokens=0, temperature=float("nan"), top_p=2.0, stop=("",)),
    lambda: tokenize_prompts(None, "abc"),
    lambda: tokenize_prompts(SimpleNamespace(model=SimpleNamespace(config=ModelConfig(vocabulary=9))), [[9]]),
    lambda: TextModel.encode(SimpleNamespace(tokenizer=SimpleNamespace(encode=list)), "\ud800"),
    lambda: read_prompts(["a"], Path("b")),
    lambda: read_prompts(None, Path("nowhere.txt")),
    read_undecodable_prompts,
    read_prompts_of_terminal,
    lambda: LongContextEval(None, None, max_factor=0),
    lambda: merge_evaluate_config(None, {}),
    lambda: EvaluateConfig(tasks=[3]),
    lambda: compare_kinds(ComparedCell),
    lambda: compare_kinds(ComparedStudy),
    lambda: compare_kinds(ComparedCell, ComparedStudy),
    # launchers
    lambda: registry.build("launcher", {"name": "local", "workers": 1_000_000}),
    lambda: registry.build("launcher", {"name": "slurm", "time": 5400}),
    lambda: registry.build("launcher", {"name": "slurm", "time": "00:01:00"}),
    lambda: make_slurm_executor(is_shared=False),
    lambda: make_slurm_executor(limit=3),
    lambda: format_directive("output", 'a"b'),
    lambda: run_command("no_such_command"),
    lambda: gpu_fraction(1.5),
    lambda: max_concurrent_cells(MachineResources(8, 2**35, 2), gpu_fraction(4)),
    lambda: find_cluster("127.0.0.1:9"),
    lambda: find_cluster("ray://head:10001"),
    lambda: require_slots({"CPU": 64}, [{"CPU": 4}]),
    join_broken_cluster,
]


def list_lm_eval_cases() -> list[Case]:
    """Return the cases that need lm-eval, which takes long to import."""
    from hqlt_lab.evaluation.lm_eval_model import LmEvalModel
    from hqlt_lab.evaluation.lm_eval_tasks import find_task_file, load_local_task

    model: Any = SimpleNamespace(max_length=8)

    def load_task(text: str) -> object:
        Path("mine.yaml").write_text(text)
        return load_local_task("mine.yaml", Path("mine.jsonl"), model)

    return [
        lambda: find_task_file("nothing"),
        lambda: load_task("group: mine\ntask: [piqa]\n"),
        lambda: load_task("task: mine\nnum_fewshot: 5\n"),
        lambda: LmEvalModel._loglikelihood_tokens(model, [(None, [], [0] * 20)]),
        lambda: LmEvalModel.parse_gen_kwargs(model, {"max_gen_toks": 48}),
    ]


def collect_issues(case: Case) -> tuple[ConfigIssue, ...]:
    """Run a case in an empty folder and return the issues of its error, with FOLDER in place of that folder."""
    with TemporaryDirectory() as folder, chdir(folder):
        try:
            case()
        except IssueError as error:
            return tuple(hide_folder(issue, folder) for issue in error.issues)
        except HqltError as error:
            raise AssertionError(f"{error!r} has no issues") from error
    raise AssertionError("the case raises no error")


def hide_folder(issue: ConfigIssue, folder: str) -> ConfigIssue:
    """Return the issue with FOLDER in place of a folder."""
    message, source = (text.replace(folder, "FOLDER") for text in (issue.message, issue.source))
    return replace(issue, message=message, source=source)


def render_file_cases() -> Iterator[str]:
    """Yield a line for one experiment file of each path and code."""
    cases = {(path, code): text for path, code, text in reversed(list(list_file_cases()))}
    for (path, code), text in cases.items():
        issues = collect_issues(lambda text=text: load_file(text))
        yield from render_issues(issue for issue in issues if (issue.path, issue.code) == (path, code))


def render_issues(issues: Any) -> Iterator[str]:
    """Yield each issue as `code | message`, in one line, without digests and counts of prepared data."""
    for issue in issues:
        text = str(issue)[:600].replace("\n", " ")
        yield f"{issue.code} | {re.sub('[0-9a-f]*[0-9]+[0-9a-f]*', 'N', text) if issue.code in DATA_CODES else text}"


def render_cases(cases: list[Case]) -> Iterator[str]:
    """Yield a line for each issue of each case."""
    for case in cases:
        yield from render_issues(collect_issues(case))
