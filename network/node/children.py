"""What server and node share: the links to their children, and which child gets which messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from hullcast.network.wire import bodies
from hullcast.network.wire.columns import size_bytes, take
from hullcast.network.wire.errors import BadFrame, InvariantBroken, NotPermitted, PeerError, TooLarge, to_wire
from hullcast.network.wire.frames import (
    LONGEST_ROUTE,
    UPWARD,
    Advance,
    Deliver,
    Directory,
    Interest,
    Leave,
    Origin,
    Reply,
    Request,
    Reset,
    Withdrawn,
    decode,
    encode,
)
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hullcast.network.link.listener import Listener
    from hullcast.network.link.peer import Peer
    from hullcast.network.routing.router import Router
    from hullcast.network.security.rights import Rights
    from hullcast.network.wire.columns import Columns

    #: Of each channel the numbers of rows (int64, as bytes, so that they can be compared); None: all.
    Selection = tuple[tuple[int, bytes | None], ...]

log = logger(__name__)

#: Of a client whose key has no right: its largest frame, and replies that it has not taken. Beyond it its link ends.
POWERLESS_FRAME_BYTES, POWERLESS_HELD_BYTES = 64 << 10, 1 << 20
#: Messages in one frame, in bytes, about: far below what a link takes.
FRAME_BYTES = 16 << 20
#: Children told of progress in one round; of more than a hundred times as many, a hundredth.
TOLD_AT_ONCE = 50


class Upward(Protocol):
    """Where requests of children go: into the server's hall, or to the parent."""

    def on_request(self, peer: Peer, request: Request) -> None:
        """A child asks for something; its way back is noted in the route."""

    def on_quiet(self) -> None:
        """All requests that had arrived were handed over."""

    def on_children_changed(self) -> None:
        """A child joined or left."""

    def on_gone(self, peer: Peer) -> None:
        """A child left for good: nobody takes replies by its link any more."""


