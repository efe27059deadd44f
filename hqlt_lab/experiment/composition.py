"""What one composition may have wrong although each of its parts is right.

Parts that do not go together, fast weights that idle, metrics that the task does not have.

Models are built on the meta device, where a parameter costs nothing; this is the one place of the room that loads
torch.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import lcm
from typing import Any

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.cell import Cell, digest
from hqlt_lab.experiment.gates import wrong_gates
from hqlt_lab.experiment.metrics import Metrics, unknown_metrics
from hqlt_lab.model.config import PARTS, ModelConfig
from hqlt_lab.registry import build, split

Sentences = list[str]
Found = tuple[Sentences, Sentences]  # complaints and warnings

IDLE = "idle_fast_weights"
ALLOWED = (IDLE,)  # what an arm may say that it means


def wrong_together(cell: Cell, metrics: Metrics, allow: tuple[str, ...], checked: dict[str, Found]) -> Found:
    """Complaints and warnings; `checked` has what was found before, what is in `allow` is meant."""
    unable = [] if cell.agent is None else not_in_a_world(cell)
    name = digest([cell.task, cell.model, allow, unable])
    if name not in checked:
        task, wrong = wrong_task(cell, metrics)
        model, more = wrong_model(cell, task.vocabulary) if task else (None, [])
        quiet = model is None or IDLE in allow
        idle, doubtful = ([], []) if quiet else idle_fast_weights(model, task.tokens_in("train"), cell)
        checked[name] = wrong + unable + more + idle, doubtful
    return checked[name]


def wrong_task(cell: Cell, metrics: Metrics) -> tuple[Any, Sentences]:
    """The task, or None, and what is wrong with it and with what is measured of it."""
    try:
        task = build("task", cell.task)
    except HqltError as error:
        return None, str(error).splitlines()
    wrong = unknown_metrics(task, metrics)
    try:
        _ = task.vocabulary  # of a text that is not prepared there is none
    except HqltError as error:
        return None, wrong + [f"task.{line}" for line in str(error).splitlines()]
    return task, wrong


def wrong_model(cell: Cell, vocabulary: int | None) -> tuple[Any, Sentences]:
    """The model with one layer of each sort, or None, and what is wrong with it."""
    try:
        model = on_meta(cell.with_model(layers=different_layers(cell.model)), vocabulary)
        return model, wrong_gates(model)
    except HqltError as error:
        told = [f"model.{line}" for line in str(error).splitlines()]
        return None, [*dict.fromkeys([*told, *wrong_options(cell.model)])]


def different_layers(model: Mapping[str, Any]) -> int:
    """After how many layers all parts begin to repeat."""
    return lcm(*(len(model[kind]) for kind in PARTS if isinstance(model[kind], list)))


def wrong_options(model: Mapping[str, Any]) -> Sentences:
    """What the parts of a model say of their own options, each by itself: the first that refuses hides the others."""
    given = {kind: model[kind] if isinstance(model[kind], list) else [model[kind]] for kind in PARTS}
    parts = [(kind, part) for kind, several in given.items() for part in several if part is not None]
    return [f"model.{line}" for kind, part in parts for line in refused(kind, part, model["width"], model["heads"])]


def refused(kind: str, part: Any, width: int, heads: int) -> Iterator[str]:
    """What a part says of its options; its other complaints may be due to the rest of the model."""
    try:
        _, chosen = split(kind, part)
    except HqltError:  # of which it is complained elsewhere
        return
    try:
        with drawing_nothing():
            build(kind, part, width=width, heads=heads)
    except HqltError as error:
        options = tuple(f"{kind}.{option}:" for option in chosen)
        yield from (line for line in str(error).splitlines() if line.startswith(options))
    except Exception:  # with sizes that do not go together a part may raise anything
        return


def not_in_a_world(cell: Cell) -> Sentences:
    """What other tasks can be trained with, and an agent cannot."""
    asked = {
        "trainer.devices": cell.trainer.devices > 1 and "an agent acts and learns in one process. Use 1",
        "trainer.nodes": cell.trainer.nodes > 1 and "an agent acts and learns in one process. Use 1",
        "trainer.precision": cell.trainer.precision == "16-mixed" and "gradients are not scaled. Use 'bf16-mixed'",
        "train.accumulate": cell.train.accumulate > 1 and "a batch of episodes is learned from at once. Use 1",
        "train.compile": cell.train.compile and "an agent reads observation by observation. Leave it out",
        "train.probe_every": bool(cell.train.probe_every) and "probes look at examples, and there are none. Use 0",
    }
    return [f"{path}: task {cell.task['name']!r} is a world: {why}." for path, why in asked.items() if why]


def on_meta(cell: Cell, vocabulary: int | None) -> Any:
    """The cell's model, without numbers in it."""
    from hqlt_lab.model.sequence_model import SequenceModel

    with drawing_nothing():
        return SequenceModel(ModelConfig(**cell.model, vocabulary=vocabulary))


@contextmanager
def drawing_nothing() -> Iterator[None]:
    """What is made here has shapes and no numbers."""
    import torch

    from hqlt_lab.model.initialise import Undrawn

    with torch.device("meta"), Undrawn():
        yield


def idle_fast_weights(model: Any, tokens: int, cell: Cell) -> tuple[Sentences, Sentences]:
    """A delay as long as the text: everything trains, and the fast weights silently do nothing."""
    for memory in model.memories:
        schedule = memory.schedule
        first = first_read(schedule.delay, schedule.hold)
        if memory.update_rule is None or first == 0:
            continue
        length = f"the {tokens} tokens of the longest training sequence of task {cell.task['name']!r}"
        if first >= tokens:
            return [
                f"model.timing: with a delay of {first}, not shorter than {length}, the fast weights would never see a "
                f"token. Use a smaller window, or timing 'synchronous'. If it is meant, the arm says: allow: [{IDLE}]."
            ], []
        if 2 * first > tokens:
            return [], [f"model.timing: the fast weights are empty for the first {first} of {length}."]
    return [], []


def first_read(delay: int, hold: int | None) -> int:
    """The first token at which the fast weights hold anything that they may lack at the start; 0: they never wait."""
    if hold is None:
        return delay
    return -(-(delay + 1) // hold) * hold
