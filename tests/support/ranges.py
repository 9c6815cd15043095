"""Whether a server knows just the ranges of joins that clients have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from hullcast.broker.server.service import Server
from hullcast.clients.sdk.client import Client
from hullcast.network.matching.messages import unreachable
from tests.support.cluster import wait_for


def known(server: Server) -> tuple[int, int, int]:
    """Of all channels: different ranges, ranges, and of these the lingering ones."""
    joins = [attending for attending in server.attendance if attending.channel.counted]
    ranges = [attending.channel.ranges_known() for attending in joins]
    assert server.attendance.lingering == sum(attending.lingering_ranges for attending in joins)
    return sum(one for one, _ in ranges), sum(n for _, n in ranges), server.attendance.lingering


def had(clients: Iterable[Client]) -> dict[int, Counter[tuple[float, ...]]]:
    """By channel, the points that clients have in counted channels."""
    found: dict[int, Counter[tuple[float, ...]]] = {}
    for client in clients:
        for number, listening in client._line.session.groups.channels.items():
            if listening.spec.kind == "JOIN":
                points = listening.audience.index.points()
                points = points[~unreachable(points, listening.spec.dimensions)]
                found.setdefault(number, Counter()).update(map(tuple, points.tolist()))
    return found


def exact(server: Server, clients: Iterable[Client]) -> bool:
    """Whether the server knows just what clients have, but for what lingers."""
    wanted = had(clients)
    for attending in server.attendance:
        if not attending.channel.counted:
            continue
        mine = wanted.get(attending.number, Counter())
        distinct, total = attending.channel.ranges_known()
        if total - attending.lingering_ranges != mine.total() or distinct < len(mine):
            return False
        if not attending.lingering and distinct != len(mine):
            return False
        if mine and attending.channel.wanted_since(np.array(list(mine))) > server.engine.seq:
            return False
    return True


async def wait_exact(server: Server, clients: Iterable[Client]) -> None:
    await wait_for(lambda: exact(server, clients), "the server knows the ranges there are")
