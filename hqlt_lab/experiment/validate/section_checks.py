"""Check the sections of an experiment file: their types, published rows, compositions and evaluation tasks.

Each check adds the issues that it finds to an IssueCollector, so that one error reports all of them.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from hqlt_lab.errors import ConfigError, ConfigIssue, did_you_mean, format_names, issues_under, join_sentences
from hqlt_lab.experiment.expand_cells import iter_points
from hqlt_lab.experiment.fill_defaults import fill_component
from hqlt_lab.experiment.parse_axes import parse_grid, parse_tune, require_path_mapping
from hqlt_lab.experiment.validate.arm_checks import CompositionChecker
from hqlt_lab.experiment.validate.issue_collector import IssueCollector
from hqlt_lab.experiment.validate.metric_names import RequestedMetrics
from hqlt_lab.experiment.yaml.interpolation import has_interpolation
from hqlt_lab.model.config import COMPONENT_KINDS
from hqlt_lab.model.layer_pattern import find_form_issues, iter_layer_values
from hqlt_lab.registry import parse_settings

if TYPE_CHECKING:
    from hqlt_lab.experiment.load_experiment import Arm, Experiment

Settings = TypeVar("Settings")
PUBLISHED_STATISTICS = ("best", "median", "mean", "mad", "std", "seeds")  # allowed keys of a published result


def select_valid_sections(config: Mapping[str, Any], collector: IssueCollector) -> dict[str, Any]:
    """Return the sections that must be mappings, without invalid entries, for which issues are added."""
    entry_names = {"arms": "named changes", "published": "arms", "quoted": "rows"}
    valid: dict[str, Any] = {}
    for section in (section for section in entry_names if section in config):
        value = config[section]
        valid[section] = value if isinstance(value, Mapping) else {}
        if not isinstance(value, Mapping):
            message = f"a mapping of {entry_names[section]} is needed, got {value!r}."
            collector.add(ConfigIssue(section, "not_a_mapping_of_entries", message))
    for section in (section for section in ("cross", "one_at_a_time", "tune") if section in config):
        axes = collector.call_and_collect(require_path_mapping, config[section], section) or {}
        parse = parse_tune if section == "tune" else partial(parse_grid, location=section)
        valid[section] = {
            path: values for path, values in axes.items() if collector.call_and_collect(parse, {path: values})
        }
    return valid


def check_titles(experiment: "Experiment", collector: IssueCollector) -> None:
    """Check that the titles of all arms differ: results are grouped and shown by title."""
    arms: dict[str, Arm] = {}
    for arm in experiment.arms:
        if (other := arms.setdefault(arm.title, arm)) is not arm:
            other_paths = (other.location,) if other.name != arm.name else ()
            message, hint = "two arms have the same title.", "Rename one of them, or change a value that is crossed."
            collector.add(ConfigIssue(arm.location, "same_title", message, hint, (arm.title,), other_paths))


def check_published_rows(experiment: "Experiment", collector: IssueCollector) -> None:
    """Check that published results belong to existing arms, and that published and quoted values are numbers."""
    titles = [arm.title for arm in experiment.arms]
    unknown = [name for name in experiment.published if name not in titles]
    for name in () if collector.has_issue_in("arms", "cross", "one_at_a_time") else unknown:
        hint = join_sentences(did_you_mean(name, titles), f"Arms: {format_names(titles)}.")
        collector.add(ConfigIssue(f"published.{name}", "unknown_arm", f"no arm is called {name!r}.", hint))
    for section, rows in (("published", experiment.published), ("quoted", experiment.quoted)):
        for name, metrics in rows.items():
            if not isinstance(metrics, Mapping) or not all(isinstance(value, Mapping) for value in metrics.values()):
                message = f"{{metric: {{best: 100.0, median: ..., mad: ...}}}} is needed, got {metrics!r}."
                collector.add(ConfigIssue(f"{section}.{name}", "not_a_mapping_of_metrics", message))
                continue
            for metric, numbers in metrics.items():
                collector.add(*(issue.under(f"{section}.{name}.{metric}") for issue in find_number_issues(numbers)))


def find_number_issues(numbers: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    """Yield one issue for each invalid entry of a published result."""
    for key, value in numbers.items():
        if key not in PUBLISHED_STATISTICS:
            hint = join_sentences(
                did_you_mean(str(key), PUBLISHED_STATISTICS), f"Statistics: {format_names(PUBLISHED_STATISTICS)}."
            )
            yield ConfigIssue(str(key), "unknown_statistic", "there is no such statistic.", hint)
        elif type(value) not in (int, float):
            hint = "Leave out what was not published."
            yield ConfigIssue(str(key), "not_a_number", f"a number is needed, got {value!r}.", hint)


def find_looks_issues(experiment: "Experiment") -> Iterator[ConfigIssue]:
    """Yield what prevents verdicts from deciding the number of seeds (`seeds: {until: decided}`)."""
    if not experiment.looks:
        return
    if len(experiment.arms) < 2:
        message, hint = "there is one arm, so no comparison can be decided.", "Set a fixed number of seeds."
        yield ConfigIssue("seeds", "nothing_to_decide", message, hint)
    reported = [seed for seed in experiment.tune_seeds if experiment.tune and seed in experiment.seeds]
    if reported:
        message = f"seeds used for tuning cannot be reported too: {format_names(map(str, reported))}."
        hint = f"List seeds from {len(experiment.seeds)} on, or set only their number."
        yield ConfigIssue("tune_seeds", "tune_seed_reported", message, hint)
    metric = experiment.measure.primary_metric
    if "eval/" in metric:
        message = f"the first metric decides how many seeds are trained, but {metric!r} is computed after training."
        yield ConfigIssue("measure.report", "decided_by_lm_eval", message, "Set a fixed number of seeds.")


def check_compositions(experiment: "Experiment", metrics: RequestedMetrics, collector: IssueCollector) -> None:
    """Check that every arm can be built at every tuned point, and that no two compositions are identical."""
    checker = CompositionChecker(experiment, metrics)
    issue_arms: dict[ConfigIssue, dict[str, Arm]] = {}  # issue -> the arms that have it, by title
    warning_arms: dict[ConfigIssue, dict[str, Arm]] = {}
    for arm in experiment.arms:
        for point in iter_points(experiment.tune):
            issues, warnings = checker.check_arm(arm, point)
            for issue in issues:
                issue_arms.setdefault(issue, {})[arm.title] = arm
            for warning in warnings:
                warning_arms.setdefault(warning, {})[arm.title] = arm
    for issue, arms in issue_arms.items():
        collector.add_arm_issue(issue, [*arms.values()], in_all_arms=len(arms) == len(experiment.arms))
    for warning, arms in warning_arms.items():
        collector.add_arm_warning(warning, [*arms.values()], in_all_arms=len(arms) == len(experiment.arms))


def check_replaced_components(experiment: "Experiment", collector: IssueCollector) -> None:
    """Check components of the base that all arms replace: no arm builds them, so other checks do not see them."""
    model = experiment.base["model"]
    for kind in COMPONENT_KINDS if isinstance(model, Mapping) else ():
        path = f"model.{kind}"
        is_replaced = all(path in arm.changes or path in arm.levels for arm in experiment.arms)
        if not is_replaced or not isinstance(model.get(kind), str | Mapping) or has_interpolation(model[kind]):
            continue
        collector.add(*find_form_issues(path, model[kind]))
        for entry_path, spec in iter_layer_values(model[kind]):
            if spec is not None:
                collector.call_and_collect(fill_component, kind, spec, path + entry_path)


def check_evaluate_tasks(experiment: "Experiment", collector: IssueCollector) -> None:
    """Check that every arm trains on the `language` task if there is an `evaluate` section."""
    point, arms_by_task = next(iter_points(experiment.tune)), dict[str, list["Arm"]]()
    for arm in experiment.arms if experiment.evaluate else ():
        task = experiment.make_cell(arm, point, experiment.seeds[0]).task["name"]
        if task != "language":
            arms_by_task.setdefault(task, []).append(arm)
    for task, arms in arms_by_task.items():
        message = f"lm-eval evaluates language models, but the task is {task!r}. Leave `evaluate` out."
        issue = ConfigIssue("evaluate", "evaluation_without_language", message)
        collector.add_arm_issue(issue, arms, in_all_arms=len(arms) == len(experiment.arms))


def parse_section(settings_type: type[Settings], name: str, section: Any) -> Settings:
    """Parse a settings section. The paths of issues begin with the name of the section."""
    if not isinstance(section, Mapping):
        message = f"a mapping of settings is needed, got {section!r}."
        raise ConfigError.at(name, "not_a_mapping_of_settings", message)
    with issues_under(name):
        return parse_settings(settings_type, section)
