"""The ASGI application of the MLflow server behind `hqlt ui`: MLflow's own, behind a check of Host and Origin.

MLflow 3 has such a check, with two gaps.  Its host patterns end in `*`, so `localhost:*` also matches the host
localhost:1.evil.com.  And it accepts requests from pages of every server on localhost, whatever origins are allowed.
"""

import os
import re
from collections.abc import Awaitable, Callable, MutableMapping
from fnmatch import fnmatchcase
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

HOST_SYNTAX = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")  # an optional port is a number


class RequestCheck:
    """Middleware that responds with 403 to a malformed Host, and to every request of a page of another origin."""

    def __init__(self, app: AsgiApp, allowed_origins: list[str]) -> None:
        self.app, self.allowed_origins = app, allowed_origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
        if scope["type"] == "lifespan" or self.is_accepted(headers.get(b"host", ""), headers.get(b"origin")):
            await self.app(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"The request is from another host or origin."})

    def is_accepted(self, host: str, origin: str | None) -> bool:
        """Return whether a request may pass.  Clients other than browsers send no Origin."""
        if not HOST_SYNTAX.fullmatch(host):
            return False
        # a page of this server has the request's own host as its origin, also behind a tunnel with another port
        own_origins = (f"http://{host}", f"https://{host}")
        return origin in (None, *own_origins) or any(fnmatchcase(origin, allowed) for allowed in self.allowed_origins)


def create_app() -> AsgiApp:
    """Return the application for the store in MLFLOW_BACKEND_STORE_URI, as `mlflow server` configures it."""
    from mlflow.server import constants, handlers

    uri = os.environ["MLFLOW_BACKEND_STORE_URI"]
    artifact_root = os.environ.get("MLFLOW_DEFAULT_ARTIFACT_ROOT") or "mlflow-artifacts:/"
    os.environ |= {
        constants.BACKEND_STORE_URI_ENV_VAR: uri,
        constants.REGISTRY_STORE_URI_ENV_VAR: uri,
        constants.ARTIFACT_ROOT_ENV_VAR: artifact_root,
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
        constants.ARTIFACTS_DESTINATION_ENV_VAR: os.environ.get("MLFLOW_ARTIFACTS_DESTINATION", "./mlartifacts"),
    }
    handlers.initialize_backend_stores(uri, uri, artifact_root)  # a damaged store fails now, not at the first request
    from mlflow.server.fastapi_app import app

    origins = os.environ.get("MLFLOW_SERVER_CORS_ALLOWED_ORIGINS", "").split(",")
    return RequestCheck(app, [origin.strip() for origin in origins])
