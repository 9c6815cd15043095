"""`hullcast up`: a whole cluster on this host, as separate processes, until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.arguments import whole
from hullcast.clients.processes.cluster import SERVER, Cluster, Layout
from hullcast.clients.processes.signals import Signals
from hullcast.clients.sdk.connecting import DEFAULT_URL
from hullcast.network.link.endpoints import parse_endpoint
from hullcast.network.node.stopping import STOP_S
from hullcast.network.settings.common import LEVELS

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hullcast.clients.processes.child import Child
    from hullcast.clients.processes.cluster import Notice


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Starts a server, a root node and gateways below it, each as a separate process, and shows their endpoints: "
        "the gateways use the ports after the server's, if these are free. A node that dies is restarted; when the "
        "server dies, everything stops. Ctrl-C stops everything."
    )
    parser.epilog = (
        "Settings of the processes may be given as HULLCAST_* variables; `hullcast server --print-config` and "
        "`hullcast node --print-config` list them. Exit code 0 after Ctrl-C or SIGTERM, 2 when something failed."
    )
    parser.add_argument(
        "--nodes",
        type=whole(0),
        default=3,
        metavar="N",
        help="how many nodes: 0 starts the server alone, 1 adds a root node, each further one is a gateway (default 3)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder for the rows and the commit log (default: a temporary one, removed at the end)",
    )
    parser.add_argument(
        "--listen", default=DEFAULT_URL, metavar="ENDPOINT", help=f"the server's endpoint (default {DEFAULT_URL})"
    )
    parser.add_argument("--monitor", action="store_true", help="give each process a monitor: health, metrics, status")
    parser.add_argument(
        "--log-level", choices=LEVELS, default="warning", help="log level of all processes (default warning)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per line: `ready` first, then events"
    )
    parser.add_argument(
        "--until-input-ends", action="store_true", help="stop, as by SIGTERM, when standard input is closed"
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the cluster until a signal, or until it fails."""
    folder = None if arguments.data is not None else Path(tempfile.mkdtemp(prefix="hullcast-"))
    layout = Layout(
        nodes=arguments.nodes,
        data=str(arguments.data or folder),
        listen=arguments.listen,
        gateways_from=_gateways_from(arguments.listen),
        monitor=arguments.monitor,
        log_level=arguments.log_level,
    )
    try:
        _run(layout, folder is None, arguments, console)
        return 0
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _gateways_from(listen: str) -> int:
    """The port of the first gateway: the one after the server's, if that is given."""
    port = parse_endpoint(listen, listening=True).port
    return port + 1 if port else 0


def _run(layout: Layout, keeps: bool, arguments: argparse.Namespace, console: Console) -> None:
    as_json = bool(arguments.json)

    def tell(notice: Notice) -> None:
        if notice.is_log and notice.name == SERVER and notice.text.startswith("hullcast: "):
            return  # its last words: `up` ends with them, too
        if notice.is_log:
            sys.stderr.write(f"[{notice.name}] {notice.text}\n")
        elif as_json:
            child = cluster.children.get(notice.name)
            _out({"event": notice.text, "name": notice.name, "pid": child.pid if child is not None else None})
        else:
            console.print(f"{notice.name}: {notice.text}", markup=False, soft_wrap=True)

    cluster = Cluster(layout, tell)
    signals = Signals("the cluster", cluster.kill, limit_s=STOP_S, until_input_ends=arguments.until_input_ends)
    signals.run(_live(cluster, keeps, as_json, console))


async def _live(cluster: Cluster, keeps: bool, as_json: bool, console: Console) -> None:
    if not as_json:
        console.print(f"starting a server and {cluster.layout.nodes} nodes ..")
    try:
        await cluster.start()
        if as_json:
            _out(_facts(cluster))
        else:
            console.print(_welcome(cluster, keeps), markup=False, soft_wrap=True)
        await cluster.watch()
    except asyncio.CancelledError:
        if not as_json:
            console.print("stopping ..")
        raise
    finally:
        await cluster.stop()


def _facts(cluster: Cluster) -> dict[str, object]:
    return {
        "ready": True,
        "role": "cluster",
        "endpoint": cluster.gateways[0].endpoint,
        "pid": os.getpid(),
        "data": cluster.layout.data,
        "server": dict(cluster.server.facts),
        "nodes": [dict(child.facts) for child in cluster.nodes],
    }


def _out(facts: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def _welcome(cluster: Cluster, keeps: bool) -> str:
    at = cluster.server.endpoint
    lines = [f"  {child.name:<10} {_place(child)}" for child in (cluster.server, *cluster.nodes)]
    url = "" if at == DEFAULT_URL else f" --url {at}"
    lines.append(_KEPT.format(cluster.layout.data) if keeps else _REMOVED)
    return "\n".join((*lines, "", _TRY.format(at=at, url=url, create=_CREATE)))


def _place(child: Child) -> str:
    return f"{child.endpoint}  process {child.pid}" + (f"  {child.monitor}/metrics" if child.monitor else "")


#: As in the README and in `clients/demo/stocks.py`, so that one may go on with what another began.
_CREATE = "CREATE TABLE IF NOT EXISTS STOCK (SYMBOL TEXT PRIMARY KEY, SECTOR TEXT, RISK REAL, RECO REAL, PER REAL)"

_KEPT = "Rows are kept in {}."
_REMOVED = "Rows are in a temporary folder, which is removed at the end; `--data DIR` keeps them."

_TRY = """Clients may connect to any of them. Try this in other terminals (Ctrl-C here ends everything):

  hullcast execute "{create}"{url}
  hullcast subscribe "SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN 20 AND 60"{url}
  echo '{{"SYMBOL": "ACME", "RISK": 42, "PER": 12.5}}' | hullcast publish STOCK --jsonl -{url}

or from Python:

  import asyncio, hullcast

  async def main():
      async with hullcast.connect("{at}") as hc:
          async with hc.subscribe("SELECT COUNT(*) FROM STOCK WHERE PER < ?", 20, snapshot=True) as sub:
              print(await anext(sub))  # the first answer; then one event for each change

  asyncio.run(main())
"""
