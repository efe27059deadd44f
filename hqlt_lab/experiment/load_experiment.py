"""Load an experiment file and validate it completely. All mistakes are reported in one error."""

import json
import logging
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from hqlt_lab.errors import ConfigError, ConfigIssue, did_you_mean, format_names, issues_under, join_sentences
from hqlt_lab.experiment.apply_overrides import VARIABLE_SECTIONS, apply_changes
from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.fill_defaults import SectionCache, fill_component, fill_defaults
from hqlt_lab.experiment.lm_eval_section import EvaluateConfig, find_unavailable_metrics, parse_evaluate
from hqlt_lab.experiment.parse_axes import Range, parse_grid, parse_tune
from hqlt_lab.experiment.parse_seeds import (
    DEFAULT_SEEDS,
    DEFAULT_TUNE_SEEDS,
    FIRST_TUNE_SEED,
    parse_looks,
    parse_seeds,
)
from hqlt_lab.experiment.run_settings import MatchConfig, MeasureConfig, PruneConfig
from hqlt_lab.experiment.size_matching import find_match_conflicts, find_reference_arms, match_arm, parse_match
from hqlt_lab.experiment.validate.arm_checks import ALLOWABLE_ISSUES
from hqlt_lab.experiment.validate.experiment_size import check_size_limits
from hqlt_lab.experiment.validate.issue_collector import IssueCollector
from hqlt_lab.experiment.validate.metric_names import collect_metric_names
from hqlt_lab.experiment.validate.section_checks import (
    check_compositions,
    check_evaluate_tasks,
    check_published_rows,
    check_replaced_components,
    check_titles,
    find_looks_issues,
    parse_section,
    select_valid_sections,
)
from hqlt_lab.experiment.yaml.interpolation import resolve_interpolations
from hqlt_lab.experiment.yaml.read_experiment_files import ExperimentSource, read_source

logger = logging.getLogger(__name__)

SECTIONS = (
    "question", "task", "model", "train", "agent", "trainer", "ops", "arms", "cross", "one_at_a_time", "match", "tune",
    "seeds", "tune_seeds", "prune", "measure", "evaluate", "published", "quoted", "launcher",
)  # fmt: skip
MAX_NAME_BYTES = 150  # of an experiment's name; file names in its folder are longer and must stay below 255


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One condition to compare: an arm of the file at one combination of crossed levels."""

    name: str
    levels: Mapping[str, Any] = field(default_factory=dict)  # crossed path -> value
    changes: Mapping[str, Any] = field(default_factory=dict)  # the changes that the arm itself makes
    allow: tuple[str, ...] = ()  # issues that are intended in this arm

    @property
    def location(self) -> str:
        """The path of the arm in the file."""
        return f"arms.{self.name}"

    @cached_property
    def title(self) -> ArmTitle:
        """Name and crossed levels, such as "synchronous, mixer=sum"."""
        return ArmTitle(self.name, self.levels)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A validated experiment: a question, and the arms, axes and seeds to answer it."""

    name: str
    question: str
    base: Mapping[str, Any]  # task, model, train, agent, trainer, ops as written, with unresolved interpolation
    arms: tuple[Arm, ...]
    tune: Mapping[str, list[Any] | Range]
    seeds: tuple[int, ...]
    tune_seeds: tuple[int, ...]
    measure: MeasureConfig
    published: Mapping[str, Any]
    quoted: Mapping[str, Any]
    looks: tuple[int, ...] = ()  # numbers of seeds after which verdicts are computed; empty: the number is fixed
    match: MatchConfig | None = None  # None: sizes of arms are not matched
    prune: PruneConfig | None = None  # None: no cell is stopped early
    evaluate: EvaluateConfig | None = None  # None: no evaluation with lm-eval
    launcher: Mapping[str, Any] = field(default_factory=lambda: {"name": "local"})
    warnings: tuple[str, ...] = ()
    file: Path = field(default=Path(), compare=False)  # the file it was read from
    overrides: tuple[str, ...] = field(default=(), compare=False)  # the --set overrides it was read with
    source: ExperimentSource | None = field(default=None, compare=False, repr=False)  # None: not read from a file
    cell_cache: dict[str, Cell] = field(default_factory=dict, init=False, repr=False, compare=False)
    section_cache: SectionCache = field(default_factory=dict, init=False, repr=False, compare=False)
    size_cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # sizes counted for `match`

    @property
    def has_tuning_cells(self) -> bool:
        """Whether tuned values are selected on `tune_seeds`: for ranges, and if seeds are added until decided.

        Otherwise every point of a grid is trained on all seeds.
        """
        return bool(self.tune and self.looks) or any(isinstance(axis, Range) for axis in self.tune.values())

    @property
    def final_seeds(self) -> list[int]:
        """The seeds that are reported. Seeds that are used for tuning are excluded."""
        return [seed for seed in self.seeds if not (self.has_tuning_cells and seed in self.tune_seeds)]

    @cached_property
    def reference_arms(self) -> dict[str, Arm]:
        """The arm to whose size each arm is matched, by title."""
        return find_reference_arms(self.arms)

    def make_cell(self, arm: Arm, point: Mapping[str, Any], seed: int) -> Cell:
        """Return the cell of an arm with these tuned values and this seed, after size matching."""
        cache_key = json.dumps([arm.name, arm.levels, arm.changes, point])
        if cache_key not in self.cell_cache:
            cell = self.make_unmatched_cell(arm, point, seed)
            match = match_arm(self, arm, point, cell)
            self.cell_cache[cache_key] = (
                cell if match is None or match.is_unchanged else cell.replace_model_settings(**{match.by: match.value})
            )
        return replace(self.cell_cache[cache_key], seed=seed)

    def make_unmatched_cell(self, arm: Arm, point: Mapping[str, Any], seed: int) -> Cell:
        """Return the cell of an arm with these tuned values and this seed, without size matching."""
        with issues_under(arm.location):
            changed = apply_changes(self.base, arm.changes, VARIABLE_SECTIONS)
        config = apply_changes(changed, {**arm.levels, **point}, VARIABLE_SECTIONS)
        sections = fill_defaults(resolve_interpolations(config), self.section_cache)
        return Cell(**sections, measure=self.measure, seed=seed, arm=arm.title, axes=dict(arm.levels) | dict(point))


