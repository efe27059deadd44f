"""Which scan and which attention a composition takes while learning, seen by letting it run.

A layer is built on the meta device and called once on a text of the training length, while the calls into `ops` are
watched.  So what is told is what the code does, also when its choices change.
"""

import json
import sys
from types import FrameType
from typing import Any

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.composition import on_meta
from hqlt_lab.registry import build

SCANS = {"chunked": "chunked", "recurrent": "recurrent"}  # function of `ops` -> what it is called here
ATTENTIONS = {"attend": "causal", "attend_dense": "dense", "_attend_blocks": "blocks", "_attend_bands": "bands"}

_known: dict[str, dict[str, str]] = {}


class Seen(Exception):
    """A scan has begun; going through with it would tell nothing more."""


def ops_of(cell: Cell) -> dict[str, str]:
    """{"scan": "chunked", "attention": "bands"}; layers that differ are told apart by a plus sign."""
    name = json.dumps([cell.task, cell.model], sort_keys=True)
    if name not in _known:
        task = build("task", cell.task)
        model = on_meta(cell, task.vocabulary)
        layers = [forms_of(memory, task.tokens_in("train"), cell.model["width"]) for memory in model.memories]
        _known[name] = {kind: "+".join(sorted({forms[kind] for forms in layers})) for kind in ("scan", "attention")}
    return dict(_known[name])


def forms_of(memory: Any, tokens: int, width: int) -> dict[str, str]:
    """The forms that one layer takes on a text of this length."""
    called = calls_into_ops(memory, tokens, width)
    scans = [SCANS[name] for name in called if name in SCANS]
    attentions = [ATTENTIONS[name] for name in called if name in ATTENTIONS]
    own = "none" if memory.update_rule is None else "own"  # a rule may scan without the help of `ops`
    return {"scan": scans[-1] if scans else own, "attention": attentions[-1] if attentions else "none"}


def calls_into_ops(memory: Any, tokens: int, width: int) -> list[str]:
    """The functions of `ops` that a call of the layer enters, in order, up to its scan."""
    import torch

    from hqlt_lab.ops import attention

    place, called = attention.__name__.rpartition(".")[0], []

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and str(frame.f_globals.get("__name__")).startswith(place):
            called.append(frame.f_code.co_name)
            if called[-1] in SCANS:
                raise Seen

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        memory(torch.zeros(1, tokens, width, device="meta"))
    except Seen:
        pass
    finally:
        sys.setprofile(before)
    return called
