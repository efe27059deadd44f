"""The experiment files of the paper's language tables: every row has its published numbers, settings and size."""

from functools import cache

import pytest

from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.load_experiment import load_experiment
from tests.experiment.paper_tables import PAPER, changed_settings, count_parameters, flatten_settings

LANGUAGE = (
    "retrieval.yaml", "positions.yaml", "prior_work.yaml", "hybrids.yaml", "language_340m.yaml", "language_1b3.yaml",
)  # fmt: skip

GENERAL_METRICS = (
    "wikitext/word_perplexity", "lambada_openai/perplexity", "lambada_openai/acc", "piqa/acc", "hellaswag/acc_norm",
    "winogrande/acc", "arc_easy/acc", "arc_challenge/acc_norm", "general/average",
)  # fmt: skip
RETRIEVAL_METRICS = ("swde/contains", "squad_newline/contains", "fda_original/contains", "retrieval/average")

HYBRID, HYBRID_1B3 = 399_233_024, 1_465_750_528
DELTANET, DELTANET_1B3 = 374_067_200, 1_365_087_232
TRANSFORMER, TRANSFORMER_1B3 = 373_867_520, 1_364_297_728
# The published linear attention has an unused beta projection: 8 heads in each of 24 layers. It is not built here.
BETA = 8 * 1024
LINEAR = HYBRID - 24 * BETA

