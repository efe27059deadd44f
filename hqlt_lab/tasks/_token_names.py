"""Names of the tokens of a task.  They are cached, because thousands of names take long to format."""

from functools import lru_cache


@lru_cache(64)
def name_tokens(fixed: tuple[str, ...], *numbered: tuple[str, int]) -> tuple[str, ...]:
    """Return names such as (_, ., k0, k1, v0) for the fixed tokens (_, .) and the kinds (k, 2) and (v, 1)."""
    return (*fixed, *(f"{prefix}{number}" for prefix, count in numbered for number in range(count)))
