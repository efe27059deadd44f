"""Which scan and which attention a composition takes while learning."""

import json
from typing import Any

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.composition import on_meta
from hqlt_lab.registry import build

_known: dict[str, dict[str, str]] = {}


def ops_of(cell: Cell) -> dict[str, str]:
    """{"scan": "chunked", "attention": "bands"}; layers that differ are told apart by a plus sign."""
    name = json.dumps([cell.task, cell.model], sort_keys=True)
    if name not in _known:
        task = build("task", cell.task)
        layers = [forms_of(memory, task.tokens_in("train")) for memory in on_meta(cell, task.vocabulary).memories]
        _known[name] = {kind: "+".join(sorted({forms[kind] for forms in layers})) for kind in ("scan", "attention")}
    return dict(_known[name])


def forms_of(memory: Any, tokens: int) -> dict[str, str]:
    """The forms that one layer takes on a text of this length."""
    from hqlt_lab.ops.attention import form

    scan = memory.update_rule.scanned_by if memory.update_rule is not None else "none"
    return {"scan": scan, "attention": form(memory.schedule, tokens, tokens) if "kv" in memory.mixer.reads else "none"}
