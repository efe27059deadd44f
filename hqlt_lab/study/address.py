"""Where a study's database is: read, compared, shown without its password, noted in the study's folder."""

import json
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hqlt_lab.errors import StoreError
from hqlt_lab.files import begin, beside, flush

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
    if (url := told or known) is None:
        raise StoreError(f"{file}: it is damaged, as it does not say where the study is kept. export HQLT_STORE=...")
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise StoreError(
            f"$HQLT_STORE: programs that share a study need PostgreSQL, not {url.get_backend_name()}. "
            "It has the form postgresql://USER@HOST/DATABASE."
        )
    if told and known and place(told) != place(known):
        raise StoreError(f"{file}: this study is kept in {shown(known)}, and $HQLT_STORE names {shown(told)}.")
    return url.set(drivername="postgresql+psycopg")


def place(url: "URL") -> tuple[Any, ...]:
    """What makes two addresses the same database, however one logs in there."""
    named = (url.query.get(name) for name in ("host", "port", "dbname", "service"))
    return url.host, url.port or 5432, url.database, *named


def shown(url: "URL") -> str:
    """For people and files: without its password."""
    bare = url.difference_update_query(["password", "sslpassword"])
    return bare._replace(drivername="postgresql", password=None).render_as_string()


def signed(file: Path, url: "URL") -> str:
    """The study's own sign in the database, which the first who asks for it makes."""
    told = {"sign": f"{file.parent.name}-{uuid.uuid4().hex[:12]}", "url": shown(url)}
    written = beside(file)
    begin(written, (json.dumps(told, indent=1) + "\n").encode())
    flush(written)  # an empty note after a power cut would hide all that is in the database
    with suppress(FileExistsError):  # somebody was faster
        os.link(written, file)
    written.unlink()
    flush(file.parent)
    return str(noted(file)["sign"])


def noted(file: Path) -> Mapping[str, Any]:
    """What a study's folder says of its database: nothing before it is in one."""
    try:
        told = json.loads(file.read_text()) if file.exists() else {}
        if isinstance(told, Mapping):
            return told
        why = "it is no mapping"
    except ValueError as error:
        why = str(error)
    raise StoreError(
        f"{file}: it is damaged ({why}). It had the study's sign, {file.parent.name}-..., by which all names of the "
        "study in the database begin (`select study_name from studies`). Write it anew, with the address: "
        '{"sign": "...", "url": "postgresql://USER@HOST/DATABASE"}'
    )
