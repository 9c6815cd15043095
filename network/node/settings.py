"""Settings of a node: `hullcast node`."""

# ruff: noqa: RUF009  `option` and `part` make fields, as `dataclasses.field` does

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hullcast.network.link.endpoints import parse_endpoint
from hullcast.network.settings.common import (
    LinkSettings,
    LogSettings,
    SecuritySettings,
    check_advertise,
    check_listen,
    check_monitor,
    check_name,
    check_reachable,
)
from hullcast.network.settings.declaring import Settings, option, part


def _check_parents(parents: tuple[str, ...]) -> None:
    for endpoint in parents:
        parse_endpoint(endpoint)


@dataclass(frozen=True, kw_only=True)
class NodeSettings(Settings):
    """Where a node listens, which parents it follows, and how much it takes on."""

    section: ClassVar[str] = "node"

    listen: str = option(
        "tcp://127.0.0.1:0",
        "endpoint for children; port 0 lets the system choose",
        metavar="ENDPOINT",
        check=check_listen,
    )
    advertise: str = option(
        "",
        "endpoint that others should connect to; empty: the one it listens on (needed when that is tcp://*)",
        metavar="ENDPOINT",
        check=check_advertise,
    )
    parent: tuple[str, ...] = option(
        ("tcp://127.0.0.1:7600",),
        "endpoint of the server or node to follow; more than one are tried in turn",
        metavar="ENDPOINT",
        check=_check_parents,
    )
    parent_key: str = option(
        "",
        "public key of the parents, as text or as a file; empty: this process's own, when a cluster shares one key",
        metavar="KEY",
    )
    name: str = option("node", "name in logs and `hullcast status`", check=check_name)
    monitor: str = option(
        "",
        "HTTP address of /healthz, /readyz, /metrics and /status; empty: none",
        metavar="HOST:PORT",
        check=check_monitor,
    )
    max_children: int = option(
        10_000,
        "clients and nodes that may be connected at once; more are refused",
        raised="more fit on one node, but each takes memory and a socket",
        least=1,
        most=1_000_000,
    )
    cover_budget: int = option(
        256,
        "boxes that stand for the interests of one child node in one channel",
        raised="fewer needless messages, but matching and memory cost more",
        least=1,
        most=1_000_000,
    )
    link: LinkSettings = part(LinkSettings)
    security: SecuritySettings = part(SecuritySettings)
    log: LogSettings = part(LogSettings)

    def check(self) -> None:
        """Others can dial it, and nothing goes in plain text beyond loopback unless asked for."""
        check_reachable(self.listen, self.advertise)
        self.security.check_plain("listen", self.listen, listening=True)
        for endpoint in self.parent:
            self.security.check_plain("parent", endpoint, listening=False)
