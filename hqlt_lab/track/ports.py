"""Where the server behind `hqlt ui` listens: at the port that was asked for, or at one that is free."""

import errno
import socket

from hqlt_lab.errors import StoreError
from hqlt_lab.track import doors

PORT = 5000  # MLflow's own


def port_for(host: str, asked: int | None) -> int:
    """The one that was asked for, or a sentence on why not; asked for none, the usual one, or else any."""
    if asked is None:
        return PORT if trouble_at(host, PORT) is None else any_port(host)
    trouble = trouble_at(host, asked)
    if trouble is None:
        return asked
    if trouble.errno == errno.EADDRINUSE:
        raise StoreError(f"--port {asked}: it is in use. Take another; without --port, one that is free is found.")
    any_port(host)  # where nothing can listen at all, it is not the port's fault
    raise StoreError(f"--port {asked}: this machine does not let it be used ({trouble.strerror}). Take another.")


def trouble_at(host: str, port: int) -> OSError | None:
    """Why one cannot listen there, or None."""
    with socket.socket(doors.family(host)) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((host, port))
        except OSError as error:
            return error
    return None


def any_port(host: str) -> int:
    """A port that nobody uses now."""
    with socket.socket(doors.family(host)) as door:
        try:
            door.bind((host, 0))
        except OSError as error:
            raise StoreError(f"--host {host}: this machine cannot listen there ({error.strerror}).") from error
        return int(door.getsockname()[1])
