"""Figures show the right values, read back from matplotlib objects and from the SVG."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from hqlt_lab.report.arm_rows import build_rows
from hqlt_lab.report.figures.cost_quality import cost_quality, pareto_front
from hqlt_lab.report.figures.draw_figures import draw_figures
from hqlt_lab.report.figures.drawn_arms import MAX_ARMS, DrawnArms
from hqlt_lab.report.figures.forest_plot import VERDICT_STYLES, forest
from hqlt_lab.report.figures.heat_map import heat_map
from hqlt_lab.report.figures.learning_curves import learning_curves
from hqlt_lab.report.figures.length_generalization import length_generalization
from hqlt_lab.report.figures.long_context_curves import long_context
from hqlt_lab.report.figures.memory_contribution import memory_contribution
from hqlt_lab.report.figures.report_figure import inline_svg
from hqlt_lab.report.figures.style import BACKGROUND, FOREGROUND, style_context
from hqlt_lab.rundir.diagnostics import ProbeWriter
from hqlt_lab.rundir.evaluations import LongContextCurve, write_evaluation, write_long_context_curves

VALID = "valid/normalized_accuracy"
SVG = "{http://www.w3.org/2000/svg}"


def draw(draw_figure, experiment, records):
    with style_context():
        return draw_figure(DrawnArms(experiment, build_rows(experiment, records)))


def lines_by_label(axes):
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def svg_texts(svg):
    return ["".join(text.itertext()).strip() for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_line_is_the_median_over_seeds_and_its_band_spans_all_seeds(make_experiment, make_record, make_folder):
    curves = [[0.0, 10.0, 20.0], [2.0, 30.0, 40.0], [9.0, 50.0]]  # the last seed ended early
    records = [
        make_record("delta", seed, 5.0, folder=make_folder(f"d{seed}", curve)) for seed, curve in enumerate(curves)
    ]
    report_figure = draw(learning_curves, make_experiment("seeds: 3\n"), records)
    (panel,) = report_figure.figure.axes
    line = lines_by_label(panel)["delta"]
    assert list(line.get_xdata()) == [10, 20, 30] and list(line.get_ydata()) == [2.0, 30.0, 30.0]
    band = panel.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == 0.0 and band[:, 1].max() == 50.0
    assert panel.get_title(loc="left") == VALID and "3 seeds per arm" in report_figure.caption


def test_a_long_curve_is_thinned_and_keeps_its_last_point(make_experiment, make_record, make_folder):
    record = make_record("delta", 0, 5.0, folder=make_folder("long", range(5000)))
    line = lines_by_label(draw(learning_curves, make_experiment(), [record]).figure.axes[0])["delta"]
    assert 100 <= len(line.get_xdata()) <= 200 and line.get_xdata()[-1] == 50000


def test_of_many_arms_only_the_baseline_and_the_best_are_read_and_drawn(
    make_experiment, make_record, make_folder, tmp_path
):
    names = [f"arm{number}" for number in range(30)]
    arms = ", ".join(f"{name}: {{train.lr: {0.001 + 0.0001 * number}}}" for number, name in enumerate(names))
    experiment = make_experiment("seeds: 1\n", arms=f"arms: {{{arms}}}\n")
    drawn_arms = {"arm0", *(f"arm{number}" for number in range(30 - MAX_ARMS + 1, 30))}
    records = []
    for number, name in enumerate(names):
        folder = make_folder(name, [1.0, 2.0]) if name in drawn_arms else tmp_path / "\0 cannot be opened"
        records.append(make_record(name, 0, float(number), folder=folder))
    report_figure = draw(learning_curves, experiment, records)
    assert set(lines_by_label(report_figure.figure.axes[0])) == drawn_arms
    assert "18 arms omitted" in report_figure.caption


def test_an_arm_has_the_same_color_in_all_figures(make_experiment, make_record, make_folder):
    lengths = {"test/accuracy/length_3_9": 90.0, "test/accuracy/length_10_20": 60.0}
    records = [
        make_record(arm, 0, value, folder=make_folder(arm, [1.0, 2.0]), parameters=size)
        for arm, value, size in (("delta", 5.0, 100), ("linear", 6.0, 200), ("retention", 7.0, 300))
    ]
    records = [type(record)(**(vars(record) | {"metrics": {**record.metrics, **lengths}})) for record in records]
    figures = [
        draw(figure, make_experiment(), records).figure
        for figure in (learning_curves, length_generalization, cost_quality)
    ]
    colors = [{name: line.get_color() for name, line in lines_by_label(figure.axes[0]).items()} for figure in figures]
    assert colors[0] == colors[1] == colors[2] and len(set(colors[0].values())) == 3


def test_the_forest_plot_groups_arms_by_baseline_and_colors_verdicts(make_experiment, make_record):
    experiment = make_experiment("cross: {model.mixer: [sum, vector]}\nseeds: 3\nmeasure: {margin: 2.0}\n")
    values = {"delta": [50.0, 51.0, 52.0], "linear": [10.0, 11.0, 12.5], "retention": [50.0, 51.5, 51.5]}
    records = [
        make_record(f"{arm}, mixer={mixer}", seed, value)
        for mixer in ("sum", "vector")
        for arm, seeds in values.items()
        for seed, value in enumerate(seeds)
    ]
    report_figure = draw(forest, experiment, records)
    (panel,) = report_figure.figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == [
        "baseline: delta · sum", "linear (3)", "retention (3)",
        "baseline: delta · vector", "linear (3)", "retention (3)",
    ]  # fmt: skip
    points = [line for line in panel.lines if line.get_marker() not in ("None", None)]
    assert [line.get_color() for line in points] == [
        VERDICT_STYLES["worse"][0],
        VERDICT_STYLES["equivalent"][0],
    ] * 2
    assert [line.get_xdata()[0] for line in points[:2]] == pytest.approx([-39.83, 0.0], abs=0.01)
    (band,) = panel.patches
    assert (band.get_x(), band.get_width()) == (-2.0, 4.0) and "margin of 2" in report_figure.caption
    assert report_figure.caption.startswith("Of 4 differences, 2 are significantly worse and 2 are equivalent. ")


def test_the_heat_map_shows_a_value_per_arm_and_hatches_missing_ones(make_experiment, make_record):
    experiment = make_experiment("cross: {model.mixer: [sum, vector]}\nseeds: 1\n")
    records = [
        make_record("delta, mixer=sum", 0, 90.0),
        make_record("delta, mixer=vector", 0, 10.0),
        make_record("linear, mixer=sum", 0, 50.0),
    ]
    report_figure = draw(heat_map, experiment, records)
    panel = report_figure.figure.axes[0]
    assert [text.get_text() for text in panel.texts] == ["90.0", "10.0", "50.0"]
    (mesh,) = panel.collections
    assert mesh.get_array().mask.tolist() == [[False, False], [False, True], [True, True]]
    assert panel.patch.get_hatch() == "////" and "hatched fields have no result" in report_figure.caption
    assert "Highest: delta, sum (90.0); lowest: delta, vector (10.0). " in report_figure.caption
    assert [label.get_text() for label in panel.get_xticklabels()] == ["sum", "vector"]


@pytest.mark.parametrize(("metric", "best"), [("test/loss", 0.1), ("test/accuracy", 0.9)])
def test_better_values_are_brighter_for_both_directions(make_experiment, make_record, metric, best):
    experiment = make_experiment(f"cross: {{model.mixer: [sum, vector]}}\nseeds: 1\nmeasure: {{report: [{metric}]}}\n")
    values = {"delta, mixer=sum": 0.1, "linear, mixer=sum": 0.9}
    records = [make_record(arm, 0, 1.0, metrics={metric: value}) for arm, value in values.items()]
    mesh = draw(heat_map, experiment, records).figure.axes[0].collections[0]
    brightness = {value: sum(mesh.cmap(mesh.norm(value))[:3]) for value in values.values()}
    assert max(brightness, key=brightness.get) == best


def test_a_third_factor_makes_panels_and_single_changes_have_no_heat_map(make_experiment, make_record):
    cross = "{model.mixer: [sum, vector], model.heads: [1, 2]}\nseeds: 1\n"
    records = [make_record(f"delta, mixer=sum, heads={heads}", 0, 5.0) for heads in (1, 2)]
    axes = draw(heat_map, make_experiment(f"cross: {cross}"), records).figure.axes
    assert [panel.get_title(loc="left") for panel in axes[:2]] == ["heads=1", "heads=2"]
    assert (
        draw(
            heat_map,
            make_experiment("one_at_a_time: {model.mixer: [sum], model.heads: [1]}\n"),
            [make_record("delta", 0, 5.0)],
        )
        is None
    )


def test_trained_lengths_are_gray(make_experiment, make_record):
    metrics = {"test/accuracy/length_20_39": 90.0, "test/accuracy/length_40_79": 60.0, "test/accuracy/length_80": 55.0}
    report_figure = draw(
        length_generalization,
        make_experiment(),
        [make_record("delta", 0, 5.0, metrics=metrics), make_record("delta", 1, 5.0, metrics=metrics)],
    )
    (panel,) = report_figure.figure.axes
    assert panel.patches[0].get_x() + panel.patches[0].get_width() == 20
    assert [label.get_text() for label in panel.get_xticklabels()] == ["20-39", "40-79", "80"]
    assert list(lines_by_label(panel)["delta"].get_ydata()) == [90.0, 60.0, 55.0]
    assert "training lengths, 3 to 20" in report_figure.caption
    assert "Highest median" not in report_figure.caption


def test_captions_name_the_arms_with_the_best_curves(make_experiment, make_record, make_folder):
    curves = {"delta": ([50.0, 90.0], 60.0), "linear": ([70.0, 40.0], 60.01)}
    records = [
        make_record(
            arm,
            0,
            5.0,
            folder=make_folder(arm, valid),
            metrics={"test/accuracy/length_3_9": 90.0, "test/accuracy/length_10_20": test},
        )
        for arm, (valid, test) in curves.items()
    ]
    experiment = make_experiment("seeds: 1\n")
    caption = draw(learning_curves, experiment, records).caption
    assert f" Highest median of {VALID} at the end: 90.0 (delta)." in caption
    caption = draw(length_generalization, experiment, records).caption
    assert " Highest median at lengths 10-20: 60.0 (delta and linear)." in caption


def test_the_caption_of_costs_names_the_arms_on_the_front(make_experiment, make_record):
    records = [
        make_record(arm, 0, value, parameters=parameters, state_bytes=10, flops_per_token=10)
        for arm, value, parameters in (("delta", 50.0, 100), ("linear", 40.0, 200), ("retention", 60.0, 300))
    ]
    caption = draw(cost_quality, make_experiment("seeds: 1\n"), records).caption
    assert "On the front: delta and retention (parameters)." in caption


def test_the_pareto_front_holds_arms_that_no_other_arm_beats(make_experiment, make_record):
    assert pareto_front([(1, 5.0), (2, 4.0), (3, 9.0), (3, 8.0)], higher_is_better=True) == [(1, 5.0), (3, 9.0)]
    assert pareto_front([(1, 5.0), (2, 4.0), (3, 9.0)], higher_is_better=False) == [(1, 5.0), (2, 4.0)]
    sizes = {"delta": 1000, "linear": 1001, "retention": 1002}
    similar_sizes = [make_record(arm, 0, 5.0, parameters=size) for arm, size in sizes.items()]
    assert draw(cost_quality, make_experiment(), similar_sizes) is None
    different_states = [
        make_record(arm, 0, 5.0, parameters=7, state_bytes=2 * size * size)
        for arm, size in zip("abc", (1, 2, 3), strict=True)
    ]
    arms = "arms: {a: {}, b: {model.mixer: sum}, c: {model.mixer: scalar}}\n"
    (panel,) = draw(cost_quality, make_experiment(arms=arms), different_states).figure.axes
    assert panel.get_xlabel() == "bytes of state" and panel.get_xscale() == "log"


def test_shares_are_means_over_seeds_and_bars_are_scores_without_a_memory(make_experiment, make_record, make_folder):
    records = [make_record("delta", seed, 90.0, folder=make_folder(f"s{seed}", [])) for seed in (0, 1)]
    for record, share in zip(records, (0.2, 0.6), strict=True):
        ProbeWriter(record.folder).write_table(300, [{"share": [share, None]}, {"share": [1.0, 0.5]}])
        write_evaluation(record.folder, "test", "fw", {"test/normalized_accuracy": 10.0})
    report_figure = draw(memory_contribution, make_experiment(), records)
    shares, _, bars = report_figure.figure.axes
    np.testing.assert_allclose(shares.collections[0].get_array().filled(np.nan), [[0.4, np.nan], [1.0, 0.5]])
    assert [bar.get_width() for bar in bars.patches] == [90.0, 10.0]
    assert "share of the fast weights" in report_figure.caption and "lesion" in report_figure.caption


def test_the_legend_names_a_lesion_that_the_first_arm_lacks(make_experiment, make_record, make_folder):
    records = [make_record(arm, 0, 90.0, folder=make_folder(arm, [])) for arm in ("delta", "linear")]
    for record, lesions in zip(records, (["fw"], ["fw", "kv"]), strict=True):
        for memory in lesions:
            write_evaluation(record.folder, "test", memory, {"test/normalized_accuracy": 10.0})
    (subfigure,) = draw(memory_contribution, make_experiment(), records).figure.subfigs
    assert [text.get_text() for text in subfigure.legends[0].get_texts()] == ["intact", "without fw", "without kv"]


def test_a_name_that_begins_with_an_underscore_is_in_the_legend(make_experiment, make_record, make_folder):
    arms = "arms: {_plain: {}, other: {model.mixer: sum}}\n"
    records = [make_record(arm, 0, 5.0, folder=make_folder(arm, [1.0, 2.0])) for arm in ("_plain", "other")]
    (legend,) = draw(learning_curves, make_experiment(arms=arms), records).figure.legends
    assert [text.get_text().strip() for text in legend.get_texts()] == ["_plain", "other"]


def test_a_figure_without_data_is_omitted(make_experiment, make_record):
    assert draw_figures(make_experiment(), build_rows(make_experiment(), [])).figures == []
    figure_set = draw_figures(
        make_experiment("seeds: 1\n", arms=""),
        build_rows(make_experiment("seeds: 1\n", arms=""), [make_record("base", 0, 5.0)]),
    )
    assert (figure_set.figures, figure_set.svgs, figure_set.errors) == ([], {}, [])


def test_a_failing_figure_becomes_an_error_message_and_the_others_are_drawn(make_experiment, make_record, make_folder):
    folder = make_folder("one", [1.0, 2.0])
    (folder / "probes.jsonl").write_text('{"step": 1, "layers": 7}\n')
    figure_set = draw_figures(
        make_experiment(), build_rows(make_experiment(), [make_record("delta", 0, 5.0, folder=folder)])
    )
    assert list(figure_set.svgs) == ["learning_curves"]
    (error,) = figure_set.errors
    assert error.startswith("The figure memory_contribution could not be drawn: TypeError")


def test_the_svg_is_deterministic_and_keeps_text_as_text(make_experiment, make_record, make_folder):
    special = "a $x_1$ <b> & 記憶"
    arms = f"arms: {{'{special}': {{}}, plain: {{model.mixer: sum}}}}\n"
    records = [
        make_record(special, 0, 5.0, folder=make_folder("o", [1.0, 2.0])),
        make_record("plain", 0, 6.0, folder=make_folder("p", [1.0, 2.0])),
    ]
    first, second = (
        draw_figures(make_experiment(arms=arms), build_rows(make_experiment(arms=arms), records)) for _ in range(2)
    )
    assert first.svgs == second.svgs and list(first.svgs) == ["forest", "learning_curves"]
    svg = first.svgs["learning_curves"]
    assert special in svg_texts(svg) and "plain" in svg_texts(svg)
    title = ElementTree.fromstring(svg).find(f"{SVG}title")
    assert title.text.startswith("Learning curves.") and "2026" not in svg
    assert first.figures[0].to_png().startswith(b"\x89PNG")
    inline = inline_svg(svg)
    assert (
        FOREGROUND not in inline
        and BACKGROUND not in inline
        and "currentColor" in inline
        and inline.startswith('<svg role="img"')
    )
    ElementTree.fromstring(inline)
    assert svg_texts(inline) == svg_texts(svg) and len(inline) < 0.9 * len(svg)
    shifts = [abs(a - b) for a, b in zip(path_coordinates(inline), path_coordinates(svg), strict=True)]
    assert len(shifts) > 100 and max(shifts) <= 0.01


def path_coordinates(svg):
    """Return all coordinates of all paths."""
    paths = (" ".join(line.get("d").split()) for line in ElementTree.fromstring(svg).iter(f"{SVG}path"))
    return [float(number) for path in paths for number in path.split() if number[-1].isdigit()]


def test_each_long_context_curve_has_a_panel_with_the_median_over_seeds(make_experiment, make_record, make_folder):
    records = []
    for seed, loss in enumerate([4.0, 2.0, 3.0]):
        folder = make_folder(f"far{seed}", [1.0])
        curve = LongContextCurve(name="loss", axis="position", points=[(64, loss), (128, loss - 1)], trained=64)
        write_long_context_curves(
            folder, [curve, LongContextCurve(name="state_bytes", axis="context", points=[(64, 10.0), (128, 900.0)])]
        )
        records.append(make_record("delta", seed, 5.0, folder=folder))
    losses, states = draw(long_context, make_experiment("seeds: 3\n"), records).figure.axes
    line = lines_by_label(losses)["delta"]
    assert list(line.get_xdata()) == [64, 128] and list(line.get_ydata()) == [3.0, 2.0]
    assert [list(line.get_xdata()) for line in losses.lines if line.get_linestyle() == ":"] == [[64, 64]]
    assert losses.get_ylabel() == "loss (nats per token)" and losses.get_yscale() == "linear"
    assert states.get_yscale() == "log" and len(states.lines) == 1
    assert (
        states.yaxis.get_major_formatter()(1000, 0) == "1 kB"
    )  # not a mathtext formula, which would not be shown as text
    assert (
        draw(
            long_context,
            make_experiment("seeds: 1\n"),
            [make_record("delta", 0, 5.0, folder=make_folder("none", [1.0]))],
        )
        is None
    )


def test_an_unwritable_home_folder_causes_no_warning():
    """matplotlib warns if it cannot cache its list of fonts there; the warning is suppressed."""
    environment = {**os.environ, "HOME": "/sys", "XDG_CONFIG_HOME": "/sys", "XDG_CACHE_HOME": "/sys"}
    script = "import io\nfrom hqlt_lab.report.figures.style import create_figure, style_context\n"
    script += "with style_context(): create_figure(3)[0].savefig(io.BytesIO(), format='png')"
    environment.pop("MPLCONFIGDIR", None)
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