# arm: (columns as printed, number of parameters)
GENERAL = {
    "synchronous": ((26.3, 29.4, 33.3, 66.2, 42.7, 53.8, 61.5, 29.4, 47.8), HYBRID),
    "delayed_stream": ((26.4, 33.1, 33.6, 67.9, 42.1, 51.8, 59.4, 29.5, 47.4), HYBRID),
    "delayed_chunk": ((26.7, 29.9, 33.5, 66.8, 42.3, 50.9, 61.1, 30.6, 47.5), HYBRID),
    "transformer": ((26.5, 34.9, 33.9, 67.6, 41.0, 53.7, 60.2, 29.0, 47.6), TRANSFORMER),
    "deltanet": ((27.6, 35.0, 32.8, 67.1, 40.8, 52.6, 58.5, 28.8, 46.8), DELTANET),
    "sum": ((27.7, 34.8, 32.5, 67.0, 41.2, 52.4, 60.9, 28.9, 47.2), DELTANET),
    "linear_attention": ((33.3, 114.2, 21.0, 63.2, 36.4, 51.7, 53.8, 26.8, 42.2), LINEAR),
    "linear_attention_as_coded": ((33.3, 114.2, 21.0, 63.2, 36.4, 51.7, 53.8, 26.8, 42.2), LINEAR),
    "window_128": ((26.6, 27.8, 35.6, 68.1, 41.7, 51.2, 61.4, 30.1, 48.0), HYBRID),
    "window_256": ((26.7, 27.7, 35.4, 67.0, 42.2, 52.7, 59.8, 29.0, 47.7), HYBRID),
    "window_512": ((27.0, 28.0, 35.9, 66.3, 41.3, 53.2, 60.1, 29.0, 47.6), HYBRID),
}
GENERAL_1B3 = {
    "synchronous": ((19.8, 15.9, 42.8, 72.0, 51.5, 56.1, 68.1, 33.1, 53.9), HYBRID_1B3),
    "delayed_stream": ((20.0, 16.5, 43.5, 70.7, 51.6, 56.0, 69.3, 36.0, 54.5), HYBRID_1B3),
    "delayed_chunk": ((20.2, 16.3, 41.3, 71.8, 50.9, 55.0, 67.9, 35.2, 53.7), HYBRID_1B3),
    "transformer": ((19.8, 17.9, 42.6, 71.0, 50.3, 55.8, 65.2, 33.2, 53.0), TRANSFORMER_1B3),
    "deltanet": ((20.6, 19.9, 39.3, 70.1, 49.5, 52.5, 68.5, 34.2, 52.3), DELTANET_1B3),
}
RETRIEVAL = {
    "vector": ((20.0, 28.4, 10.9, 19.8), HYBRID),
    "sum": ((13.3, 26.2, 12.6, 17.4), DELTANET),
    "scalar": ((21.1, 27.7, 11.4, 20.1), 374_460_416),
    "window_128": ((16.9, 30.5, 17.9, 21.8), HYBRID),
    "window_256": ((18.6, 35.6, 15.1, 23.1), HYBRID),
    "window_512": ((22.9, 35.7, 17.3, 25.3), HYBRID),
    "window_1024": ((34.0, 37.1, 50.1, 40.4), HYBRID),
    "deltanet": ((18.5, 25.2, 8.6, 17.4), DELTANET),
    "transformer": ((44.9, 36.9, 52.3, 44.7), TRANSFORMER),
    "transformer_window_1024": ((30.4, 25.5, 31.2, 29.0), TRANSFORMER),
    "transformer_length_1024": ((30.4, 25.5, 31.2, 29.0), TRANSFORMER),
    "vector_1b3": ((31.9, 31.2, 30.2, 31.1), HYBRID_1B3),
    "deltanet_1b3": ((32.9, 29.9, 23.6, 28.8), DELTANET_1B3),
    "transformer_1b3": ((53.7, 41.5, 64.7, 53.3), TRANSFORMER_1B3),
}
# columns of two tables of the appendix
POSITIONS = {
    "rope": ((26.3, 29.4, 33.3, 66.2, 42.7, 53.8, 61.5, 29.4, 47.8, 20.0, 28.4, 10.9, 19.8), HYBRID),
    "none": ((27.3, 31.8, 32.4, 66.2, 40.7, 51.9, 60.3, 29.8, 46.9, 17.1, 28.4, 13.4, 19.6), HYBRID),
    "rope_window_1024": ((26.8, 31.6, 34.6, 66.7, 41.1, 50.0, 59.9, 28.1, 46.7, 34.0, 37.1, 50.1, 40.4), HYBRID),
    "none_window_1024": ((27.2, 34.5, 32.3, 66.3, 40.2, 54.0, 57.3, 29.4, 46.6, 36.5, 33.3, 55.8, 41.9), HYBRID),
    "rope_1b3": ((19.8, 15.9, 42.8, 72.0, 51.5, 56.1, 68.1, 33.1, 53.9, 31.9, 31.2, 30.2, 31.1), HYBRID_1B3),
    "none_1b3": ((20.7, 17.7, 40.4, 70.7, 50.6, 54.5, 67.1, 33.9, 52.9, 32.7, 32.9, 26.3, 30.6), HYBRID_1B3),
}
CONTROLS = {
    "deltanet_beta_2", "synchronous_beta_1", "transformer_large_heads", "transformer_as_hybrid", "synchronous_matched",
}  # fmt: skip
TABLES = {
    "language_340m.yaml": (GENERAL, GENERAL_METRICS, CONTROLS),
    "language_1b3.yaml": (GENERAL_1B3, GENERAL_METRICS, CONTROLS),
    "retrieval.yaml": (RETRIEVAL, RETRIEVAL_METRICS, {"deltanet_beta_2", "softmax_window_64"}),
    "positions.yaml": (POSITIONS, GENERAL_METRICS + RETRIEVAL_METRICS, set()),
}
# Computed from DeltaNet, which is a hybrid without mixer. A decay gate has as many parameters as beta, plus 2 x 8.
PRIOR_WORK = {
    "synchronous": HYBRID,
    "infini_attention": DELTANET - 24 * BETA + 24 * 2,
    "infini_attention_delta": DELTANET + 24 * 2,
    "based": DELTANET - 24 * BETA,
    "based_layers": DELTANET - 24 * BETA,
    "layer_wise": DELTANET - 12 * BETA,
    "layer_wise_full": DELTANET - 6 * BETA,
    "gated_deltanet": DELTANET + 24 * (BETA + 16),
    "gated_hybrid": HYBRID + 24 * (BETA + 16),
    "retnet": DELTANET - 24 * BETA,
    # 18 layers of KDA: two decay matrices of rank 128, a rate per head, a bias per channel, beta
    "kimi_linear": DELTANET - 24 * BETA + 18 * (2 * 128 * 1024 + 8 + 1024 + BETA),
    # four low-rank matrices of rank 160 and four vectors per layer
    "rwkv7": DELTANET - 24 * BETA + 24 * (4 * 160 * 1024 + 4 * 1024),
    # a step size, a rate and a bias per head
    "mamba2": DELTANET + 24 * 16,
}


@cache
def experiment(name):
    return load_experiment(PAPER / name)


@cache
def cells_by_arm(name):
    return {planned.cell.arm: planned.cell for planned in expand_plan(experiment(name))}


@pytest.mark.parametrize("name", TABLES)
def test_every_row_has_its_published_numbers_and_size(name):
    table, metrics, controls = TABLES[name]
    assert experiment(name).published == {
        arm: {f"eval/{metric}": {"median": value} for metric, value in zip(metrics, row, strict=True)}
        for arm, (row, _) in table.items()
    }
    cells = cells_by_arm(name)
    assert {arm: count_parameters(cells[arm]) for arm in table} == {arm: size for arm, (_, size) in table.items()}
    assert set(cells) - set(table) == controls
    assert {f"eval/{metric}" for metric in metrics} <= {*experiment(name).measure.report}


