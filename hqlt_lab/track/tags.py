"""Tags, parameters and names in the form that MLflow accepts."""

import posixpath
import re
from collections.abc import Mapping

from hqlt_lab.rundir.cell_state import CellState
from hqlt_lab.track.mlflow_content import runtime_tags
from hqlt_lab.track.study_description import CellInfo, StudyInfo

MAX_KEY_LENGTH, MAX_VALUE_LENGTH = 250, 5000  # limits that all MLflow stores have in common
MLFLOW_STATUS: dict[CellState, str] = {
    "waiting": "SCHEDULED",
    "running": "RUNNING",
    "done": "FINISHED",
    "failed": "FAILED",
    "diverged": "FAILED",
    "pruned": "KILLED",
    "superseded": "KILLED",
}


def sanitize_key(name: str) -> str:
    """Return a name that MLflow accepts: without special characters, and normalized as a path."""
    allowed = re.sub(r"[^/\w.\- :]", "_", name)[:MAX_KEY_LENGTH]
    return posixpath.normpath("/" + allowed).lstrip("/") or "_"


def sanitize_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags with sanitized names and truncated values."""
    return {sanitize_key(name): str(value)[:MAX_VALUE_LENGTH] for name, value in tags.items()}


def study_tags(study: StudyInfo) -> dict[str, str]:
    """Return the tags of a study's parent run."""
    repository = study.provenance.get("git") or {}
    tags = {
        "hqlt.kind": "study",
        "hqlt.study": study.name,
        "hqlt.folder": str(study.folder),
        "mlflow.runName": study.name[:MAX_KEY_LENGTH],
        "mlflow.note.content": study.question,
        "mlflow.source.name": "hqlt",
        "mlflow.source.type": "LOCAL",
    }
    if repository:
        tags |= {"mlflow.source.git.commit": repository["commit"], "hqlt.dirty": str(repository["dirty"]).lower()}
    return sanitize_tags(tags)


def cell_tags(cell_info: CellInfo, study: StudyInfo, parent_run_id: str) -> dict[str, str]:
    """Return the tags of a cell's run, for the run table, search and comparison in MLflow."""
    tags = {
        "hqlt.kind": "cell",
        "hqlt.study": study.name,
        "hqlt.arm": cell_info.arm,
        "hqlt.seed": str(cell_info.seed),
        "hqlt.cell": cell_info.key,
        "hqlt.status": cell_info.state,
        "mlflow.parentRunId": parent_run_id,
        "mlflow.runName": cell_info.title[:MAX_KEY_LENGTH],
        "mlflow.note.content": run_description(cell_info),
        "mlflow.source.name": "hqlt",
        "mlflow.source.type": "LOCAL",
    }
    tags |= {f"hqlt.axis.{name}": value for name, value in cell_info.axes.items()}
    tags |= {f"hqlt.{name}": value for name, value in runtime_tags(cell_info.folder).items()}
    if "lab" in cell_info.code:
        tags["hqlt.code"] = cell_info.code["lab"]
    return sanitize_tags(tags)


def run_description(cell_info: CellInfo) -> str:
    """Return the description at the top of a run's page."""
    why = f"\n\n{cell_info.state}: {cell_info.why}" if cell_info.why else ""
    return f"{cell_info.title}{why}\n\nFolder: `{cell_info.folder}`"


def cell_params(cell_info: CellInfo) -> dict[str, str]:
    """Return the parameters of a run: arm, seed and one per axis, for MLflow's charts."""
    return sanitize_tags({"arm": cell_info.arm, "seed": str(cell_info.seed), **cell_info.axes})
