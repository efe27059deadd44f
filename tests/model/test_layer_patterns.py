"""Layer patterns expand to lists, and learned positions are counted from the first token of a document."""

import pytest
import torch

from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.layer_pattern import expand_layers, format_pattern
from hqlt_lab.model.sequence_model import build_model
from tests.issues import list_codes, raises_issue

SMALL = {"vocabulary": 11, "width": 16, "heads": 2, "mlp_width": 16, "init_std": 0.3}
WINDOWED = {"name": "synchronous", "window": 4}
PATTERNS = [
    ({"repeat": [["a", 3], ["b", 1]]}, ["a", "a", "a", "b"]),
    ({"repeat": [["a", 2]]}, ["a", "a"]),
    ({"default": "a", "at": {}}, ["a"] * 8),
    ({"default": "a", "at": {0: "b", -1: "c"}}, ["b", *["a"] * 6, "c"]),
    ({"default": "a", "at": {"0": "b", "-8": "b", 3: "c"}}, ["b", "a", "a", "c", *["a"] * 4]),
]


@pytest.mark.parametrize(("pattern", "values"), PATTERNS)
def test_pattern_expands_to_a_list(pattern, values):
    assert expand_layers(pattern, 8) == values


def test_lists_and_components_are_not_patterns():
    for value in ("a", ["a", "b"], {"name": "a", "at": 3}, None):
        assert expand_layers(value, 8) is value


def test_model_of_a_pattern_is_that_of_the_list():
    pattern = ModelConfig(
        **SMALL,
        layers=4,
        mixer={"repeat": [["fw_only", 3], ["kv_only", 1]]},
        timing={"default": WINDOWED, "at": {-1: "delayed_chunk"}},
        feature_map={"default": None, "at": {0: "dpfp"}},
        mlp={"default": "none", "at": {1: "gelu"}},
    )
    assert pattern == ModelConfig(
        **SMALL,
        layers=4,
        mixer=["fw_only", "fw_only", "fw_only", "kv_only"],
        timing=[WINDOWED, WINDOWED, WINDOWED, "delayed_chunk"],
        feature_map=["dpfp", None, None, None],
        mlp=["none", "gelu", "none", "none"],
    )


@pytest.mark.parametrize(
    ("value", "path", "code"),
    [
        ({"repeat": [["sum", 3]]}, "mixer.repeat", "layers_not_divisible"),
        ({"repeat": [["sum", 1], ["vectr", 1]]}, "mixer.repeat[1][0]", "unknown_component"),
        ({"repeat": []}, "mixer.repeat", "invalid_layer_pattern"),
        ({"repeat": "sum"}, "mixer.repeat", "invalid_layer_pattern"),
        ({"repeat": [["sum", 3], "sum"]}, "mixer.repeat[1]", "invalid_layer_pattern"),
        ({"repeat": [["sum", 0]]}, "mixer.repeat[0]", "invalid_layer_pattern"),
        ({"repeat": [["sum", True]]}, "mixer.repeat[0]", "invalid_layer_pattern"),
        ({"repeat": [["sum", 2]], "at": {0: "sum"}}, "mixer", "invalid_layer_pattern"),
        ({"repeat": [["sum", 2]], "times": 2}, "mixer.times", "invalid_layer_pattern"),
        ({"at": {0: "sum"}}, "mixer", "invalid_layer_pattern"),
        ({"default": "sum"}, "mixer.at", "invalid_layer_pattern"),
        ({"default": "sum", "at": {"first": "sum"}}, "mixer.at.first", "invalid_layer_pattern"),
        ({"default": "sum", "at": {4: "sum"}}, "mixer.at.4", "layer_out_of_range"),
        ({"default": "sum", "at": {-5: "sum"}}, "mixer.at.-5", "layer_out_of_range"),
        ({"default": "sum", "at": {3: "vector", -1: "static"}}, "mixer.at.-1", "layer_set_twice"),
        ({"default": "sum", "at": {1: "vectr"}}, "mixer.at.1", "unknown_component"),
        ({"default": "smu", "at": {}}, "mixer.default", "unknown_component"),
    ],
)
def test_invalid_pattern_is_reported(value, path, code):
    with raises_issue(path, code):
        ModelConfig(layers=4, mixer=value)


