"""Which backends a composition takes while learning."""

import json

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.composition import on_meta
from hqlt_lab.registry import build

_known: dict[str, dict[str, str]] = {}


def ops_of(cell: Cell) -> dict[str, str]:
    """{"scan": "torch", "attention": "blocks"}; layers that differ are told apart by a plus sign."""
    name = json.dumps([cell.task, cell.model, vars(cell.ops)], sort_keys=True)
    if name not in _known:
        import torch

        from hqlt_lab.model.choices import choices

        task = build("task", cell.task)
        model = on_meta(cell, task.vocabulary).use(cell.ops)
        layers = choices(model, task.tokens_in("train"), "cpu", torch.float32)
        _known[name] = {
            kind: "+".join(sorted({getattr(layer, kind).name for layer in layers})) for kind in ("scan", "attention")
        }
    return dict(_known[name])
