"""Ray executor: connect to a Ray cluster, count the cells that fit on it, and train each cell as a Ray task.

    address: null      RAY_ADDRESS, else the cluster that `ray start` left on this machine, else a new local one
    address: local     always a new local one, which ends with the study
    address: auto      RAY_ADDRESS or the cluster that `ray start` left, otherwise an error
    address: HOST:PORT

Ray itself waits for minutes at an address that does not answer, so the address is checked first.

Ray selects a machine for a cell, starts and kills its process, and reports when the task is over.  Everything else is
in the cell's folder on a shared disk: commands and results (`executors.file_mailbox`) and metrics
(`rundir.metrics`).  Ray's own retries are off, because the ledger counts attempts.  A cell whose machine died is
reported as interrupted, because the cell did not cause it; a cell whose process died is reported as lost.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

from hqlt_lab.errors import ConfigError, TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.process_settings import RAY_ENV, set_env_defaults
from hqlt_lab.rundir.metrics import read_rows
from hqlt_lab.study.executors._base import MAX_STARTUP_FAILURES, CellEvent
from hqlt_lab.study.executors.file_mailbox import FileMailbox, Reply
from hqlt_lab.study.executors.ray_task import run_ray_task
from hqlt_lab.study.executors.resources import gpu_fraction
from hqlt_lab.study.executors.worker import make_job_spec
from hqlt_lab.track.provenance import lab_hash

CONNECT_TIMEOUT = 5.0  # seconds
OBJECT_STORE_BYTES = 100 * 2**20  # shared memory of a local cluster: no data pass through it
Resources = Mapping[str, float]
RESOURCE_UNITS = {"CPU": ("CPUs", 1), "GPU": ("GPUs", 1), "memory": ("GB of memory", 2**30)}


def connect_cluster(address: str | None) -> Callable[[], None]:
    """Connect to a cluster, or start one; return a function that disconnects.

    The function is a no-op if this process was connected before.
    """
    try:
        import ray
    except ImportError as error:
        hint = "Install it in the clone with: pip install -c constraints.txt -e '.[ray]'"
        raise ConfigError.at("launcher", "package_not_installed", "the package ray is not installed.", hint) from error
    if ray.is_initialized():
        return lambda: None
    set_env_defaults(RAY_ENV)
    cluster = find_cluster(address)
    options: dict[str, Any] = {"object_store_memory": OBJECT_STORE_BYTES} if cluster == "local" else {}
    silence_ray()
    try:
        ray.init(address=cluster, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray has no exception class for this
        problem = (
            "a Ray cluster on this machine cannot be started" if cluster == "local" else f"{cluster} cannot be joined"
        )
        hint = "" if cluster == "local" else "A cluster with a token needs RAY_AUTH_MODE=token and that token here too."
        message = f"{problem}: {str(error).rstrip('.')}."
        raise ConfigError.at("launcher.address", "cluster_cannot_be_joined", message, hint) from error
    return ray.shutdown


def silence_ray() -> None:
    """Stop Ray from printing worker failures, which no option prevents; the ledger and the logs have them."""
    from ray._private import worker

    worker.print_to_stdstream = lambda *_, **__: None


def find_cluster(address: str | None) -> str:
    """Return HOST:PORT of a reachable cluster, or "local"."""
    if address and "://" in address:
        message = f"{address} is an address for Ray's client."
        hint = "Run the command on a machine of the cluster, with HOST:PORT."
        raise ConfigError.at("launcher.address", "ray_client_address", message, hint)
    requested = address if address not in (None, "auto") else os.environ.get("RAY_ADDRESS") or None
    if requested == "local":
        return "local"
    cluster = requested if requested not in (None, "auto") else read_current_cluster()
    if cluster and is_reachable(cluster):
        return cluster
    if requested is None and address is None:
        return "local"
    message = f"no Ray cluster answers at {cluster}." if cluster else "no Ray cluster runs on this machine."
    hint = "Start one with `ray start --head`, or set `address: local` to use only this machine."
    raise ConfigError.at("launcher.address", "cluster_not_found", message, hint)


def read_current_cluster() -> str | None:
    """Return the address of the cluster that `ray start` left on this machine, from the file that Ray documents."""
    file = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray/ray_current_cluster")
    return file.read_text().strip() if file.is_file() else None


def is_reachable(address: str) -> bool:
    """Return whether HOST:PORT accepts connections."""
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError), socket.create_connection((host, int(port)), CONNECT_TIMEOUT):
        return True
    return False


def list_nodes() -> list[Resources]:
    """Return the resources of each live node of the cluster."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def make_resource_request(cpus: float, gpus: float, memory: float | None) -> dict[str, float]:
    """Return the resources of a cell under Ray's names; `memory` is in GB."""
    request = {"CPU": cpus, "GPU": float(gpu_fraction(gpus)), "memory": (memory or 0) * RESOURCE_UNITS["memory"][1]}
    return {name: amount for name, amount in request.items() if amount}


