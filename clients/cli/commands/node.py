"""`hullcast node`: one broker node of the overlay; inner node and gateway are the same program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.serving import add_process_arguments, prepare
from hullcast.clients.processes.running import Running, announcer, leave, reporter, serve
from hullcast.network.node.node import Node
from hullcast.network.node.settings import NodeSettings
from hullcast.network.node.warming import warm_node
from hullcast.network.settings.flags import add_flags
from hullcast.network.wire.errors import PeerClosed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from prometheus_client.metrics_core import Metric
    from rich.console import Console

#: Reasons (BYE) of a parent after which dialling again is pointless until the settings change.
POINTLESS = ("denied", "version")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A flag for each setting, and how the process shows itself."""
    parser.description = (
        "Runs one node: it connects to the server or to another node, and passes on to its own children the messages "
        "that concern them. When it is connected to the server it prints one line on standard output; logs go to "
        "standard error."
    )
    parser.epilog = (
        "SIGTERM and SIGINT stop it; its children connect elsewhere. SIGHUP makes it read the allow list again. Exit "
        "code 0 after a requested stop, 2 when it cannot serve, also when every parent refuses it at the start."
    )
    add_process_arguments(parser)
    add_flags(parser, NodeSettings)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Serve until asked to stop."""
    prepared = prepare(NodeSettings, arguments)
    if prepared is None:
        return 0
    settings = prepared.settings

    def make(say: Callable[[str], None]) -> Node:
        say("preparing compiled code")
        warm_node()
        return Node(settings, prepared.rights, curve=prepared.curve, parent_curve=prepared.parent_curve)

    def metrics(node: Node) -> list[Metric]:
        from hullcast.network.node.metrics import node_metrics

        return node_metrics(node)

    running = Running(
        role="node",
        make=make,
        monitor=settings.monitor,
        allow=settings.security.allow,
        metrics=metrics,
        status=Node.status,
        missing=missing,
        announce=announcer(as_json=arguments.json, text=f", below {', '.join(settings.parent)}"),
        report=reporter(wanted=arguments.progress),
        until_input_ends=arguments.until_input_ends,
    )
    serve(running)
    leave(0)


def missing(node: Node) -> str | None:
    """What a node needs before it serves: a parent that has reported a way to the server."""
    if node.attached:
        return None if node.path else "the parent has no way to the server"
    failure, tried = node.dialer.failure, node.dialer.statistics().attempts
    code, _, text = failure.partition(": ")
    if code in POINTLESS and tried >= len(node.dialer.endpoints):
        raise PeerClosed(code, f"{text} (parent {node.dialer.endpoint})")
    return failure or "dialling"
