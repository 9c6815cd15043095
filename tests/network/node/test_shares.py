"""No child fills the way up for the others."""

from __future__ import annotations

import pytest

from hullcast.network.node.node import CLIENT_SHARE, NODE_SHARE, Shares
from hullcast.network.wire.errors import Overloaded


def send(shares: Shares, child: int, size: int, number: int, *, node: bool = False, acknowledged: int = 0) -> None:
    shares.check(child, size, speaks_for_many=node, acknowledged=acknowledged)
    shares.took(child, size, number)


@pytest.mark.parametrize(("node", "share"), [(False, CLIENT_SHARE), (True, NODE_SHARE)])
def test_a_greedy_child_is_refused_beyond_its_share_and_others_are_not(node: bool, share: float) -> None:
    shares = Shares(1000, 1000)
    for number in range(int(10 * share)):
        send(shares, 1, 100, number + 1, node=node)
    with pytest.raises(Overloaded):
        send(shares, 1, 100, 99, node=node)
    send(shares, 2, 100, 99, node=node)
    assert shares.refused == 1


def test_what_the_parent_has_does_not_count_any_more() -> None:
    shares = Shares(1000, 1000)
    for number in range(1, 500):
        send(shares, 1, 200, number, acknowledged=number - 1)
    assert len(shares) == 1
    shares.check(2, 1, speaks_for_many=False, acknowledged=499)
    assert len(shares) == 0


def test_one_large_request_is_never_too_greedy() -> None:
    shares = Shares(1000, 1000)
    send(shares, 1, 5000, 1)
    with pytest.raises(Overloaded):
        send(shares, 1, 1, 2)
    send(shares, 1, 5000, 2, acknowledged=1)


def test_small_requests_count_as_the_frames_they_are() -> None:
    shares = Shares(1 << 20, 1024)
    for number in range(256):
        send(shares, 1, 10, number + 1)
    with pytest.raises(Overloaded):
        send(shares, 1, 10, 257)


def test_a_fresh_link_has_nothing_on_its_way() -> None:
    shares = Shares(1000, 1000)
    send(shares, 1, 250, 7)
    shares.clear()
    send(shares, 1, 250, 1)
