"""A broker node: a parent above, children below, and a routing table between them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from hullcast.network.link.dialer import Dialer
from hullcast.network.link.endpoints import ways_up
from hullcast.network.link.listener import Listener
from hullcast.network.monitor.pauses import Pauses
from hullcast.network.node.children import Children
from hullcast.network.node.stopping import Stopping
from hullcast.network.routing.router import Router
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import (
    BadFrame,
    InvariantBroken,
    Overloaded,
    PeerError,
    TooLarge,
    Unavailable,
    to_wire,
)
from hullcast.network.wire.frames import (
    Advance,
    Deliver,
    Directory,
    Interest,
    Reply,
    Request,
    Reset,
    Withdrawn,
    decode,
    encode,
)
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    import zmq

    from hullcast.network.link.peer import Peer
    from hullcast.network.node.settings import NodeSettings
    from hullcast.network.security.curve import Curve
    from hullcast.network.security.rights import Rights
    from hullcast.network.wire.frames import NodeEntry

log = logger(__name__)

#: Seconds between two rounds of small talk: progress downwards, shrunken interests upwards.
ROUND_S = 0.1
#: Bytes of points in one Withdrawn, and what the frame takes beside them. Few, so that others have their turns above.
WITHDRAWN_BYTES, BESIDE_BYTES = 32 << 10, 64
#: Children that are gone and that the server was not told of yet, while the way up is blocked; more are forgotten.
MOST_GONE_KEPT = 10_000
#: Rounds between two reports to the server.
ROUNDS_PER_REPORT = 10
#: A client's part of the queue to the parent, and that of a node, which speaks for many.
CLIENT_SHARE = 1 / 4
NODE_SHARE = 1 / 2


class Node:
    """One node of the overlay. It keeps soft state only: clients that lose their node subscribe again elsewhere.

    `run` serves until cancelled; when it returns or raises, no task or socket is left.
    """

    def __init__(
        self,
        settings: NodeSettings,
        rights: Rights,
        *,
        curve: Curve | None = None,
        parent_curve: Curve | None = None,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        self.settings = settings
        self.id = os.urandom(16)
        insecure, limits = settings.security.insecure, settings.link.limits(settings.max_children)
        self.listener = Listener(
            settings.listen,
            limits=limits,
            curve=curve,
            allow=self._knows,
            insecure=insecure,
            context=context,
        )
        self.children = Children(self.listener, Router(settings.cover_budget), rights, self)
        self.dialer = Dialer(
            settings.parent,
            role="node",
            name=settings.name,  # or by its endpoint, which is known when it listens
            id=self.id,
            limits=limits,
            curve=parent_curve,
            insecure=insecure,
            context=context,
        )
        self.attached = False
        self.reattached = 0  # times that the way up was lost and found again
        self.path: tuple[tuple[bytes, str], ...] = ()
        self._was_attached = False
        self._shares = Shares(limits.queue_bytes, limits.queue_frames)
        self._changed = False  # children came or left, and the server was not told yet
        self._untold: dict[int, Interest] = {}  # by channel: for the parent, when its link takes them
        self._gone: deque[int] = deque(maxlen=MOST_GONE_KEPT)  # links of children that left, for the server
        self.skipped_reports = 0
        self.pauses = Pauses()
        self.stopping = Stopping()

    @property
    def endpoint(self) -> str:
        """Where children dial."""
        return self.settings.advertise or self.listener.endpoint

    @property
    def name(self) -> str:
        """What it is called: as its settings say, else by host and port."""
        return self.settings.name or self.endpoint.removeprefix("tcp://")

    def _knows(self, key: str) -> bool:
        return self.children.rights.knows(key)

    async def run(self, started: asyncio.Event | None = None) -> None:
        """Serve until cancelled."""
        self.listener.start(self.children)
        self.dialer.listen, self.dialer.name = self.endpoint, self.name
        self.dialer.start(self)
        tasks = [
            asyncio.create_task(work(), name=f"node.{work.__qualname__}") for work in (self._rounds, self.pauses.run)
        ]
        if started is not None:
            started.set()
        ends = (*tasks, self.listener.failed, self.dialer.failed)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                if end.done():
                    end.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.stopping.busy = "saying goodbye to its parent"
            await self.dialer.stop()
            self.stopping.busy = "saying goodbye to its children"
            await self.listener.stop()

    async def _rounds(self) -> None:
        rounds = 0
        while True:
            await asyncio.sleep(ROUND_S)
            rounds += 1
            self._round(report=rounds % ROUNDS_PER_REPORT == 0)

    def _round(self, report: bool) -> None:
        self.children.tell_progress()
        if not self.attached:
            return
        self._tell_interests(self.children.router.interests())
        self._tell_withdrawn()
        self._tell_left()
        self._tell_gone()
        if report or self._changed:
            self._report()

    def _tell_interests(self, news: list[Interest]) -> None:
        """The router tells each only once, so those that the link does not take now wait here. They may go later, as
        if they had been long on their way; a newer one of the same channel takes their place."""
        for interest in news:
            self._untold[interest.channel] = interest
        for interest in list(self._untold.values()):
            try:
                self.dialer.send(encode(interest))
            except Unavailable:
                return
            del self._untold[interest.channel]

    def _tell_withdrawn(self) -> None:
        """Pass on which counted points are not wanted any more; the router keeps what the link does not take now."""
        router = self.children.router
        most_bytes = min(WITHDRAWN_BYTES, self.dialer.message_bytes - BESIDE_BYTES)
        while router.withdrawals:
            gone = router.withdrawals.take(most_bytes)
            try:
                self.dialer.send(encode(Withdrawn(gone.channel, router.resets, gone.lost, gone.points)))
            except Unavailable:
                router.withdrawals.add(*gone)
                return

    def _tell_left(self) -> None:
        """Tell the server how many groups of our clients have gone: it counts for whom it keeps channels open."""
        left = self.children.router.left
        while left:
            some = tuple((*of, count) for of, count in islice(left.items(), bodies.MOST_LEFT))
            try:
                self.dialer.send(encode(Request(0, (), None, bodies.encode(bodies.Left(some)))))
            except Unavailable:
                return
            for owner, channel, _ in some:
                del left[owner, channel]

    def _tell_gone(self) -> None:
        """Tell the server which children are gone: it need not answer what they asked. What they asked went up before,
        and which of it was a query, or has no answer yet, nobody has to know here."""
        while self._gone:
            links = tuple(islice(self._gone, bodies.MOST_GONE))
            try:
                self.dialer.send(encode(Request(0, (), None, bodies.encode(bodies.LinksGone(links)))))
            except Unavailable:
                return
            for _ in links:
                self._gone.popleft()

    def _report(self) -> None:
        """Send our statistics to the server; where the queue is full, this report is left out."""
        self._changed = False
        body = bodies.encode(bodies.NodeReport(self.status()))
        try:
            self.dialer.send(encode(Request(0, (), None, body)))
        except (Unavailable, TooLarge):
            self.skipped_reports += 1

    def status(self) -> dict[str, object]:
        """This node as `hullcast status` shows it."""
        session = self.dialer.statistics().session
        return {
            "id": self.id.hex(),
            "name": self.name,
            "endpoint": self.endpoint,
            "path": [node.hex() for node, _ in self.path],
            "attached": self.attached,
            "reattached": self.reattached,
            "through": self.children.through,
            **self.children.status(),
            "parent": self.dialer.endpoint or "",
            "up_bytes": session.unacknowledged_bytes if session is not None else 0,
            "greedy_refused": self.greedy_refused,
            "skipped_reports": self.skipped_reports,
        }

    def take_rights(self, rights: Rights) -> None:
        """Take over a new allow list. What clients may subscribe to is the server's to judge."""
        self.children.take_rights(rights)

    @property
    def greedy_refused(self) -> int:
        """Requests refused because their child had its part of the way up already."""
        return self._shares.refused

    def ready(self) -> str | None:
        """Why the node cannot serve, if it cannot."""
        return None if self.attached else "no parent: dialling " + ", ".join(self.dialer.endpoints)

    # --- from the children -------------------------------------------------------------------------------

    def on_request(self, peer: Peer, request: Request) -> None:
        """Pass it on, after the news of closed subscriptions: a client may close one and drop its table at once."""
        gone = self.children.router.unwanted()
        if gone:
            self._tell_interests(gone)
        self._tell_withdrawn()
        try:
            frame = encode(request)
            self._shares.check(
                peer.number,
                len(frame),
                speaks_for_many=peer.role == "node",
                acknowledged=self.dialer.acknowledged,
            )
            self.dialer.send(frame)
            self._shares.took(peer.number, len(frame), self.dialer.sent)
        except (Unavailable, TooLarge) as error:  # no parent at the moment, too much waits for it, or it takes less
            if request.id:
                body = bodies.encode(bodies.Failed(*to_wire(error)))
                self.children.answer(Reply(request.id, request.route, (), body))

    def on_children_changed(self) -> None:
        """The server is told in the next round, once for all who come at the same time."""
        self._changed = True

    def on_gone(self, peer: Peer) -> None:
        """The server is told in the next round, once for all who leave at the same time."""
        self._gone.append(peer.number)

    # --- from the parent ---------------------------------------------------------------------------------

    def on_up(self, welcome: Mapping[str, object], fresh: bool) -> None:
        self.attached = True
        level = logging.WARNING if self._was_attached else logging.INFO  # it ends the warning of `on_down`
        if fresh:
            self._shares.clear()
            self._untold.clear()
            self._gone.clear()  # the server knows them by a link that is gone itself
            if self._was_attached:
                self.reattached += 1
                text = f"node {self.name} has another way to the server"
                self.children.reset("moved", text, fresh_link=True)
            self._was_attached = True
            self._report()
        log.log(level, "attached", extra={"parent": self.dialer.endpoint, "fresh": fresh})

    def on_down(self, why: str) -> None:
        self.attached = False
        log.warning("parent lost", extra={"parent": self.dialer.endpoint, "why": why})

    def on_frame(self, payload: bytes) -> None:
        try:
            self._take(payload)
        except (PeerError, InvariantBroken):
            raise
        except Exception as error:  # a parent that does not keep to the protocol ends its link, not this node
            self.children.failures += 1
            log.exception("frame of the parent failed", extra={"parent": self.dialer.endpoint})
            raise BadFrame(f"{type(error).__name__} while reading a frame") from error

    def _take(self, payload: bytes) -> None:
        match decode(payload):
            case Deliver(through, channels):
                self.children.deliver(through, channels, payload)
            case Reply() as reply:
                if reply.route:
                    self.children.answer(reply)
            case Advance(through):
                self.children.through = max(self.children.through, through)
            case Reset(code, text):
                self._untold.clear()
                self.children.reset(code, text, fresh_link=False)
            case Directory(epoch, path, nodes):
                self._take_directory(epoch, path, nodes)
            case frame:
                raise BadFrame(f"a {type(frame).__name__} does not come from a parent")

    def on_quiet(self) -> None:
        """What came from above goes down, and the other way round, in this very turn."""
        self.dialer.flush()
        self.listener.flush()

    def _take_directory(self, epoch: bytes, path: tuple[tuple[bytes, str], ...], nodes: tuple[NodeEntry, ...]) -> None:
        self.path = path
        if any(node == self.id for node, _ in path):  # our parent hangs below us: nobody in this ring has a server
            log.warning("ring in the overlay", extra={"parent": self.dialer.endpoint})
            server = path[0][1] if self.dialer.may_dial(path[0][1]) else None
            self.dialer.redial(server, "ring in the overlay", in_vain=True)
            return
        self.dialer.endpoints = ways_up(self.settings.parent, path, self.dialer.may_dial)
        self.children.tell_directory(Directory(epoch, (*path, (self.id, self.endpoint)), nodes))


