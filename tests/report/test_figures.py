"""Figures show what the numbers say: read back from matplotlib's objects and from the SVG itself."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from hqlt_lab.report.figures.by_length import by_length
from hqlt_lab.report.figures.cost_quality import cost_quality, front
from hqlt_lab.report.figures.draw import draw
from hqlt_lab.report.figures.forest import LOOKS, forest
from hqlt_lab.report.figures.heat_map import heat_map
from hqlt_lab.report.figures.learning_curves import learning_curves
from hqlt_lab.report.figures.long_context import long_context
from hqlt_lab.report.figures.material import MOST_ARMS, Material
from hqlt_lab.report.figures.picture import inline
from hqlt_lab.report.figures.style import INK, PAPER, styled
from hqlt_lab.report.figures.who_does_the_work import who_does_the_work
from hqlt_lab.report.rows import rows_of
from hqlt_lab.train.evaluations import write_evaluation
from hqlt_lab.train.long_context_file import Curve, write_curves
from hqlt_lab.train.probe_file import ProbeFile

VALID = "valid/normalised_accuracy"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def folder(tmp_path):
    """A cell's folder with a curve of the selected metric."""

    def write(name, values, every=10):
        place = tmp_path / name
        place.mkdir()
        lines = [{"step": every * at, "metrics": {VALID: value}} for at, value in enumerate(values, 1)]
        (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return place

    return write


def drawn(figure, experiment, records):
    with styled():
        return figure(Material(experiment, rows_of(experiment, records)))


def named(axes):
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def words(svg):
    return ["".join(text.itertext()).strip() for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_line_is_the_median_over_seeds_and_its_band_reaches_from_the_lowest_to_the_highest(asked, cell, folder):
    curves = [[0.0, 10.0, 20.0], [2.0, 30.0, 40.0], [9.0, 50.0]]  # the last seed ended early
    records = [cell("delta", seed, 5.0, folder=folder(f"d{seed}", curve)) for seed, curve in enumerate(curves)]
    picture = drawn(learning_curves, asked("seeds: 3\n"), records)
    (panel,) = picture.figure.axes
    line = named(panel)["delta"]
    assert list(line.get_xdata()) == [10, 20, 30] and list(line.get_ydata()) == [2.0, 30.0, 30.0]
    band = panel.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == 0.0 and band[:, 1].max() == 50.0
    assert panel.get_title(loc="left") == VALID and "3 seeds per arm" in picture.caption


def test_a_long_curve_is_thinned_and_keeps_its_end(asked, cell, folder):
    record = cell("delta", 0, 5.0, folder=folder("long", range(5000)))
    line = named(drawn(learning_curves, asked(), [record]).figure.axes[0])["delta"]
    assert 100 <= len(line.get_xdata()) <= 200 and line.get_xdata()[-1] == 50000


def test_of_many_arms_the_baseline_and_the_best_are_drawn_and_the_others_are_not_opened(asked, cell, folder, tmp_path):
    names = [f"arm{number}" for number in range(30)]
    arms = ", ".join(f"{name}: {{train.lr: {0.001 + 0.0001 * at}}}" for at, name in enumerate(names))
    experiment = asked("seeds: 1\n", arms=f"arms: {{{arms}}}\n")
    best = {"arm0", *(f"arm{number}" for number in range(30 - MOST_ARMS + 1, 30))}
    records = []
    for at, name in enumerate(names):
        place = folder(name, [1.0, 2.0]) if name in best else tmp_path / "\0 cannot be opened"
        records.append(cell(name, 0, float(at), folder=place))
    picture = drawn(learning_curves, experiment, records)
    assert set(named(picture.figure.axes[0])) == best
    assert "18 arms left out" in picture.caption


def test_an_arm_has_one_colour_in_all_figures(asked, cell, folder):
    lengths = {"test/accuracy/length_3_9": 90.0, "test/accuracy/length_10_20": 60.0}
    records = [
        cell(arm, 0, value, folder=folder(arm, [1.0, 2.0]), parameters=size)
        for arm, value, size in (("delta", 5.0, 100), ("linear", 6.0, 200), ("retention", 7.0, 300))
    ]
    records = [type(one)(**(vars(one) | {"metrics": {**one.metrics, **lengths}})) for one in records]
    figures = [drawn(figure, asked(), records).figure for figure in (learning_curves, by_length, cost_quality)]
    looks = [{name: line.get_color() for name, line in named(figure.axes[0]).items()} for figure in figures]
    assert looks[0] == looks[1] == looks[2] and len(set(looks[0].values())) == 3


def test_the_forest_groups_arms_by_their_baseline_and_colours_verdicts(asked, cell):
    experiment = asked("cross: {model.mixer: [sum, vector]}\nseeds: 3\nmeasure: {margin: 2.0}\n")
    values = {"delta": [50.0, 51.0, 52.0], "linear": [10.0, 11.0, 12.5], "retention": [50.0, 51.5, 51.5]}
    records = [
        cell(f"{arm}, mixer={mixer}", seed, value)
        for mixer in ("sum", "vector")
        for arm, seeds in values.items()
        for seed, value in enumerate(seeds)
    ]
    picture = drawn(forest, experiment, records)
    (panel,) = picture.figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == [
        "against delta · sum", "linear (3)", "retention (3)",
        "against delta · vector", "linear (3)", "retention (3)",
    ]  # fmt: skip
    points = [line for line in panel.lines if line.get_marker() not in ("None", None)]
    assert [line.get_color() for line in points] == [LOOKS["worse"][0], LOOKS["undecided"][0]] * 2
    assert [line.get_xdata()[0] for line in points[:2]] == pytest.approx([-39.83, 0.0], abs=0.01)
    (band,) = panel.patches
    assert (band.get_x(), band.get_width()) == (-2.0, 4.0) and "margin of 2" in picture.caption


def test_the_heat_map_has_a_number_per_arm_and_leaves_what_is_missing_hatched(asked, cell):
    experiment = asked("cross: {model.mixer: [sum, vector]}\nseeds: 1\n")
    records = [
        cell("delta, mixer=sum", 0, 90.0),
        cell("delta, mixer=vector", 0, 10.0),
        cell("linear, mixer=sum", 0, 50.0),
    ]
    picture = drawn(heat_map, experiment, records)
    panel = picture.figure.axes[0]
    assert [text.get_text() for text in panel.texts] == ["90.0", "10.0", "50.0"]
    (mesh,) = panel.collections
    assert mesh.get_array().mask.tolist() == [[False, False], [False, True], [True, True]]
    assert panel.patch.get_hatch() == "////" and "hatched has no result" in picture.caption
    assert [label.get_text() for label in panel.get_xticklabels()] == ["sum", "vector"]


@pytest.mark.parametrize(("metric", "best"), [("test/loss", 0.1), ("test/accuracy", 0.9)])
def test_brighter_is_better_whichever_way_that_is(asked, cell, metric, best):
    experiment = asked(f"cross: {{model.mixer: [sum, vector]}}\nseeds: 1\nmeasure: {{report: [{metric}]}}\n")
    values = {"delta, mixer=sum": 0.1, "linear, mixer=sum": 0.9}
    records = [cell(arm, 0, 1.0, metrics={metric: value}) for arm, value in values.items()]
    mesh = drawn(heat_map, experiment, records).figure.axes[0].collections[0]
    brightness = {value: sum(mesh.cmap(mesh.norm(value))[:3]) for value in values.values()}
    assert max(brightness, key=brightness.get) == best


def test_a_third_factor_makes_panels_and_single_changes_make_no_grid(asked, cell):
    more = "{model.mixer: [sum, vector], model.heads: [1, 2]}\nseeds: 1\n"
    records = [cell(f"delta, mixer=sum, heads={heads}", 0, 5.0) for heads in (1, 2)]
    axes = drawn(heat_map, asked(f"cross: {more}"), records).figure.axes
    assert [panel.get_title(loc="left") for panel in axes[:2]] == ["heads=1", "heads=2"]
    assert (
        drawn(heat_map, asked("one_at_a_time: {model.mixer: [sum], model.heads: [1]}\n"), [cell("delta", 0, 5.0)])
        is None
    )


def test_lengths_that_were_trained_are_grey(asked, cell):
    metrics = {"test/accuracy/length_20_39": 90.0, "test/accuracy/length_40_79": 60.0, "test/accuracy/length_80": 55.0}
    picture = drawn(
        by_length, asked(), [cell("delta", 0, 5.0, metrics=metrics), cell("delta", 1, 5.0, metrics=metrics)]
    )
    (panel,) = picture.figure.axes
    assert panel.patches[0].get_x() + panel.patches[0].get_width() == 20
    assert [label.get_text() for label in panel.get_xticklabels()] == ["20-39", "40-79", "80"]
    assert list(named(panel)["delta"].get_ydata()) == [90.0, 60.0, 55.0]
    assert "3 to 20, were trained" in picture.caption


def test_the_front_holds_what_no_other_arm_beats(asked, cell):
    assert front([(1, 5.0), (2, 4.0), (3, 9.0), (3, 8.0)], upwards=True) == [(1, 5.0), (3, 9.0)]
    assert front([(1, 5.0), (2, 4.0), (3, 9.0)], upwards=False) == [(1, 5.0), (2, 4.0)]
    sizes = {"delta": 1000, "linear": 1001, "retention": 1002}
    same = [cell(arm, 0, 5.0, parameters=size) for arm, size in sizes.items()]
    assert drawn(cost_quality, asked(), same) is None
    states = [
        cell(arm, 0, 5.0, parameters=7, state_bytes=2 * size * size) for arm, size in zip("abc", (1, 2, 3), strict=True)
    ]
    arms = "arms: {a: {}, b: {model.mixer: sum}, c: {model.mixer: scalar}}\n"
    (panel,) = drawn(cost_quality, asked(arms=arms), states).figure.axes
    assert panel.get_xlabel() == "bytes of state" and panel.get_xscale() == "log"


def test_shares_are_means_over_seeds_and_bars_what_is_left_without_a_memory(asked, cell, folder):
    records = [cell("delta", seed, 90.0, folder=folder(f"s{seed}", [])) for seed in (0, 1)]
    for record, share in zip(records, (0.2, 0.6), strict=True):
        ProbeFile(record.folder).add(300, [{"share": [share, None]}, {"share": [1.0, 0.5]}])
        write_evaluation(record.folder, "test", "fw", {"test/normalised_accuracy": 10.0})
    picture = drawn(who_does_the_work, asked(), records)
    shares, _, bars = picture.figure.axes
    np.testing.assert_allclose(shares.collections[0].get_array().filled(np.nan), [[0.4, np.nan], [1.0, 0.5]])
    assert [bar.get_width() for bar in bars.patches] == [90.0, 10.0]
    assert "Share of the fast weights" in picture.caption and "silenced" in picture.caption


def test_the_legend_names_a_lesion_that_the_first_arm_lacks(asked, cell, folder):
    records = [cell(arm, 0, 90.0, folder=folder(arm, [])) for arm in ("delta", "linear")]
    for record, silent in zip(records, (["fw"], ["fw", "kv"]), strict=True):
        for memory in silent:
            write_evaluation(record.folder, "test", memory, {"test/normalised_accuracy": 10.0})
    (part,) = drawn(who_does_the_work, asked(), records).figure.subfigs
    assert [text.get_text() for text in part.legends[0].get_texts()] == ["intact", "without fw", "without kv"]


def test_a_name_that_begins_with_an_underscore_is_in_the_legend(asked, cell, folder):
    arms = "arms: {_plain: {}, other: {model.mixer: sum}}\n"
    records = [cell(arm, 0, 5.0, folder=folder(arm, [1.0, 2.0])) for arm in ("_plain", "other")]
    (legend,) = drawn(learning_curves, asked(arms=arms), records).figure.legends
    assert [text.get_text().strip() for text in legend.get_texts()] == ["_plain", "other"]


def test_a_figure_without_data_is_left_out(asked, cell):
    assert draw(asked(), rows_of(asked(), [])).pictures == []
    done = draw(asked("seeds: 1\n", arms=""), rows_of(asked("seeds: 1\n", arms=""), [cell("base", 0, 5.0)]))
    assert (done.pictures, done.svgs, done.troubles) == ([], {}, [])


def test_a_figure_that_fails_is_a_sentence_and_the_others_stay(asked, cell, folder):
    place = folder("one", [1.0, 2.0])
    (place / "probes.jsonl").write_text('{"step": 1, "layers": 7}\n')
    done = draw(asked(), rows_of(asked(), [cell("delta", 0, 5.0, folder=place)]))
    assert list(done.svgs) == ["learning_curves"]
    (trouble,) = done.troubles
    assert trouble.startswith("The figure who_does_the_work could not be drawn: TypeError")


def test_the_svg_is_the_same_each_time_and_its_letters_are_letters(asked, cell, folder):
    odd = "a $x_1$ <b> & 記憶"
    arms = f"arms: {{'{odd}': {{}}, plain: {{model.mixer: sum}}}}\n"
    records = [cell(odd, 0, 5.0, folder=folder("o", [1.0, 2.0])), cell("plain", 0, 6.0, folder=folder("p", [1.0, 2.0]))]
    first, again = (draw(asked(arms=arms), rows_of(asked(arms=arms), records)) for _ in range(2))
    assert first.svgs == again.svgs and list(first.svgs) == ["forest", "learning_curves"]
    svg = first.svgs["learning_curves"]
    assert odd in words(svg) and "plain" in words(svg)
    title = ElementTree.fromstring(svg).find(f"{SVG}title")
    assert title.text.startswith("How it was learned.") and "2026" not in svg
    assert first.pictures[0].png().startswith(b"\x89PNG")
    page = inline(svg)
    assert INK not in page and PAPER not in page and "currentColor" in page and page.startswith('<svg role="img"')
    ElementTree.fromstring(page)
    assert words(page) == words(svg) and len(page) < 0.9 * len(svg)
    moved = [abs(a - b) for a, b in zip(places(page), places(svg), strict=True)]
    assert len(moved) > 100 and max(moved) <= 0.01


def places(svg):
    """Every coordinate of every line."""
    drawn = (" ".join(line.get("d").split()) for line in ElementTree.fromstring(svg).iter(f"{SVG}path"))
    return [float(number) for path in drawn for number in path.split() if number[-1].isdigit()]


def test_curves_beyond_training_have_a_panel_each_with_the_median_over_seeds(asked, cell, folder):
    records = []
    for seed, loss in enumerate([4.0, 2.0, 3.0]):
        place = folder(f"far{seed}", [1.0])
        curve = Curve(name="loss", along="place", points=[(64, loss), (128, loss - 1)], trained=64)
        write_curves(place, [curve, Curve(name="state_bytes", along="context", points=[(64, 10.0), (128, 900.0)])])
        records.append(cell("delta", seed, 5.0, folder=place))
    losses, states = drawn(long_context, asked("seeds: 3\n"), records).figure.axes
    line = named(losses)["delta"]
    assert list(line.get_xdata()) == [64, 128] and list(line.get_ydata()) == [3.0, 2.0]
    assert [list(line.get_xdata()) for line in losses.lines if line.get_linestyle() == ":"] == [[64, 64]]
    assert losses.get_ylabel() == "loss (nats per token)" and losses.get_yscale() == "linear"
    assert states.get_yscale() == "log" and len(states.lines) == 1
    assert states.yaxis.get_major_formatter()(1000, 0) == "1 kB"  # no formula, which letters would not show
    assert drawn(long_context, asked("seeds: 1\n"), [cell("delta", 0, 5.0, folder=folder("none", [1.0]))]) is None


def test_a_home_that_is_closed_is_nobody_s_trouble():
    """matplotlib would like to keep a list of fonts there, and says so."""
    home = {**os.environ, "HOME": "/sys", "XDG_CONFIG_HOME": "/sys", "XDG_CACHE_HOME": "/sys"}
    script = "import io\nfrom hqlt_lab.report.figures.style import sheet, styled\n"
    script += "with styled(): sheet(3)[0].savefig(io.BytesIO(), format='png')"
    home.pop("MPLCONFIGDIR", None)
    done = subprocess.run([sys.executable, "-c", script], env=home, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
