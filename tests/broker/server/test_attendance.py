"""Which channels count for which owner: counted by place, until the last group there has gone, and a while longer."""

from __future__ import annotations

import pytest

from hullcast.broker.server.attendance import ASKED, ChannelShares
from hullcast.network.wire.errors import TooLarge

LINGER_S = 30.0
NAMES = {1: "A", 2: "B", 3: "C", 4: "A"}


def shares(limit: int = 2) -> ChannelShares:
    return ChannelShares(limit, LINGER_S, NAMES.get)


def counts(kept: ChannelShares, owner: str, most: int) -> bool:
    """Whether an owner that may have so many channels may have no more."""
    kept.limit = most
    try:
        kept.check(owner, "NEW")
    except TooLarge:
        return True
    return False


def test_a_channel_counts_for_every_owner_and_once_for_each() -> None:
    kept = shares()
    for place in ((), (7,), (7, 3)):
        kept.hold("ann", place, 1)
    kept.hold("ann", (7,), 4)  # a conditional subscription, whose condition reads the same channel
    kept.hold("bob", (), 1)
    kept.hold("bob", (), 2)
    kept.check("ann", "B")
    kept.check("bob", "A")
    with pytest.raises(
        TooLarge, match=r"channels of one client .*closed less than 30 s ago.*channels_per_client"
    ) as no:
        kept.check("bob", "C")
    assert (no.value.size, no.value.limit, kept.refused, kept.fullest) == (3, 2, 1, 2)


def test_it_counts_until_the_last_group_is_gone_wherever_that_is_and_a_while_longer() -> None:
    kept = shares()
    kept.hold("ann", (7,), 1)
    kept.hold("ann", (7,), 1)
    kept.hold("ann", (), 1)
    kept.release("ann", (7,), 1, 99, now=100.0)  # more than there are: those at other places stay
    kept.expire(1000.0)
    assert counts(kept, "ann", 1)
    kept.release("ann", (), 1, now=1000.0)
    kept.expire(1000.0 + LINGER_S - 1)
    assert counts(kept, "ann", 1)
    kept.expire(1000.0 + LINGER_S)
    assert not counts(kept, "ann", 1)
    assert not kept._of
    assert not kept._at


def test_what_returns_while_it_lingers_counts_on_and_lingers_again_from_its_end() -> None:
    kept = shares()
    kept.hold("ann", (), 1)
    kept.release("ann", (), 1, now=0.0)
    kept.hold("ann", ASKED, 1)  # a request that is refused in the end
    kept.release("ann", ASKED, 1)
    assert counts(kept, "ann", 1)
    kept.hold("ann", (), 1)
    kept.expire(LINGER_S)
    assert counts(kept, "ann", 1)
    kept.release("ann", (), 1, now=LINGER_S)
    kept.expire(LINGER_S + 1)
    assert counts(kept, "ann", 1)
    kept.expire(2 * LINGER_S)
    assert not counts(kept, "ann", 1)


def test_what_was_only_asked_for_does_not_linger() -> None:
    kept = shares()
    kept.hold("ann", ASKED, "A")
    assert counts(kept, "ann", 1)
    kept.release("ann", ASKED, "A")
    assert not counts(kept, "ann", 1)
    assert not kept._of


def test_a_lost_node_takes_all_below_it_and_a_channel_that_closed_counts_for_nobody() -> None:
    kept = shares()
    for key, place in ((1, (5, 7)), (2, (6, 7)), (3, (7,)), (1, ())):
        kept.hold("ann", place, key)
    assert counts(kept, "ann", 3)
    kept.lose((5,), (7,), now=0.0)
    kept.expire(LINGER_S)
    assert counts(kept, "ann", 3)  # 1 is also here
    kept.lose((7,), (), now=0.0)
    kept.expire(LINGER_S)
    assert not counts(kept, "ann", 2)
    kept.hold("bob", (), 99)  # closed meanwhile
    assert not counts(kept, "bob", 1)
    kept.release("bob", (), 99, now=0.0)
    assert set(kept._of) == {"ann"}
