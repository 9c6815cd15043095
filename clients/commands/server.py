"""`hullcast server`: the commit log, the engine and the root of the overlay, in one process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from broker.server.metrics import server_metrics
from broker.server.service import Server
from broker.server.settings import ServerSettings
from broker.server.status import server_status
from clients.commands.arguments import add_process_arguments
from clients.processes import logs
from clients.processes.running import Running, announcer, leave, serve, stop_when_input_ends
from clients.warm.serving import warm_server
from network.security.curve import Curve
from network.security.keys import load_pair
from network.security.rights import Rights
from network.settings.flags import add_flags, from_arguments
from network.settings.text import example, report

if TYPE_CHECKING:
    import argparse

    from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A flag for each setting, and how the process shows itself."""
    parser.description = (
        "Runs the database server: it keeps the rows, writes the commit log, and feeds nodes and clients. When it "
        "serves it prints one line on standard output; logs go to standard error."
    )
    parser.epilog = (
        "SIGTERM and SIGINT stop it: the log is synced, children are told; a second SIGINT stops it at once. SIGHUP "
        "reads the allow list again. Exit code 0 after a requested stop, 2 when it cannot serve (any more)."
    )
    add_process_arguments(parser)
    add_flags(parser, ServerSettings)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Serve until told to stop."""
    if arguments.print_config:
        sys.stdout.write(example(ServerSettings))
        return 0
    loaded = from_arguments(ServerSettings, arguments)
    settings, security = loaded.settings, loaded.settings.security
    pair = load_pair(security.key) if security.key is not None else None
    rights = Rights.load(security.allow)
    if arguments.check_config:
        sys.stdout.write(report(loaded))
        return 0
    logs.configure(settings.log.level, settings.log.format)
    if arguments.until_input_ends:
        stop_when_input_ends()
    warm_server()
    curve = Curve(pair.public, pair.secret) if pair is not None else None
    server = Server(settings, rights, curve=curve)
    running = Running(
        role="server",
        name=settings.name,
        service=server,
        monitor=settings.monitor,
        allow=security.allow,
        metrics=lambda: server_metrics(server),
        status=lambda: server_status(server),
        missing=server.ready,
    )
    place = f", data in {settings.data}" if settings.data is not None else ", in memory only"
    serve(running, announcer(as_json=arguments.json, text=place))
    leave(0)
