"""Verdicts as text, for tables and for the answer."""

from hqlt_lab.stats.baseline_differences import Difference

VERDICT_TEXTS = {
    "better": "significantly better",
    "worse": "significantly worse",
    "equivalent": "equivalent",
    "not_significant": "not significant",
}
# note below the table, if a number of seeds is given
SEEDS_ADVICE = (
    "needs about N seeds: with N seeds 80 % of studies are decided, if the true difference is the observed one. Fix "
    "the number of seeds in advance: adding seeds until a difference is significant is optional stopping, with about "
    "10 % false verdicts instead of 5 %. `seeds: {until: decided}` adds seeds and corrects for it."
)
SEEDS_ADVICE_WITH_LOOKS = (
    "needs about N seeds: with N seeds the next look decides 80 % of studies, if the true difference is the observed "
    "one. A larger `seeds.max` adds looks without changing those that were taken."
)


def format_verdict(difference: Difference) -> str:
    """Return e.g. "significantly better", "not significant (needs about 12 seeds)"; empty without a verdict."""
    if difference.verdict is None:
        return ""
    detail = f"needs about {difference.seeds_needed} seeds" if difference.seeds_needed else difference.reason
    return VERDICT_TEXTS[difference.verdict] + (f" ({detail})" if detail else "")