@pytest.mark.parametrize("name", LANGUAGE)
def test_published_averages_are_the_means_of_their_rows(name):
    for row in experiment(name).published.values():
        for task_set, averaged in {"general": ("acc", "acc_norm"), "retrieval": ("contains",)}.items():
            values = [numbers["median"] for metric, numbers in row.items() if metric.rpartition("/")[2] in averaged]
            if values:
                assert sum(values) / len(values) == pytest.approx(row[f"eval/{task_set}/average"]["median"], abs=0.051)


@pytest.mark.parametrize("name", LANGUAGE)
def test_every_arm_has_the_training_settings_of_the_paper(name):
    stated = {
        "model.layers": 24,
        "model.mlp": "swiglu",
        "model.init_std": 0.02,
        "model.short_conv": 0,
        "model.output_gate": False,
        "train.steps": 28_672,
        "train.accumulate": 4,
        "train.lr": 1e-3,
        "train.warmup": 1024,
        "train.schedule": "cosine",
        "train.lr_floor": 0.1,
        "train.lr_horizon": None,
        "train.betas": [0.9, 0.95],
        "train.adam_eps": 1e-15,
        "train.weight_decay": 0.1,
        "train.decay": "all",
        "train.clip": 1.0,
    }
    assert experiment(name).seeds == (42,) and experiment(name).evaluate.length == 2048
    for arm, cell in cells_by_arm(name).items():
        large = arm.endswith("_1b3") or name == "language_1b3.yaml"
        assert {path: flatten_settings(cell)[path] for path in stated} == stated
        assert cell.model["width"] == (2048 if large else 1024)
        tokens = cell.train.steps * cell.train.batch_size * cell.task["length"]
        assert tokens == (16_441_671_680 if large else 15_032_385_536)


@pytest.mark.parametrize(("name", "heads"), [("language_340m.yaml", 8), ("language_1b3.yaml", 16)])
def test_arms_differ_from_the_first_only_in_the_settings_they_are_named_after(name, heads):
    cells = cells_by_arm(name)
    first = cells["synchronous"]
    assert first.model["heads"] == heads and first.model["timing"] == {"name": "synchronous", "window": 64, "sinks": 0}
    assert first.model["update_rule"] == {"name": "delta", "max_beta": 2} and first.model["mixer"]["name"] == "vector"
    softmax = {"model.mixer": {"name": "kv_only"}, "model.timing": {"name": "synchronous", "window": None, "sinks": 0}}
    plain = {"model.value_activation": "none", "model.head_norm": False, "model.residual_init": "normal"}
    expected = {
        "delayed_stream": {"model.timing": {"name": "delayed_stream", "window": 64, "gates": "current", "sinks": 0}},
        "delayed_chunk": {"model.timing": {"name": "delayed_chunk", "window": 64, "hold": None, "sinks": 0}},
        "transformer": softmax | plain | {"model.heads": 2 * heads},
        "deltanet": {"model.mixer": {"name": "fw_only"}, "model.update_rule": {"name": "delta", "max_beta": 1}},
        "deltanet_beta_2": {"model.mixer": {"name": "fw_only"}},
        "synchronous_beta_1": {"model.update_rule": {"name": "delta", "max_beta": 1}},
        "transformer_large_heads": softmax | plain,
        "transformer_as_hybrid": softmax,
    }
    if name == "language_340m.yaml":
        expected |= windows(128, 256, 512) | {"sum": {"model.mixer": {"name": "sum"}}}
        expected |= {"linear_attention": linear("time"), "linear_attention_as_coded": linear("heads")}
    assert {arm: changed_settings(first, cells[arm]) for arm in expected} == expected
    assert {*cells} == {*expected, "synchronous", "synchronous_matched"}
    matched, deltanet = count_parameters(cells["synchronous_matched"]), count_parameters(cells["deltanet"])
    assert matched == pytest.approx(deltanet, rel=0.002)
    assert set(changed_settings(first, cells["synchronous_matched"])) == {"model.mlp_width"}


def test_arms_without_positions_differ_only_in_positions():
    cells = cells_by_arm("positions.yaml")
    for arm, cell in cells.items():
        window = 1024 if arm.endswith("1024") else 64
        assert cell.model["timing"] == {"name": "synchronous", "window": window, "sinks": 0}
        if arm.startswith("none"):
            assert changed_settings(cells[arm.replace("none", "rope")], cell) == {"model.positions": {"name": "none"}}


