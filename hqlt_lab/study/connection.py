"""Connections to PostgreSQL: few of them, noticed soon when they break, and told in a sentence."""

from typing import TYPE_CHECKING, Any

from hqlt_lab.errors import StoreError
from hqlt_lab.track.knock import first_line

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

# one that broke is noticed before it is used, and one that falls silent within half a minute
ALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
CONNECTIONS: dict[str, Any] = {
    "pool_pre_ping": True, "pool_size": 2, "connect_args": {"connect_timeout": 10, **ALIVE},
}  # fmt: skip


def engine_for(url: "URL") -> "Engine":
    """Connections to a database."""
    from sqlalchemy import create_engine

    try:
        return create_engine(url, **CONNECTIONS)
    except ModuleNotFoundError as error:
        raise StoreError(
            "A study in PostgreSQL needs a driver. In the clone: pip install -c constraints.txt -e '.[postgres]'"
        ) from error


def away(error: BaseException) -> bool:
    """Whether it is the connection, and not what was said."""
    from sqlalchemy.exc import InterfaceError, OperationalError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OperationalError | InterfaceError) or getattr(cause, "connection_invalidated", False):
            return True
        cause = cause.__cause__
    return False


def cause(error: BaseException) -> str:
    """What went wrong, in the words of the driver."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)
