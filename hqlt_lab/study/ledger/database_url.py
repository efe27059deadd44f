"""URL of a study's database: parse and compare it, hide its password, and record it in store.json."""

import json
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hqlt_lab.errors import StoreError
from hqlt_lab.files import fsync_path, read_json, temp_path, write_temp

if TYPE_CHECKING:
    from sqlalchemy import URL


def resolve_url(env_url: str, recorded_url: str, file: Path) -> "URL":
    """Return the URL from $HQLT_STORE or from store.json; raise if they name different databases."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        from_env, recorded = (make_url(text) if text else None for text in (env_url, recorded_url))
    except ArgumentError:
        raise StoreError(
            "$HQLT_STORE: this is not a database URL. Use the form postgresql://USER@HOST/DATABASE."
        ) from None
    if (url := from_env or recorded) is None:
        raise StoreError(
            f"{file}: the file is damaged: it does not contain the database URL of the study. Set it: export "
            "HQLT_STORE=..."
        )
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise StoreError(
            f"$HQLT_STORE: a shared study requires PostgreSQL, not {url.get_backend_name()}. Use the form "
            "postgresql://USER@HOST/DATABASE."
        )
    if from_env and recorded and database_identity(from_env) != database_identity(recorded):
        raise StoreError(
            f"{file}: this study is stored in {redact_url(recorded)}, but $HQLT_STORE is {redact_url(from_env)}."
        )
    return url.set(drivername="postgresql+psycopg")


def database_identity(url: "URL") -> tuple[Any, ...]:
    """Return what is equal for two URLs of the same database, whatever their user, password and options."""
    query_values = (url.query.get(name) for name in ("host", "port", "dbname", "service"))
    return url.host, url.port or 5432, url.database, *query_values


def redact_url(url: "URL") -> str:
    """Return the URL without its password, for messages and files."""
    without_password = url.difference_update_query(["password", "sslpassword"])
    return without_password._replace(drivername="postgresql", password=None).render_as_string()


def create_namespace(file: Path, url: "URL") -> str:
    """Write store.json with a new namespace unless another process was first, and return the namespace."""
    note = {"namespace": f"{file.parent.name}-{uuid.uuid4().hex[:12]}", "url": redact_url(url)}
    temp_file = temp_path(file)
    write_temp(temp_file, (json.dumps(note, indent=1) + "\n").encode())
    fsync_path(temp_file)  # an empty file after a power cut would hide all attempts in the database
    with suppress(FileExistsError):  # another process was faster
        os.link(temp_file, file)
    temp_file.unlink()
    fsync_path(file.parent)
    return str(read_store_note(file)["namespace"])


def read_store_note(file: Path) -> Mapping[str, Any]:
    """Return the contents of store.json, or an empty mapping if the study is not in a database."""
    if not file.exists():
        return {}
    remedy = (
        f"It contained the study's namespace, {file.parent.name}-..., the prefix of all its names in the database "
        "(`select study_name from studies`). Write the file again, with the database URL: "
        '{"namespace": "...", "url": "postgresql://USER@HOST/DATABASE"}'
    )
    return read_json(file, dict, remedy=remedy)
