"""A Ray cluster: how it is found, and how many cells it has room for.

    address: null      RAY_ADDRESS, else the cluster that `ray start` left on this machine, else one of our own
    address: local     always one of our own, which ends with the study
    address: auto      RAY_ADDRESS or what `ray start` left, and nothing else
    address: HOST:PORT

Ray itself waits for minutes for an address at which nobody answers; so we knock first.
"""

import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

from hqlt_lab.errors import ConfigError
from hqlt_lab.study.machine import share

KNOCK = 5.0  # seconds
STORE = 100 * 2**20  # bytes of shared memory for a cluster of our own: no data pass through it
Resources = Mapping[str, float]
UNITS = {"CPU": ("CPUs", 1), "GPU": ("GPUs", 1), "memory": ("GB of memory", 2**30)}


def connect(address: str | None) -> Callable[[], None]:
    """Join a cluster, or start one; how to leave it, which is nothing if this process had joined it before."""
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            "launcher: Ray is not installed. Get it, in the clone: pip install -c constraints.txt -e '.[ray]'"
        ) from error
    if ray.is_initialized():
        return lambda: None
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # a cell that asked for no GPU sees none
    os.environ.setdefault("RAY_worker_niceness", "0")  # in a cluster of our own: else cells would give way to everyone
    where = find(address)
    words: dict[str, Any] = {"object_store_memory": STORE} if where == "local" else {}
    silence()
    try:
        ray.init(address=where, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **words)
    except Exception as error:  # Ray has no class of its own for it
        what = "a Ray cluster on this machine cannot be started" if where == "local" else f"{where} cannot be joined"
        hint = "" if where == "local" else " A cluster with a token needs RAY_AUTH_MODE=token and that token here too."
        raise ConfigError(f"launcher.address: {what}. {error}.{hint}".replace("..", ".")) from error
    return ray.shutdown


def silence() -> None:
    """Ray prints what becomes of its workers into our output, whatever it was told; it is in the ledger and logs."""
    from ray._private import worker

    worker.print_to_stdstream = lambda *_, **__: None


def find(address: str | None) -> str:
    """Where to go: HOST:PORT of someone who answers, or "local"."""
    if address and "://" in address:
        raise ConfigError(
            f"launcher.address: {address} is for Ray's client. Run this on a machine of the cluster, with HOST:PORT."
        )
    told = address if address not in (None, "auto") else os.environ.get("RAY_ADDRESS") or None
    if told == "local":
        return "local"
    found = told if told not in (None, "auto") else latest()
    if found and answers(found):
        return found
    if told is None and address is None:
        return "local"
    where = f"at {found} nobody answers" if found else "no Ray cluster runs on this machine"
    raise ConfigError(
        f"launcher.address: {where}. Start one with `ray start --head`, or say `address: local` for this machine alone."
    )


def latest() -> str | None:
    """The cluster that `ray start` left on this machine, as Ray documents it."""
    file = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray/ray_current_cluster")
    return file.read_text().strip() if file.is_file() else None


def answers(address: str) -> bool:
    """Whether anybody listens there."""
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError), socket.create_connection((host, int(port)), KNOCK):
        return True
    return False


def machines() -> list[Resources]:
    """What each living machine of the cluster has."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def request(cpus: float, gpus: float, memory: float | None) -> dict[str, float]:
    """What a cell takes, in Ray's words; memory is told in GB."""
    need = {"CPU": cpus, "GPU": float(share(gpus)), "memory": (memory or 0) * UNITS["memory"][1]}
    return {name: amount for name, amount in need.items() if amount}


def places(need: Resources, machines: Iterable[Resources]) -> int:
    """How many such cells fit on these machines."""
    return sum(min(fitting(name, need[name], one.get(name, 0)) for name in need) for one in machines)


def fitting(name: str, need: float, there: float) -> int:
    """How many fit by one resource; a part of a GPU is a part of one GPU."""
    part, whole = Fraction(str(need)), Fraction(str(there))
    return floor(whole) * floor(1 / part) if name == "GPU" and part < 1 else floor(whole / part)


def room(need: Resources, machines: list[Resources]) -> int:
    """The same, where it is at least one; for what no machine has Ray would wait for ever."""
    if fitting := places(need, machines):
        return fitting
    most = {name: max((one.get(name, 0) for one in machines), default=0) for name in UNITS}
    raise ConfigError(
        f"launcher: a cell asks for {in_words(need)}, and no machine of the cluster has that. "
        f"The most that any of them has: {in_words(most)}."
    )


def in_words(resources: Resources) -> str:
    """64 CPUs, 1 GPUs."""
    return ", ".join(
        f"{resources[name] / unit:.4g} {words}" for name, (words, unit) in UNITS.items() if name in resources
    )