def test_prior_work_differs_only_in_the_components_of_the_memory():
    cells = cells_by_arm("prior_work.yaml")
    assert {arm: count_parameters(cell) for arm, cell in cells.items()} == PRIOR_WORK
    changed = {path for cell in cells.values() for path in changed_settings(cells["synchronous"], cell)}
    assert changed == {"model.timing", "model.update_rule", "model.mixer", "model.positions"}
    assert [arm for arm, cell in cells.items() if cell.model["positions"]["name"] == "none"] == ["kimi_linear"]
    assert changed_settings(cells["synchronous"], cells["gated_hybrid"])["model.update_rule"]["max_beta"] == 2
    general = experiment("language_340m.yaml").published["synchronous"]
    table = general | experiment("retrieval.yaml").published["vector"]
    (published,) = experiment("prior_work.yaml").published.values()
    assert published == {metric: table[metric] for metric in published} and len(published) == 3


def test_prior_work_has_the_components_of_the_models_it_is_named_after():
    cells = cells_by_arm("prior_work.yaml")
    chunks = {"model.timing": {"name": "delayed_chunk", "window": 64, "hold": None, "sinks": 0}}
    constants = {"model.mixer": {"name": "static"}}
    alternating = {"model.mixer": [{"name": "fw_only"}, {"name": "kv_only"}]}
    expected = {
        "infini_attention": chunks | linear("time") | constants,
        "infini_attention_delta": chunks | {"model.update_rule": {"name": "delta", "max_beta": 1}} | constants,
        "based": linear("time") | {"model.mixer": {"name": "sum"}},
        "based_layers": linear("time") | alternating,
        "layer_wise": alternating,
        "layer_wise_full": {
            "model.mixer": [{"name": "fw_only"}] * 3 + [{"name": "kv_only"}],
            "model.timing": {"name": "synchronous", "window": None, "sinks": 0},
        },
    }
    assert {arm: changed_settings(cells["synchronous"], cells[arm]) for arm in expected} == expected
    rules = {"gated_deltanet": "gated_delta", "retnet": "retention", "rwkv7": "rwkv7", "mamba2": "mamba2"}
    for arm, name in rules.items():
        assert cells[arm].model["update_rule"]["name"] == name and cells[arm].model["mixer"]["name"] == "fw_only"
    assert cells["gated_hybrid"].model["update_rule"]["name"] == "gated_delta"
    assert cells["gated_hybrid"].model["mixer"]["name"] == "vector"
    assert cells["kimi_linear"].model["update_rule"]["name"] == "kda"
    assert cells["kimi_linear"].model["mixer"] == expected["layer_wise_full"]["model.mixer"]
    assert cells["kimi_linear"].model["timing"] == {"name": "synchronous", "window": None, "sinks": 0}
    assert changed_settings(cells["gated_deltanet"], cells["retnet"]).keys() == {"model.update_rule"}


def test_rows_of_the_retrieval_table_differ_only_in_the_settings_they_are_named_after():
    cells = cells_by_arm("retrieval.yaml")
    plain = {"model.value_activation": "none", "model.head_norm": False, "model.residual_init": "normal"}
    softmax = plain | {"model.mixer": {"name": "kv_only"}, "model.heads": 16}
    full_attention = {"model.timing": {"name": "synchronous", "window": None, "sinks": 0}}
    deltanet = {"model.mixer": {"name": "fw_only"}, "model.update_rule": {"name": "delta", "max_beta": 1}}
    expected = windows(128, 256, 512, 1024) | {
        "sum": {"model.mixer": {"name": "sum"}},
        "scalar": {"model.mixer": {"name": "scalar"}},
        "deltanet": deltanet,
        "deltanet_beta_2": {"model.mixer": {"name": "fw_only"}},
        "softmax_window_64": {"model.mixer": {"name": "kv_only"}},
        "transformer": softmax | full_attention,
        "transformer_window_1024": softmax | windows(1024)["window_1024"],
    }
    assert {arm: changed_settings(cells["vector"], cells[arm]) for arm in expected} == expected
    shorter = changed_settings(cells["transformer"], cells["transformer_length_1024"])
    assert (shorter.pop("train.batch_size"), shorter.pop("task")["length"], shorter) == (512, 1024, {})
    large = {"model.width": 2048, "model.heads": 16, "task": cells["vector_1b3"].task}
    expected_1b3 = {"vector": large, "deltanet": large | deltanet, "transformer": large | softmax | full_attention}
    expected_1b3["transformer"] |= {"model.heads": 32}
    assert {arm: changed_settings(cells["vector"], cells[f"{arm}_1b3"]) for arm in expected_1b3} == expected_1b3


def linear(normalizer):
    return {"model.update_rule": {"name": "linear_attention", "normalizer": normalizer}}


def windows(*sizes):
    return {f"window_{size}": {"model.timing": {"name": "synchronous", "window": size, "sinks": 0}} for size in sizes}
