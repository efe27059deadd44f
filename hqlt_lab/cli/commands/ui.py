"""`hqlt ui`: serve MLflow's web interface for the runs of this folder."""

import logging
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from hqlt_lab.cli.terminal import completion
from hqlt_lab.cli.terminal.console import console
from hqlt_lab.cli.terminal.shared_options import RunsOption, SetOption, TrackingOption
from hqlt_lab.errors import StoreError

logger = logging.getLogger(__name__)


def serve_ui(
    file: Annotated[
        Path | None,
        typer.Argument(help="Experiment file whose runs to show.", autocompletion=completion.complete_experiment_files),
    ] = None,
    overrides: SetOption = None,
    runs: RunsOption = Path("runs"),
    tracking: TrackingOption = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the server. Default: 5000, or a free port if 5000 is in use."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="Address of the server. With 0.0.0.0, anyone on the network can read and change all runs."),
    ] = "127.0.0.1",
) -> None:
    """Show all runs in MLflow's UI, which only this machine can open unless --host is set.  Stop it with Ctrl-C."""
    from hqlt_lab import api
    from hqlt_lab.study.ledger.study_store import list_studies
    from hqlt_lab.track.ui import network
    from hqlt_lab.track.ui.network import DEFAULT_PORT, select_port
    from hqlt_lab.track.ui.server import serve_ui

    tracking_store = api.resolve_tracking_store(runs, tracking)
    if tracking_store.is_empty and not list_studies(runs):
        if file:
            api.load_experiment(file, overrides or ())  # report errors in the file before suggesting to run it
        raise StoreError(f"{runs}: there are no runs in this folder. Start with: hqlt run {file or 'FILE'}")
    if file and (warning := api.sync_study(file, overrides=overrides or (), runs=runs, tracking=tracking)):
        logger.warning(warning)
    if not tracking_store.is_remote:
        port, requested_port = select_port(host, port), port
        if requested_port is None and port != DEFAULT_PORT:
            logger.info(f"Port {DEFAULT_PORT} is in use; using port {port}.")
        if network.is_public(host):
            logger.warning(network.exposure_warning(host))
    logger.info("Starting the server, which takes a few seconds ...")
    # SIGTERM raises KeyboardInterrupt like Ctrl-C, so that the server is stopped too
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), serve_ui(tracking_store, port, host) as address:
        for name, link in api.list_study_links(address, runs, file):
            console.print(f"{name}: {link}", soft_wrap=True)
        console.print(f"All of MLflow: {address}   Stop with Ctrl-C.", soft_wrap=True)
        threading.Event().wait()