ExperimentFile: TypeAlias = str | Path | Experiment  # an experiment file, or an experiment loaded from one


def load_experiment(file: ExperimentFile, overrides: Sequence[str] = ()) -> Experiment:
    """Read and validate an experiment file. `overrides` are path=value changes to its base.

    An experiment that was loaded before is returned as it is.
    """
    if isinstance(file, Experiment):
        return file
    return validate_experiment(read_source(Path(file), overrides))


def require_source(experiment: Experiment) -> ExperimentSource:
    """Return the file from which an experiment was read."""
    assert experiment.source is not None, "an experiment that was loaded from a study's folder cannot be planned"
    return experiment.source


def validate_experiment(source: ExperimentSource, known_warnings: Sequence[str] | None = None) -> Experiment:
    """Return the experiment of a file that was read, or raise a ConfigError with all mistakes.

    `known_warnings`: the warnings of an earlier validation of the same file by the same code. The compositions passed
    their checks then, so that no model is built again.
    """
    logger.debug("Validating %s", source.file)
    path, config = source.file, source.config
    collector = IssueCollector(path, source.source_map)
    collector.call_and_collect(check_study_name, path.stem)
    for section in config:
        if section not in SECTIONS:
            names = (*SECTIONS, "extends")
            hint = join_sentences(did_you_mean(section, names), f"Sections: {format_names(names)}.")
            collector.add(ConfigIssue(section, "unknown_section", "there is no such section.", hint))
    if not isinstance(config.get("question"), str) or not config["question"].strip():
        collector.add(
            ConfigIssue("question", "missing_question", ("the experiment has no question. Write one in a sentence."))
        )
    valid_config = config | select_valid_sections(config, collector)
    if not collector.passes_check(check_size_limits, valid_config, DEFAULT_SEEDS, DEFAULT_TUNE_SEEDS):
        collector.raise_issues()  # the other checks would take too long for an experiment of this size
    experiment = Experiment(
        name=path.stem,
        question=str(config.get("question", "")).strip(),
        base={section: config.get(section, {}) for section in VARIABLE_SECTIONS},
        arms=tuple(collect_valid_arms(valid_config, collector)) or (Arm(name="base"),),
        tune=parse_tune(valid_config.get("tune", {})),
        seeds=collector.call_and_collect(parse_seeds, config, "seeds", DEFAULT_SEEDS) or (0,),
        tune_seeds=collector.call_and_collect(parse_seeds, config, "tune_seeds", DEFAULT_TUNE_SEEDS, FIRST_TUNE_SEED)
        or (0,),
        measure=collector.call_and_collect(parse_section, MeasureConfig, "measure", config.get("measure", {}))
        or MeasureConfig(),
        looks=collector.call_and_collect(parse_looks, config) or (),
        published=valid_config.get("published", {}),
        quoted=valid_config.get("quoted", {}),
        match=collector.call_and_collect(parse_match, config.get("match")),
        prune=collector.call_and_collect(parse_prune, config),
        evaluate=collector.call_and_collect(parse_evaluate, config.get("evaluate")),
        launcher=collector.call_and_collect(parse_launcher, config) or {},
        file=path,
        overrides=source.overrides,
        source=source,
    )
    metrics = collect_metric_names(config.get("measure"))
    if not experiment.final_seeds:
        message = f"all seeds {list(experiment.seeds)} are used for tuning (tune_seeds)."
        collector.add(ConfigIssue("seeds", "no_final_seed", message, "Add a seed that is not in tune_seeds."))
    collector.add(*find_looks_issues(experiment))
    if experiment.match:
        collector.add(*find_match_conflicts(valid_config, experiment.match))
    if "evaluate" not in config or experiment.evaluate:  # if the section is invalid, that issue is enough
        collector.add(*find_unavailable_metrics(metrics["measure.report"], experiment.evaluate))
    check_titles(experiment, collector)
    for name in experiment.quoted:
        collector.call_and_collect(check_row_name, "quoted", str(name))
    check_published_rows(experiment, collector)
    if known_warnings is None:
        check_compositions(experiment, metrics, collector)
    check_replaced_components(experiment, collector)
    collector.raise_issues()
    if known_warnings is None:
        check_evaluate_tasks(experiment, collector)
        collector.raise_issues()
    warnings = collector.format_warnings() if known_warnings is None else known_warnings
    validated = replace(experiment, warnings=tuple(warnings))
    validated.cell_cache.update(experiment.cell_cache)
    return validated


