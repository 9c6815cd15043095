"""What nodes report of themselves: shown to operators, and offered to clients as places to connect to."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from hullcast.network.wire.fields import ID_BYTES
from hullcast.network.wire.frames import LONGEST_ROUTE, Directory, NodeEntry
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hullcast.network.node.children import Children
    from hullcast.network.wire.bodies import NodeReport

log = logger(__name__)

#: A node that has not reported for this long is neither shown nor offered to clients.
REPORT_VALID_S = 5.0
#: Nodes that may report; more are served, but not shown.
MOST_NODES = 10_000
#: Characters of a name or endpoint in the directory that all clients get.
LONGEST_TEXT = 256
#: What nodes count, and report.
REPORTED_COUNTS = (
    "reattached", "through", "clients", "nodes", "subscriptions", "channels", "messages", "routed", "filtered",
    "delivered_messages", "delivered_bytes", "refused", "too_large", "queued_bytes", "fullest_bytes", "up_bytes",
    "greedy_refused", "skipped_reports",
)  # fmt: skip
#: Rounds remembered: what a node's lag is measured with, up to a minute.
HISTORY = 600


class Nodes:
    def __init__(self, children: Children, epoch: bytes, server: bytes) -> None:
        self._children, self._epoch, self._server = children, epoch, server
        self._history: deque[tuple[float, int]] = deque(maxlen=HISTORY)  # when everything up to where had been sent
        self._reports: dict[str, tuple[float, dict[str, object]]] = {}
        self._entries: tuple[NodeEntry, ...] = ()

    def take(self, report: NodeReport) -> None:
        try:
            facts = _checked(report.node)
        except (KeyError, ValueError) as error:
            log.warning("report refused", extra={"why": repr(error)})
            return
        key = str(facts["id"])
        if len(self._reports) < MOST_NODES or key in self._reports:
            self._reports[key] = (time.monotonic(), {**facts, "lag_s": self._lag_s(cast("int", facts["through"]))})

    def _lag_s(self, through: int) -> float:
        """How long ago a node that is complete up to `through` was up to date."""
        later = [at for at, reached in self._history if reached > through]
        return time.monotonic() - later[0] if later else 0.0

    def live(self) -> list[dict[str, object]]:
        now = time.monotonic()
        self._reports = {key: (at, report) for key, (at, report) in self._reports.items() if now - at < REPORT_VALID_S}
        return [report for _, report in self._reports.values()]

    def tell(self, endpoint: str, now: float) -> None:
        """Called every round: send the list of nodes to all children, if it has changed."""
        self._history.append((now, self._children.through))
        entries = tuple(sorted(map(_entry, self.live()), key=lambda node: node.id))
        if list(map(_place, entries)) != list(map(_place, self._entries)) or not self._children.has_directory:
            self._entries = entries
            self._children.tell_directory(Directory(self._epoch, ((self._server, endpoint),), entries))


def _place(node: NodeEntry) -> tuple[bytes, str, int]:
    return node.id, node.endpoint, node.depth


def _checked(report: Mapping[str, object]) -> dict[str, object]:
    """A report as everybody may rely on it: all that is shown is there, of its type and not too long, whatever the node
    says; KeyError or ValueError if it does not say who it is."""
    node = bytes.fromhex(str(report["id"]))
    if len(node) != ID_BYTES:
        raise ValueError(f"the id of a node has {ID_BYTES} bytes, not {len(node)}")
    path, counts = report.get("path"), {name: report.get(name) for name in REPORTED_COUNTS}
    return {
        "id": node.hex(),
        **{name: str(report.get(name, ""))[:LONGEST_TEXT] for name in ("name", "endpoint", "parent")},
        "path": [str(step)[:LONGEST_TEXT] for step in path[:LONGEST_ROUTE]] if isinstance(path, list) else [],
        "attached": bool(report.get("attached")),
        **{name: count if type(count) is int and 0 <= count < 1 << 63 else 0 for name, count in counts.items()},
    }


def _entry(report: Mapping[str, Any]) -> NodeEntry:
    clients = min(report["clients"], (1 << 31) - 1)
    return NodeEntry(bytes.fromhex(report["id"]), report["name"], report["endpoint"], len(report["path"]), clients)
