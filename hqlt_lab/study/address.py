"""Where a study's database is: read, compared, shown without its password, noted in the study's folder."""

import json
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hqlt_lab.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy import URL


def address(given: str, noted: str, file: Path) -> "URL":
    """The database of the environment, or the one that the study noted; both must be the same."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        told, known = (make_url(one) if one else None for one in (given, noted))
    except ArgumentError:
        raise StoreError("$HQLT_STORE: this is no address. It has the form postgresql://USER@HOST/DATABASE.") from None
    url = told or known
    assert url is not None
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise StoreError(
            f"$HQLT_STORE: programs that share a study need PostgreSQL, not {url.get_backend_name()}. "
            "It has the form postgresql://USER@HOST/DATABASE."
        )
    if told and known and place(told) != place(known):
        raise StoreError(f"{file}: this study is kept in {shown(known)}, and $HQLT_STORE names {shown(told)}.")
    return url.set(drivername="postgresql+psycopg")


def place(url: "URL") -> tuple[Any, ...]:
    """What makes two addresses the same database."""
    return url.host, url.port, url.database, tuple(sorted(url.query.items()))


def shown(url: "URL") -> str:
    """For people and files: without its password."""
    return url._replace(drivername="postgresql", password=None).render_as_string()


def signed(file: Path, url: "URL") -> str:
    """The study's own sign in the database, which the first who asks for it makes."""
    told = {"sign": f"{file.parent.name}-{uuid.uuid4().hex[:12]}", "url": shown(url)}
    written = file.with_name(f"{file.name}.{os.getpid()}.writing")
    written.write_text(json.dumps(told, indent=1) + "\n")
    with suppress(FileExistsError):  # somebody was faster
        os.link(written, file)
    written.unlink()
    return str(json.loads(file.read_text())["sign"])
