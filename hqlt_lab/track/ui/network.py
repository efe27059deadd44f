"""Network settings of the server behind `hqlt ui`: host, port, and which requests it accepts.

By default the server listens on the loopback interface, with --host on the network.  In both cases it accepts only
requests with one of its own names as host, and from browsers only those of pages that it served itself.  So a page
elsewhere on the web, or of another server on this machine, cannot use a visitor's browser to reach it (DNS rebinding,
cross-site requests).  There is no login: everyone who can reach the server may read and change runs.
"""

import errno
import os
import socket
from collections.abc import Iterator

from hqlt_lab.errors import StoreError

LOOPBACK_HOST = "127.0.0.1"
WILDCARD_HOSTS = ("0.0.0.0", "::", "")
LOCAL_HOSTS = ("localhost", LOOPBACK_HOST, "::1")


def is_public(host: str) -> bool:
    """Return whether a server on this host is reachable from other machines."""
    return host not in LOCAL_HOSTS and not host.startswith("127.")


def exposure_warning(host: str) -> str:
    """Return the warning for a server that is reachable from other machines."""
    where = "on every network of this machine" if host in WILDCARD_HOSTS else f"at {host}"
    return (
        f"The server listens {where}: anyone who can connect can read and change all runs without a password. On a "
        "shared network, omit --host and use `ssh -L 5000:127.0.0.1:5000` instead."
    )


def server_url(host: str, port: int) -> str:
    """Return the URL for browsers, also on other machines."""
    name = host if host not in WILDCARD_HOSTS else next(local_addresses(), LOOPBACK_HOST)
    return f"http://{bracket_ipv6(name)}:{port}"


def health_url(host: str, port: int) -> str:
    """Return the URL for health checks from this machine."""
    return f"http://{bracket_ipv6(LOOPBACK_HOST if host in WILDCARD_HOSTS else host)}:{port}"


def allowed_hosts(host: str) -> list[str]:
    """Return the host names by which the server may be requested."""
    server_hosts = [socket.gethostname(), *local_addresses()] if host in WILDCARD_HOSTS else [host]
    return list(dict.fromkeys(bracket_ipv6(name) for name in (*LOCAL_HOSTS, *server_hosts)))


def server_env(host: str, port: int) -> dict[str, str]:
    """Return environment variables of the MLflow server; those set by the user are left out (e.g. behind a proxy)."""
    hosts = allowed_hosts(host)
    names = [name for allowed in hosts for name in (allowed, f"{allowed}:{port}")]
    names += ["localhost:*", f"{LOOPBACK_HOST}:*"]  # a tunnel may have another port; `RequestCheck` requires a number
    env = {
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(names),
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": ",".join(f"http://{allowed}:{port}" for allowed in hosts),
    }
    return {name: value for name, value in env.items() if name not in os.environ}


def local_addresses() -> Iterator[str]:
    """Yield the IP addresses of this machine, without loopback and link-local ones."""
    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    for entry in (entry for entries in psutil.net_if_addrs().values() for entry in entries):
        if entry.family in families and not entry.address.startswith(("127.", "::1", "fe80")):
            yield entry.address


def address_family(host: str) -> socket.AddressFamily:
    """Return whether a host is an IPv6 address or anything else (IPv4)."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def bracket_ipv6(name: str) -> str:
    """Return a host name as it is written in a URL: IPv6 addresses in brackets."""
    return f"[{name}]" if ":" in name else name


DEFAULT_PORT = 5000  # MLflow's default


def select_port(host: str, requested_port: int | None) -> int:
    """Return the requested port, or raise StoreError if it cannot be used; without one, the default or a free port."""
    if requested_port is None:
        return DEFAULT_PORT if bind_error(host, DEFAULT_PORT) is None else find_free_port(host)
    error = bind_error(host, requested_port)
    if error is None:
        return requested_port
    if error.errno == errno.EADDRINUSE:
        raise StoreError(
            f"--port {requested_port}: the port is in use. Use another port, or omit --port to use a free one."
        )
    find_free_port(host)  # raises if the host is the problem and not the port
    raise StoreError(f"--port {requested_port}: the port cannot be used ({error.strerror}). Use another port.")


def bind_error(host: str, port: int) -> OSError | None:
    """Return the error of listening on a port, or None if it is possible."""
    with socket.socket(address_family(host)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            return error
    return None


def find_free_port(host: str) -> int:
    """Return a port that is free at the moment.  Raise StoreError if it is impossible to listen on this host."""
    with socket.socket(address_family(host)) as listener:
        try:
            listener.bind((host, 0))
        except OSError as error:
            raise StoreError(
                f"--host {host}: this machine cannot listen at this address ({error.strerror})."
            ) from error
        return int(listener.getsockname()[1])
