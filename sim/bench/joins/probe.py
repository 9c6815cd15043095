"""A server that knows no ranges of joins and describes every pair, for the benchmark of joins.

It passes on what the covers of its children let through: python -m hullcast.sim.bench.joins.probe server ..
"""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING

from hullcast.broker.reformulate.join import JoinChannel

if TYPE_CHECKING:
    from hullcast.broker.reformulate.channel import Opening


def describe_every_pair() -> None:
    """Let join channels that are opened from now on describe all pairs, and clients install ranges uncounted."""
    begin = JoinChannel.__init__
    JoinChannel.counted = False

    def begin_with_all(channel: JoinChannel, opening: Opening) -> None:
        begin(channel, opening)
        channel.want(None)

    setattr(JoinChannel, "__init__", begin_with_all)  # noqa: B010  (mypy lets nobody assign a method)


if __name__ == "__main__":
    describe_every_pair()
    runpy.run_module("hullcast", run_name="__main__")  # the program as users start it, in this very process