def count_slots(request: Resources, nodes: Iterable[Resources]) -> int:
    """Return how many cells with this request fit on the nodes."""
    return sum(min(slots_per_resource(name, request[name], node.get(name, 0)) for name in request) for node in nodes)


def slots_per_resource(name: str, requested: float, available: float) -> int:
    """Return how many cells one resource of a node allows; a fraction of a GPU must come from a single GPU."""
    share, total = Fraction(str(requested)), Fraction(str(available))
    return floor(total) * floor(1 / share) if name == "GPU" and share < 1 else floor(total / share)


def require_slots(request: Resources, nodes: list[Resources]) -> int:
    """Return how many cells fit; raise if none does, because Ray would wait forever."""
    if slots := count_slots(request, nodes):
        return slots
    largest = {name: max((node.get(name, 0) for node in nodes), default=0) for name in RESOURCE_UNITS}
    message = f"a cell needs {format_resources(request)}, and no machine of the cluster has that."
    hint = f"The largest resources of any machine are {format_resources(largest)}."
    raise ConfigError.at("launcher", "cluster_too_small", message, hint)


def format_resources(resources: Resources) -> str:
    """Return, for example, "64 CPUs, 1 GPUs"."""
    return ", ".join(
        f"{resources[name] / unit:.4g} {label}" for name, (label, unit) in RESOURCE_UNITS.items() if name in resources
    )


KILLED_MESSAGE = "The worker process on {machine} was killed, probably because the machine ran out of memory."


@dataclass(eq=False)
class RayTask:
    """A cell submitted to Ray."""

    key: str
    cell: Cell
    request: Resources
    mailbox: FileMailbox
    metrics_offset: int  # bytes of metrics.jsonl already reported
    object_ref: Any = None
    started_at: float | None = None  # when its process started; None while it waits for resources
    stop_requested: bool = False  # to save a checkpoint and stop
    kill_reason: str = ""  # set if the coordinator killed it


