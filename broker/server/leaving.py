"""What is done that nobody asked for: ranges and channels that subscribers leave behind, tuples that become too old.

Clients and nodes that go are noticed by the routing table. Their ranges are handed to the channels that count them,
some at a time: those of closed subscriptions soon, those of lost ones when they have had time to come back. Channels
count no more for owners that have gone. Tuples leave streams and windows, and channels do what makes later changes
cheaper, in slices, in turn with the work of requests.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.server.access import whole_owner
from hullcast.broker.server.pipeline import OURS
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.server.attendance import Attendance
    from hullcast.broker.server.changing import Changing
    from hullcast.broker.server.jobs import Working
    from hullcast.broker.server.outcome import Outcome
    from hullcast.broker.server.pipeline import Commits, Pipeline
    from hullcast.network.node.children import Children
    from hullcast.network.wire.arrays import Booleans, Floats
    from hullcast.network.wire.frames import Request

log = logger(__name__)

#: Bytes of ranges handed to a channel in one go, about.
RANGES_BYTES = 1 << 20
#: About how long it takes to let tuples leave a window or a stream, once; and how often that is done for one sync.
SETTLE_COST_S, SETTLED_TOGETHER = 0.002, 4
#: A request that nobody waits for: to let tuples leave.
SETTLING = OURS._replace(lazy=True)


class Leaving:
    """The routing table, the steps that have not left yet, and the channels: who still wants what."""

    def __init__(self, children: Children, pipeline: Pipeline, attendance: Attendance, linger_s: float) -> None:
        self._children, self._pipeline, self._attendance, self._linger_s = children, pipeline, attendance, linger_s
        self._ranges_left = asyncio.Event()

    # --- the ranges and channels of one outcome --------------------------------------------------------------

    def hold(self, request: Request, owner: str, outcome: Outcome) -> None:
        """The channels of an outcome count for who asked, unless its link has gone."""
        if request.route[-1] in self._children.peers:
            for install in outcome.installs:
                self._attendance.shares.hold(owner, request.route[1:], install.channel)

    def forgo(self, outcome: Outcome) -> None:
        """An outcome never leaves. The client may ask again."""
        until = time.monotonic() + self._linger_s
        for install in outcome.installs:
            if install.counted:
                self._attendance.forgo(install.channel, install.points, until)

    def take_back(self, request: Request, owner: str, outcome: Outcome) -> None:
        self.forgo(outcome)
        for install in outcome.installs:
            self._attendance.shares.release(owner, request.route[1:], install.channel, now=time.monotonic())

    # --- who has gone ----------------------------------------------------------------------------------------

    def groups_left(self, groups: Iterable[tuple[str, int, int]], route: tuple[int, ...] = ()) -> None:
        """Groups of clients have gone, at the node at the end of the route (without one: of our own clients)."""
        now = time.monotonic()
        for owner, channel, count in groups:
            self._attendance.shares.release(whole_owner(owner, route), route, channel, count, now)

    def links_gone(self, links: Iterable[int], route: tuple[int, ...] = ()) -> None:
        self._attendance.shares.lose(links, route, time.monotonic())

    def forgo_withdrawn(self) -> None:
        """Hand to their channels the ranges that the routing table has no neighbour for any more. Channels count less
        for the owners of what went."""
        router = self._children.router
        if router.left:
            self.groups_left([(owner, channel, count) for (owner, channel), count in router.left.items()])
            router.left.clear()
        while router.withdrawals:
            channel, lost, points = router.withdrawals.take(RANGES_BYTES)
            self._attendance.forgo(channel, points, time.monotonic() + self._linger_s if lost else None)
        if self._attendance.forgo_some():
            self._ranges_left.set()

    async def run(self) -> None:
        """Where many ranges have gone: the others have their turns in between."""
        while True:
            await self._ranges_left.wait()
            self._ranges_left.clear()
            more = True
            while more:
                await asyncio.sleep(0)
                more = self._attendance.forgo_some()

    # --- who is still there ----------------------------------------------------------------------------------

    def wanted(self) -> set[int]:
        """The channels in use, including those whose reply has not left yet."""
        self.forgo_withdrawn()  # a channel that is closed hears of no ranges any more
        coming = {install.channel for step in self._pipeline for install in step.outcome.installs}
        return coming.union(self._children.router.channels())


def partitions_asked(children: Children, pipeline: Pipeline, channel: int, partitions: Floats) -> Booleans:
    """Which partition numbers subscribers elsewhere use, including those whose reply has not left yet."""
    held = children.router.partitions_held(channel, partitions)
    for step in pipeline:
        for install in step.outcome.installs:
            if install.channel == channel:
                held |= np.isin(partitions, install.points[:, -1])
    return held


class Housekeeping:
    def __init__(self, changing: Changing, commits: Commits, pipeline: Pipeline, working: Working) -> None:
        self._changing, self._commits, self._pipeline, self._working = changing, commits, pipeline, working
        self._settling = False

    def on_release(self) -> None:
        if not self._settling and self._pipeline.sound and self._changing.unsettled:
            self._settling = True
            self._working.put("streams", self._settle(), self._settled)

    def _settle(self) -> Work:
        """Ends when none are left, or when so many wait for the disk that they should leave first: what one sync lets
        go is sent in one go."""
        while not self._pipeline.held and sum(step.request is SETTLING for step in self._pipeline) < SETTLED_TOGETHER:
            outcomes = self._changing.settle(time.monotonic())
            if not outcomes:
                return
            self._commits.change(lambda: outcomes, request=SETTLING)  # noqa: B023  (it is called right away)
            yield SETTLE_COST_S

    def _settled(self, _: object, error: BaseException | None) -> None:
        self._settling = False
        if error is not None:  # numbers may be used up without a record of it
            self._pipeline.fail(error)

    def keep_up(self, channels: Iterable[Channel]) -> None:
        """Let channels do what would take too long while a change is applied."""
        for channel in channels:
            work = channel.upkeep()
            if work is not None:
                self._working.put("upkeep", work, self._kept_up)

    def _kept_up(self, _: object, error: BaseException | None) -> None:
        if error is not None:  # answers are the same without it
            log.error("upkeep of a channel failed", exc_info=error)