def check_study_name(name: str) -> None:
    """Raise ConfigError if the name of the file is not usable as the name of the study's folder and runs."""
    if name.startswith(".") or not name.isprintable() or len(name.encode()) > MAX_NAME_BYTES:
        raise ConfigError.at(
            "",
            "invalid_study_name",
            f"the file name {name[:60]!r} cannot be the name of a study: at most {MAX_NAME_BYTES} printable "
            "characters, the first of them not a dot.",
            "Rename the file.",
        )


def parse_arms(config: Mapping[str, Any]) -> list[Arm]:
    """Return the arms of the file at every combination of crossed levels, or with one axis changed at a time."""
    arms, all_levels = config.get("arms") or {"base": {}}, parse_levels(config)
    return [parse_arm(str(name), section, levels) for name, section in arms.items() for levels in all_levels]


def collect_valid_arms(config: Mapping[str, Any], collector: IssueCollector) -> Iterator[Arm]:
    """Yield the arms that can be parsed, and add the issues of the others to the collector."""
    all_levels = collector.call_and_collect(parse_levels, config) or [{}]
    for name, section in (config.get("arms") or {"base": {}}).items():
        if not collector.passes_check(check_row_name, "arms", str(name)):
            continue
        for levels in all_levels:
            if (arm := collector.call_and_collect(parse_arm, str(name), section, levels)) is not None:
                yield arm


def check_row_name(section: str, name: str) -> None:
    """Raise ConfigError if the name of an arm or of a quoted row is blank or does not fit into one line."""
    if not name.strip() or any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in name):
        message = f"{name!r} cannot be the name of a row."
        hint = "Use at least one visible character, and neither tabs nor line breaks."
        raise ConfigError.at(section, "invalid_row_name", message, hint)


def parse_levels(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of crossed levels; or, with one_at_a_time, the base and each single change."""
    if "cross" in config and "one_at_a_time" in config:
        issue = ConfigIssue("cross", "cross_and_one_at_a_time", "use only one of them.", other_paths=("one_at_a_time",))
        raise ConfigError(issue)
    crossed = parse_grid(config.get("cross", {}), "cross")
    single = parse_grid(config.get("one_at_a_time", {}), "one_at_a_time")
    levels = [dict(zip(crossed, values, strict=True)) for values in product(*crossed.values())]
    return [*levels, *({path: value} for path, values in single.items() for value in values)]


def parse_arm(name: str, section: Any, levels: Mapping[str, Any]) -> Arm:
    """Parse the section of an arm: its changes, and the issues that it allows."""
    section = {} if section is None else section
    if not isinstance(section, Mapping):
        message = f"an arm is a mapping of changes, such as {{model.mixer: sum}}; got {section!r}."
        raise ConfigError.at(f"arms.{name}", "not_a_mapping_of_changes", message)
    allow = section.get("allow", [])
    if not isinstance(allow, list):
        message = f"a list is needed, such as [{ALLOWABLE_ISSUES[0]}]; got {allow!r}."
        raise ConfigError.at(f"arms.{name}.allow", "allow_not_a_list", message)
    for issue in allow:
        if issue not in ALLOWABLE_ISSUES:
            hint = join_sentences(
                did_you_mean(str(issue), ALLOWABLE_ISSUES), f"Choices: {format_names(ALLOWABLE_ISSUES)}."
            )
            raise ConfigError.at(f"arms.{name}.allow", "not_allowable", f"{issue!r} cannot be allowed.", hint)
    changes = {str(path): value for path, value in section.items() if path != "allow"}
    return Arm(name=name, levels=levels, changes=changes, allow=tuple(allow))


def parse_prune(config: Mapping[str, Any]) -> PruneConfig | None:
    """Parse the `prune` section. It requires `tune`: pruning seeds of one setting would bias the result."""
    if config.get("prune") is None:
        return None
    if not config.get("tune"):
        message = "nothing is tuned, and reported seeds are not pruned, because this would bias the results."
        raise ConfigError.at("prune", "prune_without_tune", message)
    return parse_section(PruneConfig, "prune", config["prune"])


def parse_launcher(config: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the `launcher` section: a launcher with its options. The name defaults to `local`."""
    spec = config.get("launcher", "local")
    return fill_component("launcher", {"name": "local", **spec} if isinstance(spec, Mapping) else spec, "launcher")
