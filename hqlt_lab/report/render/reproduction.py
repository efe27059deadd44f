"""How to reproduce a report: commands, and facts on the code, the libraries and the machine that made its results."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hqlt_lab.formatting import pluralize_count

if TYPE_CHECKING:
    from hqlt_lab.report.study_report import Report

MAX_CODE_HASHES = 40


@dataclass(frozen=True)
class Reproduction:
    """Commands that reproduce a study, and the provenance of its results; empty if not known."""

    commands: Sequence[str] = ()
    provenance: Mapping[str, Any] | None = None  # git, versions, machine, command


def provenance_facts(report: "Report", provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return labeled facts for reproduction: seeds, commit, library versions, machine, command, code versions."""
    facts = {
        "seeds": ", ".join(map(str, report.seeds)),
        "commit": describe_commit(provenance.get("git")),
        "libraries": format_mapping(provenance.get("versions")),
        "machine": format_mapping(provenance.get("machine")),
        "command": str(provenance.get("command") or ""),
        "sources": "\n".join(code_hash_lines(report)),
    }
    return [(label, value) for label, value in facts.items() if value]


def describe_commit(git: Mapping[str, Any] | None) -> str:
    """Return e.g. "a1b2c3, with uncommitted changes in 2 files"; empty if the commit is not known."""
    if not git or not git.get("commit"):
        return ""
    changes = pluralize_count(len(git.get("changed") or ()), "file")
    return f"{git['commit']}, with uncommitted changes in {changes}" if git.get("dirty") else str(git["commit"])


def format_mapping(values: Any) -> str:
    """Return e.g. "python 3.11.7, torch 2.13.0"."""
    pairs = values.items() if isinstance(values, Mapping) else ()
    flat = [(key, ", ".join(map(str, value)) if isinstance(value, list) else value) for key, value in pairs]
    return ", ".join(f"{str(key).replace('_', ' ')} {value}" for key, value in flat if value not in ("", None))


def code_hash_lines(report: "Report") -> Iterator[str]:
    """Yield the hash of each source that finished cells were trained with, e.g. "lab 3f2c91 (18 cells)"."""
    counts = Counter(pair for record in report.records if record.state == "done" for pair in record.code.items())
    for (name, digest), count in sorted(counts.items())[:MAX_CODE_HASHES]:
        yield f"{name} {digest} ({pluralize_count(count, 'cell')})"
