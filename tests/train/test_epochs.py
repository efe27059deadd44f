"""Training in epochs over a finite set, the head at labels only, and metrics by slice."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.experiment.run_settings import TrainConfig
from hqlt_lab.train.fit import fit
from hqlt_lab.train.interrupt import RunInterrupted
from hqlt_lab.train.micro_batches import check_batch_division
from hqlt_lab.train.optim import lr_factor
from hqlt_lab.train.scoring import outputs_and_losses, predictions_and_losses, score_model, total_loss
from tests.issues import raises_issue
from tests.train.conftest import MODEL, MetricsLog, last_weights, tiny_cell

RECALL = {"name": "associative_recall", "keys": 8, "values": 8, "pairs": 2, "train_length": [12, 12]}
SLICES = [{"pairs": 2, "test_length": [12, 12]}, {"pairs": 3, "test_length": [20, 20]}]
SEGMENTS = [{"rows": 10, "pairs": 2}, {"rows": 8, "pairs": 3, "train_length": [16, 16]}]
MIXED = RECALL | {"segments": SEGMENTS, "test_slices": SLICES, "test_length": [12, 12], "eval_size": 40}
FILE = """
question: Does it train in epochs?
task: {name: associative_recall, rows: 20, train_length: [64, 64]}
train: {epochs: 3, batch_size: 8}
arms: {a: {}, b: {train.batch_size: 20}}
seeds: 1
"""


def recall_cell(task=MIXED, **settings):
    cell = tiny_cell(**settings)
    return type(cell)(**{**vars(cell), "task": {**task}})


def write_file(tmp_path, text=FILE):
    file = tmp_path / "epochs.yaml"
    file.write_text(text)
    return file


def test_epochs_determine_the_steps_of_each_arm(tmp_path):
    cells = [planned.cell for planned in expand_plan(load_experiment(write_file(tmp_path)))]
    assert [cell.train.steps for cell in cells] == [9, 3]


def test_epochs_without_a_finite_training_set_are_an_error(tmp_path):
    with raises_issue("train.epochs", "epochs_without_rows"):
        load_experiment(write_file(tmp_path, FILE.replace("rows: 20, ", "")))


def test_epochs_and_steps_together_are_an_error(tmp_path):
    with raises_issue("train.steps", "steps_and_epochs"):
        load_experiment(write_file(tmp_path), ["train.steps=2"])
    by_steps = load_experiment(write_file(tmp_path), ["train.steps=2", "train.epochs=null"])
    assert by_steps.make_cell(by_steps.arms[0], {}, 0).train.steps == 2


def test_new_settings_at_their_default_are_not_in_the_key(tmp_path):
    def key(*overrides):
        text = FILE.replace("rows: 20, ", "").replace("epochs: 3, ", "").replace("arms: {a: {}, b", "arms: {b")
        return expand_plan(load_experiment(write_file(tmp_path, text), overrides))[0].key

    new = ["task.rows=null", "task.order=fixed", "task.segments=null", "task.targets=scored", "train.epochs=null"]
    assert key() == key(*new) == key("train.head=labeled")  # the same result but for rounding
    assert key() == "1377cbd4af37dea1"
    assert len({key(), key("task.rows=20"), key("task.rows=20", "train.epochs=50"), key("task.targets=all_next")}) == 4


def test_the_learning_rate_of_an_interval_of_epochs_changes_between_epochs():
    train = TrainConfig(steps=8, epochs=4, lr_interval="epoch")
    rates = [lr_factor(train, step) for step in range(8)]
    assert rates == pytest.approx([1, 1, 0.8535533, 0.8535533, 0.5, 0.5, 0.1464466, 0.1464466])
    linear = TrainConfig(steps=4, schedule="linear", lr_floor=0.2)
    assert [lr_factor(linear, step) for step in range(5)] == pytest.approx([1, 0.8, 0.6, 0.4, 0.2])
    with raises_issue("lr_interval", "interval_without_epochs"):
        TrainConfig(lr_interval="epoch")


def test_a_resumed_run_reads_the_same_rows(tmp_path):
    cell = recall_cell(MIXED | {"order": "shuffled"}, batch_size=4, steps=10, head="labeled")
    with pytest.raises(RunInterrupted):
        fit(cell, tmp_path / "resumed", MetricsLog(stop_at=5))
    assert fit(cell, tmp_path / "resumed").step == 10 and fit(cell, tmp_path / "whole").step == 10
    resumed, whole = last_weights(tmp_path / "resumed"), last_weights(tmp_path / "whole")
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_a_last_batch_that_does_not_divide_over_processes_is_an_error():
    cell = recall_cell(batch_size=4, accumulate=2)
    check_batch_division(cell, lab.build("task", MIXED))
    with raises_issue("train.batch_size", "last_batch_not_divisible"):
        check_batch_division(cell, lab.build("task", RECALL | {"rows": 9}))


def test_the_head_at_labels_gives_the_losses_and_gradients_of_the_whole_head():
    task = lab.build("task", RECALL | {"train_length": [12, 20]})
    batch = task.get_examples("train", 0, 0, 6)
    for tie in (False, True):
        model = lab.build_model(**MODEL, vocabulary=task.vocabulary, tie_embeddings=tie).double()
        grads = []
        for head in ("all", "labeled"):
            model.zero_grad()
            loss = total_loss(model, task, batch.tokens, batch.labels, head)
            loss.backward()
            grads.append([loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
        for whole, labeled in zip(*grads, strict=True):
            torch.testing.assert_close(labeled, whole, rtol=1e-12, atol=1e-13)
        logits, losses = outputs_and_losses(model, task, batch.tokens, batch.labels)
        predictions, labeled_losses = predictions_and_losses(model, task, batch.tokens, batch.labels)
        labeled = batch.labels >= 0
        assert torch.equal(predictions[labeled], logits.argmax(-1)[labeled])
        torch.testing.assert_close(labeled_losses, losses, rtol=1e-12, atol=1e-13)


def test_the_head_computes_logits_of_the_masked_tokens_only():
    model = lab.build_model(**MODEL, vocabulary=5)
    tokens = torch.tensor([[1, 2, 3], [4, 1, 2]])
    mask = torch.tensor([[False, True, False], [True, False, True]])
    torch.testing.assert_close(model(tokens, head_mask=mask)[0], model(tokens)[0][mask])


def test_both_heads_score_a_split_equally():
    task = lab.build("task", MIXED)
    model = lab.build_model(**MODEL, vocabulary=task.vocabulary).double()
    whole, labeled = (score_model(model, task, "test", 16, head) for head in ("all", "labeled"))
    assert whole.metrics == pytest.approx(labeled.metrics, rel=1e-12)
    assert whole.errors == pytest.approx(labeled.errors, rel=1e-6)


def test_metrics_by_slice_are_those_of_the_slices_alone():
    task = lab.build("task", MIXED)
    model = lab.build_model(**MODEL, vocabulary=task.vocabulary).double()
    score = score_model(model, task, "test", 16)
    assert set(score.metrics) == {*task.metric_names, "loss"}
    shares = []
    for eval_slice in task.slices("test"):
        batch = task.get_examples("test", 0, eval_slice.first, eval_slice.rows)
        labeled = batch.labels >= 0
        correct = (model(batch.tokens)[0].argmax(-1) == batch.labels) & labeled
        assert score.metrics[f"accuracy/{eval_slice.name}"] == pytest.approx(100 * float(correct.sum() / labeled.sum()))
        shares += (correct.sum(1) / labeled.sum(1)).tolist()
    assert score.metrics["example_accuracy"] == pytest.approx(100 * sum(shares) / 40, rel=1e-5)
    assert score.metrics["example_accuracy"] != pytest.approx(score.metrics["accuracy"])


def test_the_head_at_labels_is_refused_where_it_does_not_apply(tmp_path):
    with raises_issue("head", "labeled_head_with_compile"):
        TrainConfig(head="labeled", compile=True)
    text = FILE.replace("associative_recall, rows: 20, train_length: [64, 64]", "language, vocabulary_size: 5")
    text = text.replace("epochs: 3", "head: labeled").replace("question", "measure: {select: valid/loss, report: "
        "[test/loss], direction: minimize}\nquestion")  # fmt: skip
    with raises_issue("train.head", "labeled_head_not_supported"):
        load_experiment(write_file(tmp_path, text))
