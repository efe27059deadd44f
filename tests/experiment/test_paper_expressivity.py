"""The experiment files of the paper's expressivity tables: published numbers, settings, and deviations of its code."""

from dataclasses import asdict
from functools import cache

import pytest

from hqlt_lab.experiment.cell_filters import filter_cells
from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.registry import build
from hqlt_lab.train.fit import fit_in_process
from tests.experiment.paper_tables import PAPER, changed_settings, count_parameters, flatten_settings

TASKS = ("parity", "modular_arithmetic")
ROWS = ("synchronous", "delayed_stream", "delayed_chunk", "linear_attention")

# best of three seeds, their median, its absolute deviation; first parity, then modular arithmetic
TABLE = {
    "delayed_stream": ((3.3, 3.0, 0.3), (27.8, 22.2, 5.6)),
    "delayed_chunk": ((2.8, 2.3, 0.1), (1.4, 1.4, 0.1)),
    "synchronous": ((100.0, 99.7, 0.1), (97.0, 93.2, 3.2)),
    "linear_attention": ((2.5, 2.1, 0.3), (44.5, 32.9, 11.6)),
}
QUOTED = {
    "Transformer": ((2.2, 0.3, 1.3), (3.1, 1.8, 0.9)),
    "Mamba": ((100.0, 100.0, 0.0), (24.1, 21.4, 2.7)),
    "DeltaNet": ((100.0, 99.9, 0.6), (97.1, 82.6, 14.6)),
}

# settings in which the published code differs from the text: in every row, in some rows, in one task
CODE_DEVIATIONS = {
    "model.positions": {"name": "none"},
    "model.short_conv": 4,
    "model.output_gate": True,
    "model.init_std": 0.006,
    "train.weight_decay": 0.1,
    "train.clip": None,
}
ROW_DEVIATIONS = {
    "delayed_chunk": {"model.timing": {"name": "delayed_chunk", "window": 16, "hold": 64, "sinks": 0}},
    "linear_attention": {"model.update_rule": {"name": "linear_attention", "normalizer": "heads"}},
}
TASK_DEVIATIONS = {"modular_arithmetic": {"train.warmup": 10_000, "train.lr_horizon": 100_000}}


@pytest.fixture(params=TASKS)
def task(request):
    return request.param


@cache
def experiment(task):
    return load_experiment(PAPER / f"expressivity_{task}.yaml")


@cache
def cells(task):
    """Return the cells of each arm."""
    by_arm = {}
    for planned in expand_plan(experiment(task)):
        by_arm.setdefault(planned.cell.arm, []).append(planned.cell)
    return by_arm


def published_rows(table, task):
    names = ("best", "median", "mad")
    return {
        row: {"test/normalized_accuracy": dict(zip(names, columns[TASKS.index(task)], strict=True))}
        for row, columns in table.items()
    }


def test_published_numbers_are_those_of_the_paper(task):
    published = published_rows(TABLE, task)
    assert experiment(task).published == published | {f"{row}_as_coded": published[row] for row in published}
    assert experiment(task).quoted == published_rows(QUOTED, task)


def test_every_arm_has_the_same_budget(task):
    controls = ("deltanet", "transformer", "synchronous_conv_gate")
    assert list(cells(task)) == [*ROWS, *controls, *(f"{row}_as_coded" for row in ROWS)]
    for arm in cells(task).values():
        points = [(cell.train.lr, cell.seed) for cell in arm]
        assert points == [(lr, seed) for lr in (5e-3, 1e-3, 5e-4, 1e-4) for seed in (0, 1, 2)]
    assert sum(map(len, cells(task).values())) == 132


def test_settings_are_those_of_the_text(task):
    cell = cells(task)["synchronous"][0]
    stated = {
        "model.width": 128,
        "model.heads": 4,
        "model.layers": 2 if task == "parity" else 3,
        "model.mlp_width": 512,
        "model.update_rule": {"name": "delta", "max_beta": 2},
        "model.timing": {"name": "synchronous", "window": 8, "sinks": 0},
        "model.mixer": {"name": "vector"},
        "model.positions": {"name": "rope", "base": 10_000},
        "model.short_conv": 0,
        "model.output_gate": False,
        "model.norm_eps": 1e-6,
        "model.tie_embeddings": False,
        "model.init_std": 0.02,
        "train.steps": 20_000,
        "train.batch_size": 1024,
        "train.warmup": 2000,
        "train.schedule": "cosine",
        "train.lr_floor": 1e-3,
        "train.lr_horizon": None,
        "train.betas": [0.9, 0.999],
        "train.adam_eps": 1e-8,
        "train.weight_decay": 0,
        "train.decay": "all",
        "train.clip": 1.0,
        "train.valid_every": 100,
        "train.stop_at": None,
        "train.report": "last",
    }
    data = {"name": task, "train_length": [3, 40], "test_length": [40, 256], "valid_length": None, "eval_size": 8192}
    assert {path: flatten_settings(cell)[path] for path in stated} == stated
    assert {option: cell.task[option] for option in data} == data
    assert asdict(cell.measure) == {
        "select": "valid/normalized_accuracy",
        "report": ["test/normalized_accuracy"],
        "direction": "maximize",
        "statistic": "best",
        "solved": 99 if task == "parity" else 90,
        "margin": 0.0,
        "interval": "t",
    }