class RayExecutor:
    """Trains up to `max_tasks` cells at once, if the cluster has the resources; calls `disconnect` in `close`."""

    def __init__(
        self,
        request_for_cell: Callable[[Cell], Resources],
        threads: int,
        workers: int,
        time_limit: float | None,
        disconnect: Callable[[], None],
        max_tasks: int | None = None,
    ) -> None:
        self.request_for_cell, self.threads, self.workers = request_for_cell, threads, workers
        self.time_limit, self.disconnect, self.max_tasks = time_limit, disconnect, max_tasks
        self.tasks: dict[str, RayTask] = {}
        self.startup_failures = 0

    def can_start(self, cell: Cell) -> bool:
        """Return whether another cell fits on the cluster: a cell uses 1 / slots of it.

        Without running tasks always True: a submitted cell may wait for a machine that comes back.
        """
        if not self.tasks:
            return True
        nodes = list_nodes()
        requests = [self.request_for_cell(cell), *(task.request for task in self.tasks.values())]
        slots = [count_slots(request, nodes) for request in requests]
        utilization = sum(Fraction(1, count) if count else 1 for count in slots)
        return utilization <= 1 and (self.max_tasks is None or len(self.tasks) < self.max_tasks)

    def start_cell(self, key: str, cell: Cell, folder: Path, attempt: int) -> None:
        """Submit a cell as a Ray task."""
        task = RayTask(key, cell, self.request_for_cell(cell), FileMailbox.create(folder), read_rows(folder)[1])
        job_spec = make_job_spec(cell, folder, attempt, visible_devices="")  # Ray sets CUDA_VISIBLE_DEVICES
        job_spec |= {"token": task.mailbox.token, "working_dir": os.getcwd(), "lab_hash": lab_hash()}
        job_spec |= {"threads": self.threads}
        task.object_ref = make_remote_task(task.request).remote(job_spec)
        self.tasks[key] = task

    def poll_events(self, timeout: float) -> Iterator[CellEvent]:
        """Yield the events since the last call; wait up to `timeout` seconds for a task to end."""
        import ray

        self.kill_overdue()
        by_ref = {task.object_ref: task for task in self.tasks.values()}
        if not by_ref:
            time.sleep(timeout)  # other workers of a shared study still train cells
            return
        finished = ray.wait(list(by_ref), timeout=timeout)[0]
        for task in list(self.tasks.values()):
            yield from self.poll_task(task)
        for task in (by_ref[ref] for ref in finished):
            del self.tasks[task.key]
            yield CellEvent(task.key, *self.task_result(task))

    def poll_task(self, task: RayTask) -> Iterator[CellEvent]:
        """Note when the task starts; yield its new metrics: those with the selection metric, and the latest."""
        if task.started_at is None and "started" in task.mailbox.read_replies():
            task.started_at, self.startup_failures = time.monotonic(), 0
        rows, task.metrics_offset = read_rows(task.mailbox.folder, task.metrics_offset)
        for row in rows:
            if task.cell.measure.select in row.metrics or row is rows[-1]:
                yield CellEvent(task.key, "metrics", {"step": row.step, "metrics": row.metrics})

    def task_result(self, task: RayTask) -> Reply:
        """Return how a finished task ended: its own reply if there is one, otherwise derived from Ray's error."""
        obstacle, error = get_task_return(task.object_ref)
        if reply := task.mailbox.read_result():
            return reply
        if obstacle:
            return "blocked", {"why": obstacle}
        if task.kill_reason:
            return "lost", {"why": task.kill_reason}
        if is_external_failure(error):
            return "interrupted", {}
        if started := task.mailbox.read_replies().get("started"):
            return "lost", {"why": str(getattr(error, "cause", "")) or KILLED_MESSAGE.format(**started)}
        return self.handle_startup_failure(error)

    def handle_startup_failure(self, error: Exception | None) -> Reply:
        """Count a task that died before it started, which is not caused by the cell; raise after several in a row."""
        self.startup_failures += 1
        if self.startup_failures >= MAX_STARTUP_FAILURES:
            last_line = (str(error).strip().splitlines() or [""])[-1]
            raise TrainingError(
                f"launcher: {self.startup_failures} tasks died during startup. {last_line} The same version of "
                "hqlt_lab must be installed on every machine of the cluster."
            )
        return "interrupted", {}

    def kill_overdue(self) -> None:
        """Kill tasks that exceed the time limit, which does not include waiting for resources."""
        for task in self.tasks.values():
            if (
                self.time_limit
                and task.started_at
                and not task.kill_reason
                and time.monotonic() - task.started_at > self.time_limit
            ):
                task.kill_reason = f"The cell exceeded the time limit of {self.time_limit:g} s."
                cancel_task(task, force=True)

    def request_prune(self, key: str) -> None:
        """Request a task to stop because of bad results; a `pruned` event follows."""
        if key in self.tasks:
            self.tasks[key].mailbox.send_command("prune")

    def interrupt_all(self) -> None:
        """Request every task to save a checkpoint and stop, each once; tasks that wait for resources are canceled."""
        for task in self.tasks.values():
            if not task.stop_requested:
                task.stop_requested = True
                task.mailbox.send_command("stop")
                if task.started_at is None:
                    cancel_task(task, force=False)

    def kill_all(self) -> None:
        for task in self.tasks.values():
            cancel_task(task, force=True)

    def close(self) -> None:
        """Kill the remaining tasks and disconnect from the cluster."""
        self.kill_all()
        self.disconnect()


def make_remote_task(request: Resources) -> Any:
    """Return the Ray remote function for this request, without Ray's own retries: the ledger counts attempts."""
    import ray

    options: dict[str, Any] = {"num_cpus": request["CPU"], "num_gpus": request.get("GPU", 0), "max_retries": 0}
    if "memory" in request:
        options["memory"] = int(request["memory"])
    return ray.remote(**options)(run_ray_task)


def get_task_return(object_ref: Any) -> tuple[str, Exception | None]:
    """Return what a finished task returned (why its machine could not run it, or "") and Ray's error, if any."""
    import ray
    from ray.exceptions import RayError

    try:
        return ray.get(object_ref), None
    except RayError as error:
        return "", error


def is_external_failure(error: Exception | None) -> bool:
    """Return whether the machine died or the task was canceled before it started."""
    from ray.exceptions import NodeDiedError, TaskCancelledError

    return isinstance(error, NodeDiedError | TaskCancelledError)


def cancel_task(task: RayTask, force: bool) -> None:
    """Cancel a task; with `force` its process is killed."""
    import ray

    ray.cancel(task.object_ref, force=force)
