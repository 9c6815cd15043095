"""Which parent a node or a client dials when it has lost its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hullcast.network.wire.frames import NodeEntry

Path = tuple[tuple[bytes, str], ...]


def ways_up(configured: Sequence[str], path: Path, may_dial: Callable[[str], bool]) -> tuple[str, ...]:
    """The endpoints a node may dial, best first: those it was given, then its ancestors, nearest first.

    Ancestors only: a node that dialled a sibling's child could end up below itself. What others tell is dialled only
    where our own settings would allow it.
    """
    return _distinct((*configured, *filter(may_dial, (endpoint for _, endpoint in reversed(path)))))


def ways_in(
    configured: Sequence[str], path: Path, nodes: Sequence[NodeEntry], may_dial: Callable[[str], bool]
) -> tuple[str, ...]:
    """The endpoints a client may dial: those it was given, then gateways (deepest and least busy first), then the
    ancestors of the one it had."""
    gateways = sorted(nodes, key=lambda node: (-node.depth, node.children, node.id))
    told = (*(node.endpoint for node in gateways), *(endpoint for _, endpoint in reversed(path)))
    return _distinct((*configured, *filter(may_dial, told)))


def _distinct(endpoints: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(endpoint for endpoint in endpoints if endpoint))
