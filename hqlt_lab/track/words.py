"""Tags, parameters and names, in the form that MLflow takes."""

import posixpath
import re
from collections.abc import Mapping

from hqlt_lab.track.card import CellCard, State, StudyCard
from hqlt_lab.track.folder import facts

LONGEST_NAME, LONGEST_VALUE = 250, 5000  # what every kind of MLflow store accepts
STATUS: dict[State, str] = {
    "waiting": "SCHEDULED",
    "running": "RUNNING",
    "done": "FINISHED",
    "failed": "FAILED",
    "diverged": "FAILED",
    "pruned": "KILLED",
    "superseded": "KILLED",
}


def clean(name: str) -> str:
    """A name that MLflow does not refuse: no odd characters, and nothing that reads as another path."""
    plain = re.sub(r"[^/\w.\- :]", "_", name)[:LONGEST_NAME]
    return posixpath.normpath("/" + plain).lstrip("/") or "_"


def cleaned(told: Mapping[str, str]) -> dict[str, str]:
    """The same for all names, and values that are not too long."""
    return {clean(name): str(value)[:LONGEST_VALUE] for name, value in told.items()}


def study_tags(study: StudyCard) -> dict[str, str]:
    """Of the parent run."""
    repository = study.provenance.get("git") or {}
    tags = {
        "hqlt.kind": "study",
        "hqlt.study": study.name,
        "hqlt.folder": str(study.folder),
        "mlflow.runName": study.name[:LONGEST_NAME],
        "mlflow.note.content": study.question,
        "mlflow.source.name": "hqlt",
        "mlflow.source.type": "LOCAL",
    }
    if repository:
        tags |= {"mlflow.source.git.commit": repository["commit"], "hqlt.dirty": str(repository["dirty"]).lower()}
    return cleaned(tags)


def cell_tags(card: CellCard, study: StudyCard, parent: str) -> dict[str, str]:
    """Of a cell's run: all that the run table, search and compare views need."""
    tags = {
        "hqlt.kind": "cell",
        "hqlt.study": study.name,
        "hqlt.arm": card.arm,
        "hqlt.seed": str(card.seed),
        "hqlt.cell": card.key,
        "hqlt.status": card.state,
        "mlflow.parentRunId": parent,
        "mlflow.runName": card.title[:LONGEST_NAME],
        "mlflow.note.content": note(card),
        "mlflow.source.name": "hqlt",
        "mlflow.source.type": "LOCAL",
    }
    tags |= {f"hqlt.axis.{name}": value for name, value in card.axes.items()}
    tags |= {f"hqlt.{name}": value for name, value in {**facts(card.folder), **card.tags}.items()}
    if "lab" in card.code:
        tags["hqlt.code"] = card.code["lab"]
    return cleaned(tags)


def note(card: CellCard) -> str:
    """What the run's page says on top."""
    why = f"\n\n{card.state}: {card.why}" if card.why else ""
    return f"{card.title}{why}\n\nFolder: `{card.folder}`"


def params(card: CellCard) -> dict[str, str]:
    """One flat parameter per axis; MLflow draws its charts over these."""
    return cleaned({"arm": card.arm, "seed": str(card.seed), **card.axes})