class Shares:
    """How much of the way up each child takes, so that no child fills it for the others: what was sent up for it and is
    not yet acknowledged by the parent's link.

    A child with nothing on its way may always send one request, however large; the link itself judges that. A request
    counts for `least` bytes at least, since the queue has a limit in frames too.
    """

    def __init__(self, queue_bytes: int, queue_frames: int) -> None:
        self._queue_bytes = queue_bytes
        self._least = queue_bytes // queue_frames
        self._flying: deque[tuple[int, int, int]] = deque()  # number of the frame on the link, child, bytes
        self._bytes: dict[int, int] = {}
        self.refused = 0

    def check(self, child: int, size: int, *, speaks_for_many: bool, acknowledged: int) -> None:
        """Overloaded if this child has its share on the way already. The link has acknowledged frames up to that."""
        while self._flying and self._flying[0][0] <= acknowledged:
            _, arrived, taken = self._flying.popleft()
            left = self._bytes[arrived] - taken
            if left:
                self._bytes[arrived] = left
            else:
                del self._bytes[arrived]
        most = int(self._queue_bytes * (NODE_SHARE if speaks_for_many else CLIENT_SHARE))
        held = self._bytes.get(child, 0)
        if held and held + max(size, self._least) > most:
            self.refused += 1
            raise Overloaded("bytes from one client or node on their way to the server", most)

    def took(self, child: int, size: int, number: int) -> None:
        """The link took a frame for this child, as its number `number`."""
        taken = max(size, self._least)
        self._flying.append((number, child, taken))
        self._bytes[child] = self._bytes.get(child, 0) + taken

    def clear(self) -> None:
        """A fresh link: nothing is on its way."""
        self._flying.clear()
        self._bytes.clear()

    def __len__(self) -> int:
        return len(self._bytes)