class Children:
    """Takes requests up and carries replies and messages down; the `Router` decides who gets what.

    Called on the event loop only. All messages up to `through` that concern a child have been sent to it; a child
    without messages learns of it from `tell_progress`, now and then.
    """

    def __init__(self, listener: Listener, router: Router, rights: Rights, upward: Upward) -> None:
        self.listener = listener
        self.router = router
        self.rights = rights
        self.peers: dict[int, Peer] = {}
        self.through = 0
        self.refused = 0
        self.failures = 0  # frames that failed by a fault of ours
        self.too_large = 0  # replies and deliveries that a child would not have taken
        self.delivered_messages = 0  # messages handed to children, each counted for each child
        self.delivered_bytes = 0
        self._upward = upward
        self._told: dict[int, int] = {}
        self._all_told = 0  # up to where every child was told, or is being told:
        self._lap: list[int] = []  # those that may still have to be
        self._nodes: set[int] = set()
        self._powerless: set[int] = set()  # clients whose key has no right: what they send can only be refused
        self._directory: bytes | None = None

    # --- called by the listener --------------------------------------------------------------------------

    def on_join(self, peer: Peer) -> None:
        if peer.role == "node":
            try:
                self.rights.check(self.rights.who(peer.key, peer.name), "node")
            except NotPermitted as error:
                self.refused += 1
                log.warning("node refused", extra={"child": peer.name, "why": str(error)})
                peer.close("denied", str(error))
                return
        self.peers[peer.number] = peer
        if peer.role == "node":
            self._nodes.add(peer.number)
        self._told[peer.number] = self.through
        self._judge(peer)
        self.router.join(peer.number, exact=peer.role == "client", owner=peer.key or str(peer.number))
        if self._directory is not None:
            self._send(peer, self._directory)
        log.info("child joined", extra={"peer": peer.number, "role": peer.role, "child": peer.name})
        self._upward.on_children_changed()

    def on_leave(self, peer: Peer, why: str) -> None:
        if self.peers.pop(peer.number, None) is None:
            return
        del self._told[peer.number]
        self._nodes.discard(peer.number)
        self._powerless.discard(peer.number)
        self.router.leave(peer.number)
        log.info("child left", extra={"peer": peer.number, "role": peer.role, "child": peer.name, "why": why})
        self._upward.on_gone(peer)
        self._upward.on_children_changed()

    def take_rights(self, rights: Rights) -> None:
        """Take over a new allow list."""
        self.rights = rights
        for peer in self.peers.values():
            self._judge(peer)

    def _judge(self, peer: Peer) -> None:
        self._powerless.discard(peer.number)
        if peer.role == "client" and self.rights.who(peer.key, peer.name).powerless:
            self._powerless.add(peer.number)

    def on_frame(self, peer: Peer, payload: bytes) -> None:
        if peer.number in self._powerless and (
            len(payload) > POWERLESS_FRAME_BYTES or peer.session.held_bytes > POWERLESS_HELD_BYTES
        ):
            self.refused += 1
            peer.close("denied", "a key without any right sends large frames, or does not read its refusals")
            return
        try:
            self._take(peer, payload)
        except (PeerError, InvariantBroken):
            raise
        except Exception as error:  # a fault of ours: whatever sent this frame loses its link, and nobody else
            self.failures += 1
            log.exception("frame failed", extra={"peer": peer.number, "child": peer.name})
            raise BadFrame(f"{type(error).__name__} while reading a frame") from error

    def on_quiet(self) -> None:
        self._upward.on_quiet()

    def _take(self, peer: Peer, payload: bytes) -> None:
        match decode(payload, kinds=UPWARD):
            case Request(number, route, origin) as request:
                if peer.role == "client":
                    if not number:
                        raise BadFrame("a client's request has a number: only nodes say what needs no reply")
                    route, origin = (), Origin(peer.key, peer.name)
                elif len(route) >= LONGEST_ROUTE:  # the parent would close our link, and all below suffered
                    raise BadFrame(f"a route of more than {LONGEST_ROUTE} links")
                elif origin is None:
                    origin = Origin(peer.key, peer.name)
                self._upward.on_request(peer, request._replace(route=(*route, peer.number), origin=origin))
            case Leave(group, members, resumable) if peer.role == "client":
                self.router.withdraw(peer.number, group, members, lost=resumable)
            case Interest() as interest if peer.role == "node":
                self.router.interest(peer.number, interest)
            case Withdrawn() as withdrawn if peer.role == "node":
                self.router.withdrawn(peer.number, withdrawn)
            case frame:
                raise BadFrame(f"a {type(frame).__name__} does not come from a {peer.role}")

    # --- downward ----------------------------------------------------------------------------------------

    def answer(self, reply: Reply) -> None:
        """Carry a reply one step down its route; from then on messages for what it installs take the same way.

        If it is larger than the child takes, an error goes in its place, and nothing is installed. The router still
        counts the reply, as the parent did, and counted points go up again.
        """
        number, route = reply.route[-1], reply.route[:-1]
        peer, taken = self.peers.get(number), True
        if peer is not None:
            try:
                peer.send(encode(Reply(reply.id, route, reply.installs, reply.body)))
            except TooLarge as error:
                self.too_large += 1
                taken = False
                self._send(peer, encode(Reply(reply.id, route, (), bodies.encode(bodies.Failed(*to_wire(error))))))
        # a child that has left: the client will ask again from elsewhere
        if reply.installs:
            self.router.install(number, *reply.installs, taken=taken)

    def deliver(self, through: int, channels: dict[int, Columns], received: bytes | None = None) -> None:
        """Send each child the messages that concern it, in one frame unless there are very many.

        `received` is the Deliver that they came in, if they did not originate here: children that want all of it get
        these very bytes.
        """
        if received is not None and len(received) <= FRAME_BYTES:
            self._deliver(through, channels, received)
            return
        for until, portion in portions(through, channels, FRAME_BYTES):
            self._deliver(until, portion, received if portion is channels else None)

    def _deliver(self, through: int, channels: dict[int, Columns], received: bytes | None) -> None:
        """Children that want the same rows share one encoded frame."""
        self.through = through
        wanted: dict[int, list[tuple[int, bytes | None]]] = {}
        for channel, columns in channels.items():
            count = len(columns["seq"])
            all_rows = (channel, None)
            for number, rows in self.router.route(channel, columns):
                wanted.setdefault(number, []).append(all_rows if rows is None else (channel, rows.tobytes()))
                self.delivered_messages += count if rows is None else len(rows)
        encoded: dict[Selection, bytes | TooLarge] = {}
        if received is not None:
            encoded[tuple((channel, None) for channel in channels)] = received
        for number, parts in wanted.items():
            self._told[number] = through
            selection = tuple(parts)
            frame = encoded.get(selection)
            if frame is None:
                frame = encoded[selection] = _encoded(Deliver(through, _selected(channels, selection)))
            try:
                if isinstance(frame, TooLarge):
                    raise frame
                self.peers[number].send(frame)
            except TooLarge as error:
                self._give_up(number, error)
            else:
                self.delivered_bytes += len(frame)

    def void(self, channels: tuple[int, ...]) -> None:
        """An update has more messages in these channels than can be sent: children that want them start again."""
        for number in {held.peer for held in self.router.statistics().held if held.channel in channels}:
            if number in self.peers:
                self._begin_again(number, "one update with more messages than can be sent")

    def _give_up(self, number: int, error: TooLarge) -> None:
        """One update makes more messages for this child than a frame holds, and no child may see half of one."""
        log.warning("update too large for a child", extra={"peer": number, "size": error.size, "limit": error.limit})
        self._begin_again(number, f"one update with {error.size} bytes of messages")

    def _begin_again(self, number: int, why: str) -> None:
        """What a child has installed is void: the clients below it subscribe again, and get snapshots."""
        self.too_large += 1
        self.router.void(number)
        self._send(self.peers[number], encode(Reset("overflow", why)))

    def tell_progress(self) -> None:
        """Tell children that have had no messages recently up to where they have everything: nodes each time, of many
        clients some each time. To wake a client costs more than to serve many a message."""
        if not self._lap:
            if self._all_told == self.through:
                return
            self._all_told = self.through
            self._lap = [number for number, peer in self.peers.items() if peer.role != "node"]
        frame = encode(Advance(self.through))
        for number in self._nodes:
            self._advance(number, frame)
        left = max(TOLD_AT_ONCE, len(self.peers) // 100)
        while self._lap and left:
            left -= self._advance(self._lap.pop(), frame)

    def _advance(self, number: int, frame: bytes) -> bool:
        """Whether a child, if it is still here, had to be told."""
        if self._told.get(number, self.through) >= self.through:
            return False
        self._told[number] = self.through
        self._send(self.peers[number], frame)
        return True

    def tell_directory(self, directory: Directory) -> None:
        """Tell all children, and those to come, which nodes there are."""
        self._directory = encode(directory)
        for peer in list(self.peers.values()):
            self._send(peer, self._directory)

    @property
    def has_directory(self) -> bool:
        """Whether there is one to tell children that join."""
        return self._directory is not None

    def reset(self, code: str, text: str, *, fresh_link: bool) -> None:
        """The way to the server was lost: nothing is installed any longer, and all clients below subscribe again."""
        self.router.clear(fresh_link=fresh_link)
        self.through = 0  # a server without a log counts from 0 after a restart
        self._told = dict.fromkeys(self._told, 0)
        self._all_told = 0
        frame = encode(Reset(code, text))
        for peer in list(self.peers.values()):
            self._send(peer, frame)

    def _send(self, peer: Peer, frame: bytes) -> None:
        """Send what every child must take; a child that takes only smaller frames is closed."""
        try:
            peer.send(frame)
        except TooLarge as error:
            peer.close("protocol", str(error))

    def status(self) -> dict[str, object]:
        """The children as `hullcast status` shows them."""
        statistics = self.router.statistics()
        points: dict[int, int] = {}
        for held in statistics.held:
            points[held.peer] = points.get(held.peer, 0) + held.points
        queued = [peer.session.held_bytes for peer in self.peers.values()]
        clients = [peer for peer in self.peers.values() if peer.role == "client"]
        return {
            "clients": len(clients),
            "nodes": len(self.peers) - len(clients),
            "subscriptions": sum(points.get(peer.number, 0) for peer in clients),
            "channels": len(self.router.channels()),
            "messages": statistics.messages,
            "routed": statistics.routed,
            "filtered": statistics.filtered,
            "delivered_messages": self.delivered_messages,
            "delivered_bytes": self.delivered_bytes,
            "refused": self.refused,
            "too_large": self.too_large,
            "queued_bytes": sum(queued),
            "fullest_bytes": max(queued, default=0),
        }


def _encoded(frame: Deliver) -> bytes | TooLarge:
    """The bytes of a frame, or why no child takes it: kept as well, since to find out takes as long as to encode it."""
    try:
        return encode(frame)
    except TooLarge as error:
        return error


def _selected(channels: dict[int, Columns], selection: Selection) -> dict[int, Columns]:
    """Those rows."""
    return {
        channel: channels[channel] if rows is None else take(channels[channel], np.frombuffer(rows, np.int64))
        for channel, rows in selection
    }


def portions(through: int, channels: dict[int, Columns], most_bytes: int) -> Iterator[tuple[int, dict[int, Columns]]]:
    """Messages cut between updates, so that no subscriber sees half of one: (through, messages) in order, each of about
    `most_bytes` at most unless a single update has more. What needs no cut is given back as it is."""
    if sum(map(size_bytes, channels.values())) <= most_bytes:
        yield through, channels
        return
    seqs = np.concatenate([np.asarray(columns["seq"]) for columns in channels.values()])
    first, last = int(seqs.min()), int(seqs.max())
    if first == last:
        yield through, channels
        return
    middle = min(int(np.median(seqs)), last - 1)
    yield from portions(middle, _between(channels, first, middle), most_bytes)
    yield from portions(through, _between(channels, middle + 1, last), most_bytes)


def _between(channels: dict[int, Columns], first: int, last: int) -> dict[int, Columns]:
    """The messages of some updates; channels without any are left out."""
    found = {}
    for channel, columns in channels.items():
        seqs = np.asarray(columns["seq"])
        wanted = (first <= seqs) & (seqs <= last)
        if wanted.any():
            found[channel] = take(columns, wanted)
    return found
