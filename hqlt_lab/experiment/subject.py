"""What a complaint is about: the paths at which to look for it, the best first.

    model.widht: there is no such setting.                  model.widht, or else model
    task: task 'parity' has no option 'lenght'.             task.lenght, or else task
    arms.b: 'modl.mixer' cannot be set.                     arms.b.modl.mixer, or else arms.b

In an arm, a path is looked for where the arm sets it, or an axis, before it is looked for in the base.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hqlt_lab.experiment.change import PART_PATHS
from hqlt_lab.experiment.places import above

if TYPE_CHECKING:
    from hqlt_lab.experiment.experiment import Arm

OPTION = re.compile(r"has no option '([^']+)'|^'([^']+)' cannot be set")


def subjects(sentence: str, arm: "Arm | None" = None) -> Iterator[str]:
    """Paths that may be written somewhere."""
    told, _, rest = sentence.partition(": ")
    places = told.split(", ")
    exact = [f"{place}.{word}" for place in places for word in words(rest)] + places
    for path in exact:
        for holder in holders(arm):
            if holder or not replaced(path, arm):
                yield f"{holder}{path}"
    if arm is not None and sentence.startswith("arms "):
        yield f"arms.{arm.name}"
    for place in places:
        yield from above(place)


def replaced(path: str, arm: "Arm | None") -> bool:
    """Whether the arm has another part in the place of the one that the base has there."""
    parts = [one for one in (path, *above(path)) if one in PART_PATHS]
    return arm is not None and any(one in arm.changes or one in arm.levels for one in parts)


def words(rest: str) -> Iterator[str]:
    """What the rest of a sentence names: an option, the part itself, or the end of a path."""
    if found := OPTION.search(rest):
        yield found[1] or found[2]
    if " is called " in rest:
        yield "name"
    if ": " in rest:
        yield rest.partition(": ")[0]


def holders(arm: "Arm | None") -> Iterator[str]:
    """What may change the base in an arm, the last first."""
    if arm is not None:
        yield "tune."
        yield from ("cross.", "one_at_a_time.") if arm.levels else ()
        yield f"arms.{arm.name}."
    yield ""
