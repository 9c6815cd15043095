"""`hullcast server`: the commit log, the engine and the root of the overlay, in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.broker.server.service import Server
from hullcast.broker.server.settings import ServerSettings
from hullcast.broker.server.status import server_status
from hullcast.broker.server.warming import warm_server
from hullcast.clients.cli.commands.serving import add_process_arguments, prepare
from hullcast.clients.processes.running import Running, announcer, leave, reporter, serve
from hullcast.network.settings.flags import add_flags

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from prometheus_client.metrics_core import Metric
    from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A flag for each setting, and how the process shows itself."""
    parser.description = (
        "Runs the database server: it keeps the rows, writes the commit log, and feeds nodes and clients. When it "
        "is ready it prints one line on standard output; logs go to standard error."
    )
    parser.epilog = (
        "SIGTERM and SIGINT stop it: it syncs the log, notifies its children, and leaves a checkpoint if that makes "
        "the next start quicker, all within five seconds; a second signal stops it at once. "
        "SIGHUP makes it read the allow list again. Exit code 0 after a requested stop, 2 when it cannot serve."
    )
    add_process_arguments(parser)
    add_flags(parser, ServerSettings)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Serve until asked to stop."""
    prepared = prepare(ServerSettings, arguments)
    if prepared is None:
        return 0
    settings = prepared.settings

    def make(say: Callable[[str], None]) -> Server:
        say("preparing compiled code")
        warm_server()
        return Server(settings, prepared.rights, curve=prepared.curve, say=say)

    def metrics(server: Server) -> list[Metric]:
        from hullcast.broker.server.metrics import server_metrics

        return server_metrics(server)

    place = f", data in {settings.data}" if settings.data is not None else ", in memory only"
    running = Running(
        role="server",
        make=make,
        monitor=settings.monitor,
        allow=settings.security.allow,
        metrics=metrics,
        status=server_status,
        missing=Server.missing,
        announce=announcer(as_json=arguments.json, text=place),
        report=reporter(wanted=arguments.progress),
        until_input_ends=arguments.until_input_ends,
    )
    serve(running)
    leave(0)
