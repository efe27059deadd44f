"""Record of the looks of a study whose seeds are added until all comparisons are decided.

    runs/studies/NAME/looks.json     {"looks": [5, 8]}: verdicts were computed after 5 seeds and after 8

Verdicts are computed again from the ledger whenever they are needed, so that no decision can be lost. Only when they
were computed is recorded: looks that were taken stay as they are if `seeds.max` or `seeds.looks` changes later.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.experiment.validate.experiment_size import MAX_CELLS
from hqlt_lab.files import check_types, read_json, translate_damage, write_atomic
from hqlt_lab.formatting import join_numbers, pluralize_count
from hqlt_lab.stats.sequential_testing import LookResult

LOOKS_FILE = "looks.json"
FIXED_SEEDS_WARNING = (
    "Seeds of this study were added until comparisons were decided, after {} seeds. With a fixed number of seeds its "
    "verdicts are too optimistic: they are not corrected for these looks."
)


def read_looks(folder: Path) -> tuple[int, ...]:
    """Return the numbers of seeds of the looks that a study has taken."""
    file = folder / LOOKS_FILE
    if not file.is_file():
        return ()
    with translate_damage(file):
        counts = read_json(file, dict)["looks"]
        check_types({"looks": counts}, {"looks": (list,)})
        if not all(type(count) is int and 0 < count <= MAX_CELLS for count in counts) or sorted(set(counts)) != counts:
            raise ValueError("looks are increasing numbers of seeds")
    return tuple(counts)


def write_looks(folder: Path, counts: Sequence[int]) -> None:
    """Record the looks that were taken; a longer record is kept."""
    if len(counts) > len(read_looks(folder)):
        write_atomic(folder / LOOKS_FILE, json.dumps({"looks": [*counts]}) + "\n")


def apply_recorded_looks(experiment: Experiment, folder: Path) -> Experiment:
    """Return the experiment with the looks that its study has taken, followed by later ones of its file."""
    recorded = read_looks(folder)
    if not recorded:
        return experiment
    if not experiment.looks:
        warning = FIXED_SEEDS_WARNING.format(join_numbers(recorded))
        warnings = experiment.warnings if warning in experiment.warnings else (*experiment.warnings, warning)
        return replace_with_cache(experiment, warnings=warnings)
    looks = (*recorded, *(count for count in experiment.looks if count > recorded[-1]))
    if looks == experiment.looks:
        return experiment
    return replace_with_cache(experiment, looks=looks, seeds=tuple(range(looks[-1])))


def describe_looks(result: LookResult, looks: Sequence[int]) -> str:
    """Return e.g. "Look 1 of 4, after 5 seeds: 2 of 3 comparisons are decided, 1 gets more seeds."."""
    num_looks, comparison_count = len(result.counts), pluralize_count(len(result.differences), "comparison")
    if not num_looks:
        return f"No look yet: the first of {len(looks)} is after {looks[0]} seeds."
    num_closed = len(result.differences) - result.num_decided - result.num_open
    verb = "remain{} undecided" if num_looks == len(looks) else "get{} more seeds"
    verb = verb.format("s" * (result.num_open == 1))
    open_clause = f", {result.num_open} {verb}" if result.num_open else ""
    closed_clause = f", {num_closed} cannot be decided because of lost seeds" if num_closed else ""
    decided_clause = f"{result.num_decided} of {comparison_count} {'is' if result.num_decided == 1 else 'are'} decided"
    look = f"Look {num_looks} of {len(looks)}, after {result.counts[-1]} seeds"
    return f"{look}: {decided_clause}{open_clause}{closed_clause}."


def replace_with_cache(experiment: Experiment, **changes: object) -> Experiment:
    """Return a copy with other fields that do not affect cells, and with the cells that were built so far."""
    changed = replace(experiment, **changes)  # type: ignore[arg-type]
    changed.cell_cache.update(experiment.cell_cache)
    return changed
