"""A Ray cluster for tests: nodes on this machine that can be added and removed."""

import socket

import psutil

PORTS = ("metrics_agent_port", "runtime_env_agent_port", "dashboard_agent_listen_port", "metrics_export_port")


class RayNodes:
    """A cluster of two nodes on this machine, with one CPU each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster()
        self.nodes = [self.start_node(), self.start_node()]

    def start_node(self, attempts: int = 5):
        """Add a node; retry, because Ray raises after 15 seconds when all cores are busy."""
        for remaining in reversed(range(attempts)):
            try:
                return self.add_node()
            except Exception:
                if not remaining:
                    raise

    def add_node(self):
        """Add a node with given ports, which starts faster than one that has to wait for its processes to find some."""
        sockets = [socket.create_server(("", 0)) for _ in PORTS]
        ports = {name: server.getsockname()[1] for name, server in zip(PORTS, sockets, strict=True)}
        for server in sockets:
            server.close()
        minimal = {"include_dashboard": False, "no_monitor": True, "include_log_monitor": False}
        return self.cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20, **minimal, **ports)

    def training_processes(self, node) -> list[psutil.Process]:
        """Return the processes that train cells on a node."""
        (raylet,) = node.all_processes["raylet"]
        children = psutil.Process(raylet.process.pid).children()
        return [child for child in children if "ray::run_ray_task" in " ".join(child.cmdline())]
