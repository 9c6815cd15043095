"""Requests by the way they came, against a plain list of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.server.jobs import ByRoute
from hullcast.network.wire.frames import Request

#: Few links, so that routes are often alike, and end alike.
links = st.integers(1, 3)
routes = st.lists(links, min_size=1, max_size=3).map(tuple)
requests = st.builds(lambda route, number: Request(number, route, None, b""), routes, st.integers(1, 3))


@given(
    st.lists(st.tuples(st.booleans(), requests), max_size=30),
    requests,
    st.lists(links, max_size=2),
    st.lists(links, max_size=2).map(tuple),
)
def test_what_is_found_is_what_a_look_at_all_finds(
    steps: list[tuple[bool, Request]], asked: Request, gone: list[int], route: tuple[int, ...]
) -> None:
    found: ByRoute[object] = ByRoute()
    plain: list[tuple[Request, object]] = []
    for comes, request in steps:
        if comes:
            plain.append((request, object()))
            found.add(*plain[-1])
        else:
            found.discard(request, object())  # which nobody knows
            left = next((one for one in plain if one[0] == request), None)
            if left is not None:
                plain.remove(left)
                found.discard(*left)
    assert len(found) == len(plain)
    assert found.of(asked) == [thing for request, thing in plain if request == asked]
    below = {(link, *route) for link in gone}
    expected = {thing for request, thing in plain if request.route[-1 - len(route) :] in below}
    assert set(found.below(gone, route)) == expected
    for one in plain:
        found.discard(*one)
    assert not found._links, "nothing is left of routes that nobody uses"


def test_nobody_has_the_route_of_another_however_it_is_written() -> None:
    """A client's own route is one link, the parent's; those below a node have the node's link behind theirs."""
    found: ByRoute[str] = ByRoute()
    found.add(Request(7, (5, 3), None, b""), "of client 5 below node 3")
    found.add(Request(7, (3,), None, b""), "of node 3 itself")
    found.add(Request(7, (5,), None, b""), "of our own client 5")
    assert found.of(Request(7, (5, 3), None, b"")) == ["of client 5 below node 3"]
    assert found.of(Request(7, (5,), None, b"")) == ["of our own client 5"]
    assert found.below([5]) == ["of our own client 5"]
    assert found.below([5], (3,)) == ["of client 5 below node 3"]
    assert set(found.below([3])) == {"of client 5 below node 3", "of node 3 itself"}
