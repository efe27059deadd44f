"""The first step is computed twice: what does not repeat is told, and training never notices."""

import pytest
import torch
from lightning.pytorch import Callback

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.fill import filled
from hqlt_lab.experiment.plan import key_of
from hqlt_lab.registry import build, include, temporarily
from hqlt_lab.train.batches import Pieces
from hqlt_lab.train.canary import first_step, same_bits
from hqlt_lab.train.canary_file import FILE, Canary, read_canary
from hqlt_lab.train.fit import build_model, fit
from hqlt_lab.train.interrupt import Interrupted
from hqlt_lab.train.learner import Learner
from hqlt_lab.train.outcome import read_outcome
from hqlt_lab.train.progress import Progress
from hqlt_lab.train.trainer import quiet, trainer_for
from tests.train.conftest import MODEL, TASK, Notebook, same, tiny, weights
from tests.train.test_processes import RESTLESS, fit_pair

OFF, STRICT, RANDOM = {"canary": False}, {"deterministic": True}, {"model": {"mixer": "drawing"}}
ANSWER, GRADIENT = ({"mixer": {"name": "restless", "of": of}} for of in ("answer", "gradient"))


@pytest.fixture
def parts():
    with temporarily():
        include(RESTLESS)
        yield


@pytest.fixture
def flag():
    """Lightning sets it for the whole process."""
    yield
    torch.use_deterministic_algorithms(False)


def test_a_cell_that_repeats_says_so_in_its_folder_and_its_outcome(folder):
    assert fit(tiny(steps=2), folder).repeatable is True
    assert read_canary(folder) == Canary(True, []) and read_outcome(folder).repeatable is True


def test_switched_off_nobody_looks_and_nothing_is_said(folder):
    assert fit(tiny(steps=2, trainer=OFF), folder).repeatable is None
    assert read_canary(folder) is None and not (folder / FILE).exists()


@pytest.mark.parametrize(
    "changes",
    [{}, {"accumulate": 3}, {"precision": "bf16-mixed"}, {"precision": "64"}, RANDOM, {"model": {"mixer": "counting"}}],
    ids=["plain", "pieces", "bf16", "64", "random", "buffers"],
)
def test_training_is_the_same_bit_by_bit_with_the_canary_and_without(tmp_path, parts, changes):
    heard, unheard = Notebook(), Notebook()
    one = fit(tiny(**changes), tmp_path / "with", heard)
    other = fit(tiny(**changes, trainer=OFF), tmp_path / "without", unheard)
    assert one.repeatable is True and other.repeatable is None
    assert one.metrics == other.metrics and heard.curves() == unheard.curves()
    assert same(weights(tmp_path / "with"), weights(tmp_path / "without"))


@quiet()
@pytest.mark.parametrize("precision", ["32", "bf16-mixed"])
def test_it_has_the_gradients_of_the_first_step_and_leaves_neither_those_nor_a_random_number(folder, parts, precision):
    cell = tiny(**RANDOM, precision=precision)
    task = build("task", cell.task)
    learner = Learner(build_model(cell, task), task, cell, Progress())
    trainer = learner.trainer = trainer_for(cell, 1, folder, Callback())
    trainer.strategy.connect(learner)
    piece, state = next(iter(Pieces(task, cell, 0, 0, 1))), torch.get_rng_state()
    found = first_step(trainer, learner, piece)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in learner.model.parameters())
    with trainer.precision_plugin.train_step_context():
        loss = learner.training_step(piece)
    loss.backward()
    assert same_bits(found.pop("loss"), learner.loss)
    assert same(found, {name: parameter.grad for name, parameter in learner.model.named_parameters()})


def test_it_costs_two_passes(folder):
    passes = []

    def note(module, inputs):
        if isinstance(module, torch.nn.Embedding) and module.training:
            passes.append(torch.initial_seed())

    handle = torch.nn.modules.module.register_module_forward_pre_hook(note)
    fit(tiny(steps=3), folder)
    handle.remove()
    assert len(passes) == 2 + 3
    assert len(set(passes[:3])) == 1 and len(set(passes)) == 3  # with the random numbers of the first step


@pytest.mark.parametrize(
    ("model", "first"), [(ANSWER, "loss"), (GRADIENT, "blocks.0.memory_norm.weight")], ids=["answer", "gradient"]
)
def test_what_does_not_repeat_is_found_by_its_loss_or_by_its_gradients(folder, parts, model, first):
    outcome = fit(tiny(steps=2, model=model), folder)
    assert (outcome.status, outcome.repeatable, outcome.message) == ("done", False, "")
    found = read_canary(folder)
    assert not found.repeatable and found.differs[0] == first
    # the head lies behind the mixer, so that it has no part in a gradient that goes wrong there
    assert ("head.weight" in found.differs) == (first == "loss")


def test_whoever_asked_for_what_repeats_is_warned_and_the_run_goes_on(folder, parts, flag):
    outcome = fit(tiny(model=ANSWER, trainer=STRICT), folder)
    assert (outcome.status, outcome.step) == ("done", 12)
    names = read_canary(folder).differs
    told = f"differs in loss, {names[1]}, {names[2]} and {len(names) - 3} more."
    assert outcome.message == f"trainer.deterministic is true, but the first step, computed twice, {told}"


def test_where_nothing_differs_there_is_no_warning(folder, flag):
    outcome = fit(tiny(steps=2, model={"update_rule": "gated_delta"}, trainer=STRICT), folder)
    assert torch.are_deterministic_algorithms_enabled()
    assert (outcome.repeatable, outcome.message) == (True, "")


def test_a_run_that_goes_on_does_not_listen_again_and_knows_the_answer(folder, parts, flag):
    cell = tiny(model=ANSWER, trainer=STRICT)
    with pytest.raises(Interrupted):
        fit(cell, folder, Notebook(stop_at=5))
    written = (folder / FILE).stat().st_mtime_ns
    outcome = fit(cell, folder)
    assert outcome.repeatable is False and outcome.message.count("trainer.deterministic is true") == 1
    assert (folder / FILE).stat().st_mtime_ns == written


def test_two_processes_know_together_what_only_the_second_can_see(tmp_path):
    second = {"mixer": {"name": "restless", "process": 1}}
    fit_pair(tiny(devices=2, steps=2, model=second), tmp_path)
    found = read_canary(tmp_path)
    assert found == Canary(False, []) and found.warning.endswith("differs in another process than the first.")
    assert read_outcome(tmp_path).repeatable is False


def test_the_canary_is_not_in_the_key():
    told = [{"task": TASK, "model": MODEL, "trainer": {"canary": canary}} for canary in (True, False)]
    with_it, without = (Cell(**filled(one)) for one in told)
    assert key_of(with_it) == key_of(without) and with_it.trainer.canary and not without.trainer.canary


def test_bits_are_compared_and_not_numbers():
    nan = torch.tensor([float("nan"), 1.0])
    assert same_bits(nan, nan.clone()) and same_bits(torch.tensor(0.5), torch.tensor(0.5))
    assert not same_bits(torch.tensor(0.0), torch.tensor(-0.0))
    assert not same_bits(torch.tensor(1.0), torch.tensor(1.0).nextafter(torch.tensor(2.0)))
    assert same_bits(torch.ones(2, 3).T, torch.ones(1).expand(3, 2))
