"""A Ray cluster for tests: nodes on this machine, added and taken away at will."""

import socket

import psutil

PORTS = ("metrics_agent_port", "runtime_env_agent_port", "dashboard_agent_listen_port", "metrics_export_port")


class Nodes:
    """A cluster on this machine, a CPU each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster()
        self.nodes = [self.begin(), self.begin()]

    def begin(self, tries: int = 5):
        """One more node; Ray gives up after 15 seconds where all cores are busy."""
        for left in reversed(range(tries)):
            try:
                return self.add()
            except Exception:
                if not left:
                    raise

    def add(self):
        """A node that is told its ports need not wait until others have found theirs."""
        sockets = [socket.create_server(("", 0)) for _ in PORTS]
        ports = {name: one.getsockname()[1] for name, one in zip(PORTS, sockets, strict=True)}
        for one in sockets:
            one.close()
        bare = {"include_dashboard": False, "no_monitor": True, "include_log_monitor": False}
        return self.cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20, **bare, **ports)

    def at_work(self, node) -> list[psutil.Process]:
        """Who trains on a node."""
        (raylet,) = node.all_processes["raylet"]
        return [one for one in psutil.Process(raylet.process.pid).children() if "ray::work" in " ".join(one.cmdline())]
