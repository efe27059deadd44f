"""Main effects and interactions of a grid, against a grid made of known ones."""

import pytest

from hqlt_lab.report.effects import effects_of
from hqlt_lab.report.rows import rows_of

CROSS = "cross: {model.mixer: [sum, scalar, vector]}\n"
ARM = {"delta": 0.0, "linear": 5.0, "retention": -2.0}
MIXER = {"sum": 0.0, "scalar": 1.0, "vector": 3.0}


@pytest.fixture
def found(asked, cell):
    """The effects of a grid: base 50, the arm's, the mixer's, `together` for linear with vector, a seed's own."""

    def make(together=0.0, noise=0.01, seeds=3, without=()):
        experiment = asked(f"seeds: {seeds}\n{CROSS}")
        records = [
            cell(
                f"{arm}, mixer={mixer}", seed, 50 + 10 * seed + value(arm, mixer, together) + noise * ((7 * place) % 3)
            )
            for seed in range(seeds)
            for place, (arm, mixer) in enumerate((arm, mixer) for arm in ARM for mixer in MIXER)
            if (arm, mixer, seed) not in without
        ]
        return {effect.levels: effect for effect in effects_of(experiment, rows_of(experiment, records))}

    return make


def value(arm, mixer, together):
    return 50 + ARM[arm] + MIXER[mixer] + (together if (arm, mixer) == ("linear", "vector") else 0.0)


def test_main_effects_are_what_the_grid_is_made_of(found):
    effects = found()
    assert effects["arm=linear",].mean == pytest.approx(5.0, abs=0.02)
    assert effects["mixer=vector",].mean == pytest.approx(3.0, abs=0.02)
    assert effects["mixer=vector",].against == ("mixer=sum",)
    assert effects["mixer=scalar",].low > 0 and effects["arm=retention",].high < 0
    mains = [levels for levels in effects if len(levels) == 1]
    assert mains == [("arm=linear",), ("arm=retention",), ("mixer=scalar",), ("mixer=vector",)]


def test_without_an_interaction_none_is_found(found):
    pairs = {levels: effect for levels, effect in found().items() if len(levels) == 2}
    assert set(pairs) == {
        (f"arm={arm}", f"mixer={mixer}") for arm in ("linear", "retention") for mixer in ("scalar", "vector")
    }
    assert all(abs(effect.mean) < 0.05 for effect in pairs.values())


def test_an_interaction_is_told_from_two_main_effects(found):
    effects = found(together=6.0)
    assert effects["arm=linear", "mixer=vector"].mean == pytest.approx(6.0, abs=0.05)
    assert effects["arm=linear", "mixer=vector"].low > 0
    # a main effect is the mean over the other factor: one of three mixers has the bonus
    assert effects["arm=linear",].mean == pytest.approx(5.0 + 6.0 / 3, abs=0.05)
    assert abs(effects["arm=retention", "mixer=vector"].mean) < 0.05


def test_the_contrast_is_within_a_seed(found):
    # seeds differ by 10, which no contrast sees
    assert found()["mixer=scalar",].high - found()["mixer=scalar",].low < 0.2


def test_main_effects_and_interactions_are_corrected_apart(found):
    effects = found()
    assert min(effect.confidence for levels, effect in effects.items() if len(levels) == 1) >= 1 - 0.05 / 4 - 0.05
    weakest = max((effect for levels, effect in effects.items() if len(levels) == 1), key=lambda effect: effect.p)
    assert weakest.confidence == pytest.approx(0.95), "the last of Holm's steps"


def test_only_seeds_that_finished_the_whole_grid_count(found):
    effects = found(without={("linear", "sum", 2)})
    assert {effect.n for effect in effects.values()} == {2}
    assert found(seeds=1, without={("delta", "sum", 0)}) == {}


def test_what_is_no_grid_has_no_effects(asked, cell):
    for more in ("seeds: 2\n", "seeds: 2\none_at_a_time: {model.mixer: [sum, scalar]}\n"):
        experiment = asked(more)
        records = [cell(arm.title, seed, 1.0 + seed) for arm in experiment.arms for seed in range(2)]
        assert effects_of(experiment, rows_of(experiment, records)) == []
