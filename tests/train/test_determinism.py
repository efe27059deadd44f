"""The determinism check finds operations that are not repeatable, and does not change training."""

import pytest
import torch
from lightning.pytorch import Callback

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.cell_key import cell_key
from hqlt_lab.experiment.fill_defaults import fill_defaults
from hqlt_lab.registry import build, load_components, temporary_components
from hqlt_lab.rundir.diagnostics import DETERMINISM_FILE, DeterminismCheck, read_determinism_check
from hqlt_lab.rundir.outcome import read_outcome
from hqlt_lab.train.determinism_check import compute_first_step, is_bitwise_equal
from hqlt_lab.train.fit import build_model, fit
from hqlt_lab.train.interrupt import RunInterrupted
from hqlt_lab.train.lightning_module import TrainingModule
from hqlt_lab.train.micro_batches import MicroBatches
from hqlt_lab.train.trainer import build_trainer, silence_lightning
from hqlt_lab.train.trainer_state import TrainerState
from tests.train.conftest import MODEL, TASK, MetricsLog, equal_weights, last_weights, tiny_cell
from tests.train.test_distributed import NONDETERMINISTIC_MIXERS, fit_two_processes

CHECK_OFF, DETERMINISTIC, TORCH_RANDOM = (
    {"check_determinism": False},
    {"deterministic": True},
    {"model": {"mixer": "torch_random"}},
)
NONDETERMINISTIC_ANSWER, NONDETERMINISTIC_GRADIENT = (
    {"mixer": {"name": "nondeterministic", "target": target}} for target in ("answer", "gradient")
)


@pytest.fixture
def mixers():
    with temporary_components():
        load_components(NONDETERMINISTIC_MIXERS)
        yield


@pytest.fixture
def reset_deterministic_flag():
    """Lightning sets torch's flag for the whole process."""
    yield
    torch.use_deterministic_algorithms(False)


def test_a_repeatable_cell_is_recorded_in_its_folder_and_its_outcome(folder):
    assert fit(tiny_cell(steps=2), folder).repeatable is True
    assert read_determinism_check(folder) == DeterminismCheck(True, []) and read_outcome(folder).repeatable is True


def test_without_the_check_nothing_is_recorded(folder):
    assert fit(tiny_cell(steps=2, trainer=CHECK_OFF), folder).repeatable is None
    assert read_determinism_check(folder) is None and not (folder / DETERMINISM_FILE).exists()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"accumulate": 3},
        {"precision": "bf16-mixed"},
        {"precision": "64"},
        TORCH_RANDOM,
        {"model": {"mixer": "buffer_state"}},
    ],
    ids=["plain", "micro-batches", "bf16", "64", "random", "buffers"],
)
def test_training_with_and_without_the_check_is_bitwise_equal(tmp_path, mixers, changes):
    log_with, log_without = MetricsLog(), MetricsLog()
    checked = fit(tiny_cell(**changes), tmp_path / "with", log_with)
    unchecked = fit(tiny_cell(**changes, trainer=CHECK_OFF), tmp_path / "without", log_without)
    assert checked.repeatable is True and unchecked.repeatable is None
    assert checked.metrics == unchecked.metrics and log_with.timeless_points() == log_without.timeless_points()
    assert equal_weights(last_weights(tmp_path / "with"), last_weights(tmp_path / "without"))


@silence_lightning()
@pytest.mark.parametrize("precision", ["32", "bf16-mixed"])
def test_the_check_computes_the_gradients_of_the_first_step_and_restores_all_state(folder, mixers, precision):
    cell = tiny_cell(**TORCH_RANDOM, precision=precision)
    task = build("task", cell.task)
    module = TrainingModule(build_model(cell, task), task, cell, TrainerState())
    trainer = module.trainer = build_trainer(cell, 1, folder, Callback())
    trainer.strategy.connect(module)
    micro_batch, rng_state = next(iter(MicroBatches(task, cell, 0, 0, 1))), torch.get_rng_state()
    results = compute_first_step(trainer, module, micro_batch)
    assert torch.equal(torch.get_rng_state(), rng_state)
    assert all(parameter.grad is None for parameter in module.model.parameters())
    with trainer.precision_plugin.train_step_context():
        loss = module.training_step(micro_batch)
    loss.backward()
    assert is_bitwise_equal(results.pop("loss"), module.batch_loss)
    assert equal_weights(results, {name: parameter.grad for name, parameter in module.model.named_parameters()})


