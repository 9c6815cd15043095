"""Work that nobody asked for: tuples leave streams and windows, and channels do what makes later changes cheaper.

It is done in slices, in turn with the work of requests.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hullcast.broker.server.commits import OURS
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.server.changing import Changing
    from hullcast.broker.server.commits import Commits
    from hullcast.broker.server.pipeline import Pipeline
    from hullcast.broker.server.working import Working

log = logger(__name__)

#: About how long it takes to let tuples leave a window or a stream, once; and how often that is done for one sync.
SETTLE_COST_S, SETTLED_TOGETHER = 0.002, 4
#: A request that nobody waits for: to let tuples leave.
SETTLING = OURS._replace(lazy=True)


class Housekeeping:
    """What is under way of it."""

    def __init__(self, changing: Changing, commits: Commits, pipeline: Pipeline, working: Working) -> None:
        self._changing, self._commits, self._pipeline, self._working = changing, commits, pipeline, working
        self._settling = False

    def on_release(self) -> None:
        """Go on to let tuples leave, if some are left that must."""
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
