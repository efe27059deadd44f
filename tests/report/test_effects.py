"""Main effects and interactions, estimated from a grid with known effects."""

import pytest

from hqlt_lab.report.arm_rows import build_rows
from hqlt_lab.report.stats.factorial_effects import estimate_effects

CROSS = "cross: {model.mixer: [sum, scalar, vector]}\n"
ARM_EFFECTS = {"delta": 0.0, "linear": 5.0, "retention": -2.0}
MIXER_EFFECTS = {"sum": 0.0, "scalar": 1.0, "vector": 3.0}


@pytest.fixture
def effects_of(make_experiment, make_record):
    """Return a function that estimates the effects of a synthetic grid.

    A value is the sum of 100, the effects of arm, mixer and seed, and `interaction` for linear with vector.
    """

    def make(interaction=0.0, noise=0.01, seeds=3, missing=()):
        experiment = make_experiment(f"seeds: {seeds}\n{CROSS}")
        records = [
            make_record(
                f"{arm}, mixer={mixer}",
                seed,
                50 + 10 * seed + effect_sum(arm, mixer, interaction) + noise * ((7 * index) % 3),
            )
            for seed in range(seeds)
            for index, (arm, mixer) in enumerate((arm, mixer) for arm in ARM_EFFECTS for mixer in MIXER_EFFECTS)
            if (arm, mixer, seed) not in missing
        ]
        return {effect.levels: effect for effect in estimate_effects(experiment, build_rows(experiment, records))}

    return make


def effect_sum(arm, mixer, interaction):
    return 50 + ARM_EFFECTS[arm] + MIXER_EFFECTS[mixer] + (interaction if (arm, mixer) == ("linear", "vector") else 0.0)


def test_main_effects_are_recovered(effects_of):
    effects = effects_of()
    assert effects["arm=linear",].mean == pytest.approx(5.0, abs=0.02)
    assert effects["mixer=vector",].mean == pytest.approx(3.0, abs=0.02)
    assert effects["mixer=vector",].reference_levels == ("mixer=sum",)
    assert effects["mixer=scalar",].low > 0 and effects["arm=retention",].high < 0
    mains = [levels for levels in effects if len(levels) == 1]
    assert mains == [("arm=linear",), ("arm=retention",), ("mixer=scalar",), ("mixer=vector",)]


def test_without_an_interaction_none_is_estimated(effects_of):
    pairs = {levels: effect for levels, effect in effects_of().items() if len(levels) == 2}
    assert set(pairs) == {
        (f"arm={arm}", f"mixer={mixer}") for arm in ("linear", "retention") for mixer in ("scalar", "vector")
    }
    assert all(abs(effect.mean) < 0.05 for effect in pairs.values())


def test_an_interaction_is_separated_from_main_effects(effects_of):
    effects = effects_of(interaction=6.0)
    assert effects["arm=linear", "mixer=vector"].mean == pytest.approx(6.0, abs=0.05)
    assert effects["arm=linear", "mixer=vector"].low > 0
    # a main effect is the mean over the other factor, and one of three mixers has the interaction
    assert effects["arm=linear",].mean == pytest.approx(5.0 + 6.0 / 3, abs=0.05)
    assert abs(effects["arm=retention", "mixer=vector"].mean) < 0.05


def test_differences_between_seeds_do_not_widen_the_interval(effects_of):
    # seeds differ by 10, which cancels in every contrast
    assert effects_of()["mixer=scalar",].high - effects_of()["mixer=scalar",].low < 0.2


def test_main_effects_and_interactions_share_the_probability_of_a_false_effect(effects_of):
    effects = effects_of()
    for number in (1, 2):
        family = sorted((effect for levels, effect in effects.items() if len(levels) == number), key=lambda e: e.p)
        assert family[0].confidence == pytest.approx(1 - 0.025 / len(family)), "the first step of Holm's method"
    weakest = max((effect for levels, effect in effects.items() if len(levels) == 1), key=lambda effect: effect.p)
    assert weakest.confidence == pytest.approx(0.975), "the last step of Holm's method"


def test_only_seeds_that_finished_the_whole_grid_are_used(effects_of):
    effects = effects_of(missing={("linear", "sum", 2)})
    assert {effect.n for effect in effects.values()} == {2}
    assert effects_of(seeds=1, missing={("delta", "sum", 0)}) == {}


def test_arms_that_do_not_span_a_grid_have_no_effects(make_experiment, make_record):
    for extra in ("seeds: 2\n", "seeds: 2\none_at_a_time: {model.mixer: [sum, scalar]}\n"):
        experiment = make_experiment(extra)
        records = [make_record(arm.title, seed, 1.0 + seed) for arm in experiment.arms for seed in range(2)]
        assert estimate_effects(experiment, build_rows(experiment, records)) == []
