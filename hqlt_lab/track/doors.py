"""Who may reach the server behind `hqlt ui`.

By default this machine alone.  Asked to, the server listens to the network; it still answers only requests that call
this machine by one of its own names, and takes changes only from pages that it served itself: a page elsewhere on the
web cannot use a visitor's browser to reach it.  There is no login: whoever reaches it may read and change runs.
"""

import os
import socket
from collections.abc import Iterator

HERE = "127.0.0.1"
EVERYWHERE = ("0.0.0.0", "::", "")
LOCAL = ("localhost", HERE, "::1")


def is_open(host: str) -> bool:
    """Whether others than this machine can reach a server there."""
    return host not in LOCAL and not host.startswith("127.")


def warning(host: str) -> str:
    """What to know before others can reach it."""
    where = "on every network of this machine" if host in EVERYWHERE else f"at {host}"
    return (
        f"The server listens {where}: everybody who reaches it can read and change all runs, without a password. "
        "On a network with others, leave --host out and use `ssh -L 5000:127.0.0.1:5000` instead."
    )


def address(host: str, port: int) -> str:
    """Where to look at it, from anywhere that reaches it."""
    name = host if host not in EVERYWHERE else next(own_addresses(), HERE)
    return f"http://{bracketed(name)}:{port}"


def knocked_at(host: str, port: int) -> str:
    """Where this machine asks whether it is there."""
    return f"http://{bracketed(HERE if host in EVERYWHERE else host)}:{port}"


def names(host: str) -> list[str]:
    """By what it may be called, in the address line of a browser."""
    others = [socket.gethostname(), *own_addresses()] if host in EVERYWHERE else [host]
    return list(dict.fromkeys(bracketed(name) for name in (*LOCAL, *others)))


def settings(host: str, port: int) -> dict[str, str]:
    """What MLflow is told about it; the user's own settings stay, for a server behind another."""
    if not is_open(host):
        return {}
    called = names(host)
    told = {
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(name for one in called for name in (one, f"{one}:{port}")),
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": ",".join(f"http://{one}:{port}" for one in called),
    }
    return {name: value for name, value in told.items() if name not in os.environ}


def own_addresses() -> Iterator[str]:
    """Of this machine in its networks."""
    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    for card in (card for cards in psutil.net_if_addrs().values() for card in cards):
        if card.family in families and not card.address.startswith(("127.", "::1", "fe80")):
            yield card.address


def family(host: str) -> socket.AddressFamily:
    """Of which kind an address is."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def bracketed(name: str) -> str:
    """An IPv6 address as it stands in a URL."""
    return f"[{name}]" if ":" in name else name
