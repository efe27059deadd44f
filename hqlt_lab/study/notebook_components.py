"""Write the components of a notebook that a study uses to files in its folder, so that workers can load them.

    runs/studies/NAME/components/mine_3f2c91ab.py     one file per version of a component; the name includes a hash

Files of earlier versions are kept: they are the source of the cells that were trained with them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.files import write_atomic
from hqlt_lab.registry import find_factory, generate_source, list_interactive_components, record_generated_files

COMPONENTS_FOLDER = "components"


def write_notebook_components(experiment: Experiment, folder: Path) -> None:
    """Write each notebook component that the experiment names, and record the files as loaded.

    Raise RegistryError, before anything is written, if one of them uses names that cannot be copied.
    """
    sources = [generate_source(*component) for component in list_used_components(experiment)]
    for source in sources:
        (folder / COMPONENTS_FOLDER).mkdir(parents=True, exist_ok=True)
        write_atomic(folder / COMPONENTS_FOLDER / source.name, source.text)
    record_generated_files([folder / COMPONENTS_FOLDER / source.name for source in sources])


def list_used_components(experiment: Experiment) -> list[tuple[str, str]]:
    """Return (kind, name) of the notebook components that the experiment or one of its update rules names."""
    strings = set(
        find_strings([experiment.base, experiment.tune, *((arm.levels, arm.changes) for arm in experiment.arms)])
    )
    names = {string.replace("-", "_") for string in strings}
    components = list_interactive_components()
    rules = [find_factory(kind, name) for kind, name in components if kind == "update_rule" and name in names]
    names |= {str(getattr(rule, "feature_map", "")) for rule in rules}
    return [(kind, name) for kind, name in components if name in names]


def find_strings(value: Any) -> Iterator[str]:
    """Yield the strings in nested mappings, lists and tuples, keys excluded."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from find_strings(item)