def test_layer_may_be_set_twice_to_the_same_value():
    config = ModelConfig(layers=12, mixer={"default": "fw_only", "at": {0: "kv_only", 11: "kv_only", -1: "kv_only"}})
    assert config.mixer == ["kv_only", *["fw_only"] * 10, "kv_only"]


def test_all_mistakes_of_a_pattern_are_reported_together():
    with raises_issue("mixer.at.9", "layer_out_of_range") as error:
        ModelConfig(layers=4, mixer={"default": "sum", "at": {9: "sum", -9: "sum"}}, mlp=["gelu"] * 3)
    assert list_codes(error.value) == [
        ("mixer.at.9", "layer_out_of_range"),
        ("mixer.at.-9", "layer_out_of_range"),
        ("mlp", "layers_not_divisible"),
    ]


def test_pattern_has_a_short_text():
    assert format_pattern({"repeat": [["a", 3], ["b", 1]]}) == "a*3 + b*1"
    assert format_pattern({"default": "a", "at": {0: "b", -1: "b"}}) == "a(0=b,-1=b)"


LEARNED = {"positions": {"name": "learned", "length": 6}, "layers": 2, "timing": WINDOWED}
TOKENS = torch.arange(18).view(2, 9) % 11


def test_learned_positions_are_one_table_of_the_model():
    model = build_model(**SMALL, **LEARNED)
    names = [name for name, _ in model.named_parameters() if "positions" in name]
    assert names == ["positions.table.weight"]
    assert model.positions.table.weight.std().item() == pytest.approx(0.3, rel=0.3)


def test_learned_positions_reach_layers_without_softmax():
    model = build_model(**SMALL, **LEARNED, mixer="fw_only").double()
    before = model(TOKENS[:, :3])[0]
    with torch.no_grad():
        model.positions.table.weight[0] += 1
    assert (model(TOKENS[:, :3])[0] - before).abs().amax((0, 2)).min() > 0


def test_longer_document_than_learned_positions_is_an_error():
    model = build_model(**SMALL, **LEARNED)
    with raises_issue("positions", "document_longer_than_positions"):
        model(TOKENS[:, :7])
    _, state = model(TOKENS[:, :6])
    with raises_issue("positions", "document_longer_than_positions"):
        model(TOKENS[:, 6:7], state)


def test_learned_positions_count_neither_padding_nor_earlier_documents():
    model = build_model(**SMALL, **LEARNED).double()
    valid_mask = torch.ones(2, 9, dtype=torch.bool)
    valid_mask[:, 5:] = False
    padded, _ = model(TOKENS, layout=Layout(valid_mask=valid_mask))
    torch.testing.assert_close(padded[:, :5], model(TOKENS[:, :5])[0])
    doc_start = torch.zeros(2, 9, dtype=torch.bool)
    doc_start[:, 4] = True
    packed, state = model(TOKENS, layout=Layout(doc_start=doc_start))
    torch.testing.assert_close(packed[:, 4:], model(TOKENS[:, 4:])[0])
    with raises_issue("positions", "document_longer_than_positions"):
        model(TOKENS[:, :2], state)
    doc_start[:, 0] = True
    torch.testing.assert_close(model(TOKENS, state, Layout(doc_start=doc_start))[0], packed)


def test_compiled_model_rejects_a_longer_document_than_its_positions():
    model = build_model(**SMALL, **LEARNED)
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(TOKENS[:, :6])[0], model(TOKENS[:, :6])[0])
    with pytest.raises(RuntimeError, match="more tokens than the 6 positions"):
        compiled(TOKENS[:, :7])