def test_rows_differ_from_the_first_only_in_the_setting_they_are_named_after(task):
    first, *others = [(arm, cells(task)[arm][0]) for arm in (*ROWS, "deltanet", "transformer", "synchronous_conv_gate")]
    assert {arm: changed_settings(first[1], cell) for arm, cell in others} == {
        "delayed_stream": {"model.timing": {"name": "delayed_stream", "window": 8, "gates": "current", "sinks": 0}},
        "delayed_chunk": {"model.timing": {"name": "delayed_chunk", "window": 16, "hold": None, "sinks": 0}},
        "linear_attention": {"model.update_rule": {"name": "linear_attention", "normalizer": "time"}},
        "deltanet": {"model.mixer": {"name": "fw_only"}, "model.short_conv": 4},
        "transformer": {
            "model.mixer": {"name": "kv_only"},
            "model.timing": {"name": "synchronous", "window": None, "sinks": 0},
            "model.value_activation": "none",
            "model.head_norm": False,
            "model.residual_init": "normal",
        },
        "synchronous_conv_gate": {"model.short_conv": 4, "model.output_gate": True},
    }


@pytest.mark.parametrize("row", ROWS)
def test_as_coded_arms_differ_only_in_the_deviations_of_the_code(task, row):
    plain, coded = (cells(task)[arm][0] for arm in (row, f"{row}_as_coded"))
    assert changed_settings(plain, coded) == (
        CODE_DEVIATIONS | ROW_DEVIATIONS.get(row, {}) | TASK_DEVIATIONS.get(task, {})
    )


def test_models_have_as_many_parameters_as_those_of_the_paper(task):
    coded, layers = {"parity": (595_392, 2), "modular_arithmetic": (894_432, 3)}[task]
    # per layer: three convolutions with 4 taps, an output gate, the gates of the mixer, and a beta per head. The
    # published linear attention has an unused beta, which is not built here.
    conv, gate, mixer, beta = (layers * size for size in (3 * 128 * 4, 128 * 128, 128 * 128, 4 * 128))
    plain = coded - conv - gate
    sizes = {row: plain for row in ROWS} | {f"{row}_as_coded": coded for row in ROWS}
    sizes |= {"synchronous_conv_gate": coded, "deltanet": plain - mixer + conv}
    sizes |= {"linear_attention": plain - beta, "linear_attention_as_coded": coded - beta}
    sizes |= {"transformer": plain - mixer - beta - layers * 32}  # it has no head norm either
    assert {arm: count_parameters(arm_cells[0]) for arm, arm_cells in cells(task).items()} == sizes


def test_chunks_of_the_published_code_leave_the_fast_weights_empty_in_training(task):
    train_length, test_length = (build("task", task).sequence_length(split) for split in ("train", "test"))
    arms = ("delayed_chunk", "delayed_chunk_as_coded")
    plain, coded = (build("timing", cells(task)[arm][0].model["timing"]) for arm in arms)
    assert plain.fast_weight_mask(train_length).any() and not coded.fast_weight_mask(train_length).any()
    assert coded.fast_weight_mask(test_length).any()
    assert [arm.name for arm in experiment(task).arms if arm.allow] == ["delayed_chunk_as_coded"]


def test_small_version_of_a_row_trains(task, tmp_path):
    overrides = ["train.steps=2", "train.batch_size=4", "train.valid_every=2", "task.eval_size=8"]
    overrides += ["model.width=16", "model.heads=2", "model.mlp_width=16", "trainer.accelerator=cpu"]
    small = load_experiment(PAPER / f"expressivity_{task}.yaml", overrides)
    ((_, cell),) = filter_cells(expand_plan(small), ["arm=delayed_chunk_as_coded,lr=0.001,seed=0"])
    outcome = fit_in_process(cell, tmp_path / "run")
    assert outcome.status == "done" and outcome.step == 2 and "test/normalized_accuracy" in outcome.metrics
