"""Settings of a node: `hullcast node`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hullcast.network.link.endpoints import parse_endpoint
from hullcast.network.settings.common import ProcessSettings
from hullcast.network.settings.declaring import option


def _check_parents(parents: tuple[str, ...]) -> None:
    for endpoint in parents:
        parse_endpoint(endpoint)


@dataclass(frozen=True, kw_only=True)
class NodeSettings(ProcessSettings):
    """Where a node listens, which parents it follows, and how much it takes on."""

    section: ClassVar[str] = "node"

    # fmt: off
    parent: tuple[str, ...] = option(("tcp://127.0.0.1:7600",), metavar="ENDPOINT", check=_check_parents,
        about="endpoint of the server or node to connect to; several are tried in turn")
    parent_key: str = option("", metavar="KEY",
        about="public key of the parents, as text or as a file; empty: this process's own, when a cluster shares "
        "one key")
    # fmt: on

    def check(self) -> None:
        """Nor does plain text leave this host on the way up."""
        super().check()
        for endpoint in self.parent:
            self.security.check_plain("parent", endpoint, listening=False)