def test_the_check_costs_two_passes(folder):
    seeds = []  # of each forward pass in training

    def record_seed(module, inputs):
        if isinstance(module, torch.nn.Embedding) and module.training:
            seeds.append(torch.initial_seed())

    handle = torch.nn.modules.module.register_module_forward_pre_hook(record_seed)
    fit(tiny_cell(steps=3), folder)
    handle.remove()
    assert len(seeds) == 2 + 3
    assert len(set(seeds[:3])) == 1 and len(set(seeds)) == 3  # the check has the seed of the first step


@pytest.mark.parametrize(
    ("model", "first"),
    [(NONDETERMINISTIC_ANSWER, "loss"), (NONDETERMINISTIC_GRADIENT, "blocks.0.memory_norm.weight")],
    ids=["answer", "gradient"],
)
def test_nondeterminism_is_found_in_the_loss_or_in_gradients(folder, mixers, model, first):
    outcome = fit(tiny_cell(steps=2, model=model), folder)
    assert (outcome.status, outcome.repeatable, outcome.message) == ("done", False, "")
    check = read_determinism_check(folder)
    assert not check.repeatable and check.differs[0] == first
    # the head comes after the mixer, so a disturbed gradient at the mixer does not reach it
    assert ("head.weight" in check.differs) == (first == "loss")


def test_a_deterministic_run_that_is_not_repeatable_warns_and_continues(folder, mixers, reset_deterministic_flag):
    outcome = fit(tiny_cell(model=NONDETERMINISTIC_ANSWER, trainer=DETERMINISTIC), folder)
    assert (outcome.status, outcome.step) == ("done", 12)
    names = read_determinism_check(folder).differs
    differences = f"differs in loss, {names[1]}, {names[2]} and {len(names) - 3} more."
    assert outcome.message == f"trainer.deterministic is true, but the first step, computed twice, {differences}"


def test_a_repeatable_deterministic_run_has_no_warning(folder, reset_deterministic_flag):
    outcome = fit(tiny_cell(steps=2, model={"update_rule": "gated_delta"}, trainer=DETERMINISTIC), folder)
    assert torch.are_deterministic_algorithms_enabled()
    assert (outcome.repeatable, outcome.message) == (True, "")


def test_a_resumed_run_keeps_the_result_and_does_not_check_again(folder, mixers, reset_deterministic_flag):
    cell = tiny_cell(model=NONDETERMINISTIC_ANSWER, trainer=DETERMINISTIC)
    with pytest.raises(RunInterrupted):
        fit(cell, folder, MetricsLog(stop_at=5))
    written = (folder / DETERMINISM_FILE).stat().st_mtime_ns
    outcome = fit(cell, folder)
    assert outcome.repeatable is False and outcome.message.count("trainer.deterministic is true") == 1
    assert (folder / DETERMINISM_FILE).stat().st_mtime_ns == written


def test_nondeterminism_in_rank_one_is_reported_by_both_processes(tmp_path):
    only_rank_one = {"mixer": {"name": "nondeterministic", "process": 1}}
    fit_two_processes(tiny_cell(devices=2, steps=2, model=only_rank_one), tmp_path)
    check = read_determinism_check(tmp_path)
    assert check == DeterminismCheck(False, [])
    assert check.warning_message.endswith("differs in a process other than the first.")
    assert read_outcome(tmp_path).repeatable is False


def test_check_determinism_is_not_in_the_cell_key():
    checked, unchecked = (
        Cell(**fill_defaults({"task": TASK, "model": MODEL, "trainer": {"check_determinism": enabled}}))
        for enabled in (True, False)
    )
    assert checked.trainer.check_determinism and not unchecked.trainer.check_determinism
    assert cell_key(checked) == cell_key(unchecked)


def test_tensors_are_compared_by_bits_and_not_by_value():
    nan = torch.tensor([float("nan"), 1.0])
    assert is_bitwise_equal(nan, nan.clone()) and is_bitwise_equal(torch.tensor(0.5), torch.tensor(0.5))
    assert not is_bitwise_equal(torch.tensor(0.0), torch.tensor(-0.0))
    assert not is_bitwise_equal(torch.tensor(1.0), torch.tensor(1.0).nextafter(torch.tensor(2.0)))
    assert is_bitwise_equal(torch.ones(2, 3).T, torch.ones(1).expand(3, 2))
