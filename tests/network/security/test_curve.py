"""Encrypted links: the right key comes in and is known, others stay outside and are counted."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

import zmq

from hullcast.network.security.authenticator import Authenticator
from hullcast.network.security.curve import Curve
from tests.support.links import QUICK, running_dialer, running_listener, wait_until


def pair(server: str | None = None) -> Curve:
    public, secret = zmq.curve_keypair()
    return Curve(public.decode(), secret.decode(), server)


async def test_an_allowed_key_comes_in_and_is_known() -> None:
    keys = pair()
    child_keys = pair(keys.public)
    async with (
        running_listener(curve=keys, allow={child_keys.public}.__contains__, echo=True) as (listener, parent),
        running_dialer(listener.endpoint, curve=child_keys) as (dialer, child),
    ):
        assert [peer.key for peer in parent.joined] == [child_keys.public]
        dialer.send(b"secret" * 50_000)
        await wait_until(lambda: child.frames == [b"secret" * 50_000])
    assert not Authenticator._of_context


async def test_another_key_is_refused_and_counted() -> None:
    keys = pair()
    async with (
        running_listener(curve=keys, allow=lambda key: False) as (listener, parent),
        running_dialer(listener.endpoint, curve=pair(keys.public), linked=False) as (dialer, child),
    ):
        await wait_until(lambda: listener.statistics().refused_keys >= 2)
        assert dialer.state in ("new", "down")
        assert not parent.joined
        assert not child.ups


async def test_a_parent_with_another_key_is_not_trusted() -> None:
    async with (
        running_listener(curve=pair()) as (listener, parent),
        running_dialer(listener.endpoint, curve=pair(pair().public), linked=False) as (dialer, child),
    ):
        await wait_until(lambda: dialer.statistics().attempts >= 3)
        assert not parent.joined
        assert not child.ups


async def test_plaintext_does_not_get_in() -> None:
    async with (
        running_listener(curve=pair()) as (listener, parent),
        running_dialer(listener.endpoint, linked=False) as (dialer, _),
    ):
        await wait_until(lambda: dialer.statistics().attempts >= 3)
        assert not parent.joined


async def test_two_listeners_of_one_process_have_rules_of_their_own() -> None:
    keys, child_keys = pair(), pair()
    async with (
        running_listener(curve=keys, allow=lambda key: False) as (closed, closed_parent),
        running_listener(curve=keys, allow=lambda key: key == child_keys.public) as (opened, parent),
    ):
        curve = Curve(
            child_keys.public, child_keys.secret, servers=dict.fromkeys((closed.endpoint, opened.endpoint), keys.public)
        )
        async with running_dialer(closed.endpoint, opened.endpoint, curve=curve) as (dialer, _):
            assert dialer.endpoint == opened.endpoint
            assert [peer.key for peer in parent.joined] == [child_keys.public]
            assert not closed_parent.joined
            assert closed.statistics().refused_keys >= 1


async def test_a_session_belongs_to_its_key() -> None:
    """Who learns a session's id still cannot go on with it under another key."""
    keys = pair()
    async with (
        running_listener(curve=keys) as (listener, parent),
        running_dialer(listener.endpoint, curve=pair(keys.public)) as (owner, _),
    ):
        async with running_dialer(listener.endpoint, curve=pair(keys.public)) as (thief, _):
            assert owner._bond is not None
            assert thief._bond is not None
            thief._bond.id = owner._bond.id
            thief._lost("to dial again")
            await wait_until(lambda: listener.statistics().refused.get("denied"))
        owner.send(b"still mine")
        await wait_until(lambda: parent.frames == [b"still mine"])


def test_the_secret_key_does_not_show() -> None:
    curve = pair()
    assert curve.secret not in repr(curve)


async def test_one_key_keeps_nobody_else_out_by_taking_all_places() -> None:
    keys = pair()
    greedy, modest, other = (pair(keys.public) for _ in range(3))
    async with (
        AsyncExitStack() as stack,
        running_listener(curve=keys, limits=replace(QUICK, peers=4)) as (listener, parent),
    ):
        for _ in range(4):
            await stack.enter_async_context(running_dialer(listener.endpoint, curve=greedy))
        full = await stack.enter_async_context(running_dialer(listener.endpoint, curve=greedy, linked=False))
        await wait_until(lambda: listener.statistics().refused.get("full"))
        assert not full[1].ups
        for curve in (modest, modest):
            await stack.enter_async_context(running_dialer(listener.endpoint, curve=curve))
        assert [peer.number for peer, _ in parent.left] == [4, 3]
        late = await stack.enter_async_context(running_dialer(listener.endpoint, curve=other, linked=False))
        await wait_until(lambda: late[0].statistics().attempts >= 2)  # nobody has more than half
        assert len(listener.peers) == 4
        assert not late[1].ups
        assert listener._by_key == {greedy.public: 2, modest.public: 2}
