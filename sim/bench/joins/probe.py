"""`hullcast`, with a server that describes every pair that joins, as one did that knew no ranges, and sends all of them
down: python -m hullcast.sim.bench.joins.probe server .. (for the benchmark of joins).

A cover of so many boxes lets nearly all pairs through, hence no pruning.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from hullcast.broker.reformulate.join import JoinChannel
from hullcast.clients.cli.main import main

if TYPE_CHECKING:
    from hullcast.broker.reformulate.channel import Opening


def describe_every_pair() -> None:
    """Let join channels that are opened from now on begin as if somebody wanted all pairs."""
    begin = JoinChannel.__init__

    def begin_with_all(channel: JoinChannel, opening: Opening) -> None:
        begin(channel, opening)
        channel.want(None)

    setattr(JoinChannel, "__init__", begin_with_all)  # noqa: B010  (mypy lets nobody assign a method)


if __name__ == "__main__":
    describe_every_pair()
    os.environ["HULLCAST_PRUNE"] = "false"
    sys.exit(main())
