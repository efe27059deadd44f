"""Run every check of a kind on one component and collect the results.

A check is a function of a `ComponentCase` that raises `CheckFailed`, yields results, or returns None if it passes.  Its
name, with blanks for underscores, is its title in the report.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hqlt_lab.check import common_checks, kind_checks, study_integration_check, task_checks
from hqlt_lab.check.component_under_test import ComponentCase
from hqlt_lab.check.conformance_report import CheckFailed, CheckResult, ComponentUnusable, ConformanceReport
from hqlt_lab.errors import HqltError, RegistryError, format_names
from hqlt_lab.registry import build, find_factory, find_failing_component, parse_spec

Check = Callable[[ComponentCase], Iterator[CheckResult] | None]

CHECKS_BY_KIND: dict[str, tuple[Check, ...]] = {
    "update_rule": (
        kind_checks.gates_are_in_range,
        kind_checks.scan_equals_the_reference,
        kind_checks.an_empty_memory_reads_zero,
    ),
    "attention": (
        kind_checks.methods_return_what_softmax_needs,
        kind_checks.scores_are_finite_for_long_documents,
        kind_checks.backends_equal_the_reference,
    ),
    "timing": (
        kind_checks.returns_a_schedule,
        kind_checks.memories_cover_the_past,
        kind_checks.memories_may_overlap,
        kind_checks.memories_follow_the_schedule,
    ),
    "mixer": (kind_checks.every_read_memory_is_used, kind_checks.weights_reproduce_the_output),
    "positions": (kind_checks.positions_keep_the_shape, kind_checks.positions_are_per_row),
    "feature_map": (kind_checks.features_are_as_declared,),
}
COMMON_CHECKS: tuple[Check, ...] = (
    common_checks.reads_only_the_past,
    common_checks.rows_are_independent,
    common_checks.any_split_gives_the_same_result,
    common_checks.passed_state_is_not_modified,
    common_checks.padding_has_no_effect,
    common_checks.packed_documents_are_independent,
    common_checks.rows_can_be_selected,
    common_checks.state_is_as_large_as_declared,
    common_checks.memories_may_differ_in_size,
    common_checks.keeps_the_dtype,
    common_checks.every_parameter_gets_a_gradient,
    common_checks.own_initialization_is_kept,
    study_integration_check.can_be_used_in_a_study,
)
TASK_CHECKS: tuple[Check, ...] = (
    task_checks.examples_are_reproducible_by_index,
    task_checks.only_training_depends_on_the_seed,
    task_checks.rows_are_padded_on_the_right,
    task_checks.labels_are_inside_their_example,
    task_checks.every_size_occurs,
    task_checks.chance_level_is_as_declared,
    task_checks.examples_can_be_decoded,
    study_integration_check.can_be_used_in_a_study,
)
CHECKED_KINDS = (*CHECKS_BY_KIND, "task")
SLOW_CHECKS: tuple[Check, ...] = (common_checks.combines_with_every_component, common_checks.compiles)


def check_component(kind: str, spec: Any, quick: bool = False) -> ConformanceReport:
    """Run all conformance checks on a component, given by name or as {name: ..., option: ...}.

    `quick` leaves out the two slow checks, crossing with all other components and torch.compile.
    """
    checks, case = select_checks(kind, quick), ComponentCase(kind, *parse_spec(kind, spec))
    if not is_checkable(kind, case.name):
        raise RegistryError.at(
            kind,
            "task_without_checks",
            f"{case.name!r} does not generate its examples, so it cannot be checked.",
            "Check an environment with Gymnasium's check_env, see `lab.gym_environment`.",
        )
    build(kind, case.spec, width=8, heads=2)  # invalid options are an error of the caller, not a failed check
    return ConformanceReport(kind, case.name, tuple(run_checks(checks, case)))


def run_checks(checks: tuple[Check, ...], case: ComponentCase) -> Iterator[CheckResult]:
    """Yield the results of all checks; stop after a failure that makes the others meaningless."""
    for check in checks:
        try:
            yield from run_check(check, case)
        except ComponentUnusable as error:
            yield CheckResult(check_title(check), "failed", f"{error} The other checks were skipped.")
            return


def check_title(check: Check) -> str:
    """Return the title of a check: its function's name with blanks."""
    return check.__name__.replace("_", " ")


def select_checks(kind: str, quick: bool = False) -> tuple[Check, ...]:
    """Return the checks of a kind, its specific ones first.  `quick` leaves out those that take seconds."""
    if kind not in CHECKED_KINDS:
        message = f"there are no checks for {kind!r}."
        raise RegistryError.at("kind", "kind_without_checks", message, f"Kinds: {format_names(CHECKED_KINDS)}.")
    if kind == "task":
        return TASK_CHECKS
    return CHECKS_BY_KIND[kind] + COMMON_CHECKS + (() if quick else SLOW_CHECKS)


def is_checkable(kind: str, name: str) -> bool:
    """Return whether a component can be checked: among tasks, only those that generate their examples."""
    from hqlt_lab.tasks._generated_task import GeneratedTask

    factory = find_factory(kind, name)
    return kind != "task" or (isinstance(factory, type) and issubclass(factory, GeneratedTask))


def run_check(check: Check, case: ComponentCase) -> list[CheckResult]:
    """Return the results of one check; any exception that the component raises is a failure."""
    title = check_title(check)
    try:
        return list(check(case) or [CheckResult(title, "passed")])
    except ComponentUnusable:
        raise
    except CheckFailed as failure:
        return [CheckResult(title, "failed", str(failure))]
    except Exception as error:  # a user's component may raise anything
        return [CheckResult(title, "failed", describe_exception(error))]


def describe_exception(error: Exception) -> str:
    """Return the exception of a component with file and line; errors of the lab are returned as they are."""
    if isinstance(error, HqltError):
        return str(error)
    failure = find_failing_component(error)
    location = f" ({Path(failure.file).name}, line {failure.line})" if failure else ""
    return f"raised {type(error).__name__}: {error}{location}"
