"""Runs every check of a kind on one part and gathers what it found.

A check is a function of the subject that raises `Broken` with a sentence, or yields lines; its promise is its name.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hqlt_lab.check import for_all, for_layouts, for_others, for_rules, for_tasks, for_timings
from hqlt_lab.check.report import Broken, Line, Report, Unusable
from hqlt_lab.check.subject import Subject
from hqlt_lab.errors import HqltError, RegistryError, listed
from hqlt_lab.registry import blamed, build, find, split

Check = Callable[[Subject], Iterator[Line] | None]

OF_ITS_KIND: dict[str, tuple[Check, ...]] = {
    "update_rule": (
        for_rules.gates_are_in_range,
        for_rules.scan_is_the_reference,
        for_rules.an_empty_memory_reads_zero,
    ),
    "timing": (
        for_timings.makes_a_schedule,
        for_timings.together_they_hold_the_past,
        for_timings.delayed_means_once,
        for_timings.memories_see_what_it_says,
    ),
    "mixer": (for_others.mixes_what_it_reads, for_others.weights_explain_the_answer),
    "positions": (for_others.positions_keep_the_shape, for_others.positions_are_per_row),
    "feature_map": (for_others.features_keep_their_promise,),
}
OF_ALL: tuple[Check, ...] = (
    for_all.reads_only_the_past,
    for_all.rows_know_nothing_of_each_other,
    for_all.any_split_is_the_whole,
    for_all.leaves_the_given_state_alone,
    for_layouts.padding_changes_nothing,
    for_layouts.documents_are_read_as_if_alone,
    for_layouts.rows_can_be_selected,
    for_layouts.state_is_as_large_as_declared,
    for_all.keeps_the_dtype,
    for_all.every_parameter_learns,
    for_all.own_initialisation_survives,
)
OF_TASKS: tuple[Check, ...] = (
    for_tasks.examples_are_numbered,
    for_tasks.training_varies_and_tests_do_not,
    for_tasks.rows_are_padded_on_the_right,
    for_tasks.answers_stand_at_tokens_that_are_read,
    for_tasks.every_size_occurs,
    for_tasks.guessing_is_what_chance_says,
    for_tasks.examples_can_be_read_by_people,
)
CHECKED = (*OF_ITS_KIND, "task")
SLOW: tuple[Check, ...] = (for_all.crosses_with_every_part, for_all.compiles)


def check_part(kind: str, spec: Any, quick: bool = False) -> Report:
    """Put a part, by name or as {name: ..., option: ...}, through the checks of its kind, the slow ones too."""
    all_of_them, subject = checks(kind, quick), Subject(kind, *split(kind, spec))
    if not is_checked(kind, subject.name):
        raise RegistryError(
            f"{kind} {subject.name!r}: the kit checks tasks that write their examples themselves; "
            "a world is for Gymnasium's check_env, see `lab.gym_world`."
        )
    build(kind, subject.spec, width=8, heads=2)  # options it refuses are the caller's mistake, not the part's
    return Report(kind, subject.name, tuple(lines(all_of_them, subject)))


def lines(all_of_them: tuple[Check, ...], subject: Subject) -> Iterator[Line]:
    """Check by check, as far as that makes sense."""
    for check in all_of_them:
        try:
            yield from outcome(check, subject)
        except Unusable as broken:
            yield Line(promise_of(check), "failed", f"{broken} Nothing else was tried.")
            return


def promise_of(check: Check) -> str:
    """What a check looks at, in words."""
    return check.__name__.replace("_", " ")


def checks(kind: str, quick: bool = False) -> tuple[Check, ...]:
    """All checks of that kind, its own first.  The slow ones take seconds, not milliseconds."""
    if kind not in CHECKED:
        raise RegistryError(f"The kit checks {listed(CHECKED)}; it knows nothing of {kind!r}.")
    if kind == "task":
        return OF_TASKS
    return OF_ITS_KIND[kind] + OF_ALL + (() if quick else SLOW)


def is_checked(kind: str, name: str) -> bool:
    """Of tasks, those whose examples come from a counter."""
    from hqlt_lab.tasks._generated import Generated

    maker = find(kind, name)
    return kind != "task" or (isinstance(maker, type) and issubclass(maker, Generated))


def outcome(check: Check, subject: Subject) -> list[Line]:
    """One check's lines.  A part that raises where it should answer is broken too."""
    promise = promise_of(check)
    try:
        return list(check(subject) or [Line(promise, "passed")])
    except Unusable:
        raise
    except Broken as broken:
        return [Line(promise, "failed", str(broken))]
    except Exception as error:  # whatever an outside part may raise
        return [Line(promise, "failed", raised(error))]


def raised(error: Exception) -> str:
    """What a part raised, and at which line of its file; the lab's complaints speak for themselves."""
    if isinstance(error, HqltError):
        return str(error)
    blame = blamed(error)
    at = f" ({Path(blame.file).name}, line {blame.line})" if blame else ""
    return f"it raised {type(error).__name__}: {error}{at}"
