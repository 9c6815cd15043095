"""What leaves the server when the log has it: replies, messages in their order, and word to those who follow the log.

The messages of a large batch leave in portions, cut between updates, one a turn of the event loop: to find out who gets
what takes milliseconds a megabyte. Whatever must not overtake them waits behind.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hullcast.broker.server.outcome import Outcome
from hullcast.broker.server.pipeline import OURS
from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import Done, Failed, Receipts
from hullcast.network.wire.columns import concatenate, size_bytes, take
from hullcast.network.wire.errors import ConnectionLost, to_wire
from hullcast.network.wire.frames import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hullcast.broker.server.leaving import Leaving
    from hullcast.broker.server.pipeline import Pipeline, Step
    from hullcast.network.node.children import Children
    from hullcast.network.wire.columns import Columns
    from hullcast.network.wire.frames import Request

    Portion = tuple[int, dict[int, Columns]]  # messages by channel, and up to which update they are complete

#: Bytes of messages that leave in one turn, about.
PORTION_BYTES = 1 << 20
#: So many messages leave at once, whatever their size: to look at it takes longer than to send one.
FEW_MESSAGES = 64
#: Steps that may wait behind portions; beyond, all portions leave in one turn.
MOST_BEHIND = 10_000
#: How long a receipt that nobody waits for may stay, and how many of one client may.
LAZY_S, LAZY_MOST = 0.05, 16
#: Receipts of one reply. The slower the disk, the more are owed at once, and a frame has its limits.
TOGETHER_MOST = 4096


class ReleaseObserver(Protocol):
    """Who must know when more is on disk."""

    def on_release(self) -> None:
        """Steps have left, and what they logged can be read."""


class Releases:
    def __init__(
        self, children: Children, pipeline: Pipeline, leaving: Leaving, followers: Sequence[ReleaseObserver]
    ) -> None:
        self._children, self._pipeline, self._leaving, self._followers = children, pipeline, leaving, followers
        self._receipts = OwedReceipts(children.answer)
        self._portions: Iterator[Portion] | None = None  # of a large batch

    @property
    def sending(self) -> bool:
        return self._portions is not None

    def release(self, steps: list[Step]) -> None:
        self._send(steps)
        self._receipts.settle()
        self._leaving.forgo_withdrawn()
        self._children.listener.flush()
        for follower in self._followers:
            follower.on_release()

    def _send(self, steps: list[Step]) -> None:
        """The messages of consecutive batches go out as one."""
        if self._portions is not None:
            waiting = [step for step in steps if _comes_behind(step.outcome)]
            steps = [step for step in steps if not _comes_behind(step.outcome)]
            for step in waiting:
                is_receipt = isinstance(step.outcome.reply, Done) and not step.outcome.ordered
                if is_receipt:  # it says nothing of messages
                    self._answer(step)
                self._pipeline.behind.append(step._replace(request=OURS) if is_receipt else step)
        gathered: dict[int, list[Columns]] = {}
        through = 0
        for at, step in enumerate(steps):
            outcome = step.outcome
            if outcome.ordered and through:
                if not self._deliver(through, gathered):
                    self._send(steps[at:])
                    return
                through, gathered = 0, {}
            if outcome.through:
                through = outcome.through
                for channel, columns in outcome.messages.items():
                    gathered.setdefault(channel, []).append(columns)
            if outcome.void:
                if not self._deliver(through, gathered):
                    told = step._replace(outcome=replace(outcome, through=0, messages={}))
                    self._send([told, *steps[at + 1 :]])
                    return
                through, gathered = 0, {}
                self._children.void(outcome.void)
            self._answer(step)
        if through:
            self._deliver(through, gathered)
        if len(self._pipeline.behind) > MOST_BEHIND:
            self._finish()

    def _answer(self, step: Step) -> None:
        request, outcome, reply, rights, owner = step
        if outcome.installs and rights is not self._children.rights:  # what it installs may no longer be allowed
            again = Failed(*to_wire(ConnectionLost("the allow list was read again")))
            self._leaving.take_back(request, owner, outcome)
            outcome, reply = Outcome(again), bodies.encode(again)
        if request.id and isinstance(outcome.reply, Done) and outcome.reply.deleted is None:
            self._receipts.owe(request, outcome.reply)
        elif request.id:
            self._children.answer(Reply(request.id, request.route, outcome.installs, reply))
        elif outcome.installs:
            self._leaving.take_back(request, owner, outcome)

    # --- messages --------------------------------------------------------------------------------------------

    def _deliver(self, through: int, gathered: dict[int, list[Columns]]) -> bool:
        """Send messages; False if they are many, and leave in portions from now on."""
        channels = {channel: concatenate(batches) for channel, batches in gathered.items()}
        few = sum(len(columns["seq"]) for columns in channels.values()) <= FEW_MESSAGES
        if few or sum(map(size_bytes, channels.values())) <= PORTION_BYTES:
            self._children.deliver(through, channels)
            return True
        self._portions = portions(through, channels)
        self._send_portion()
        return self._portions is None

    def _send_portion(self) -> None:
        if self._portions is None:  # `_finish` was called
            return
        portion = next(self._portions, None)
        if portion is not None:
            self._children.deliver(*portion)
            self._children.listener.flush()
            asyncio.get_running_loop().call_soon(self._try_portion)
            return
        self._portions = None
        behind, self._pipeline.behind = self._pipeline.behind, []
        if behind:
            self._send(behind)
            self._receipts.settle()
            self._children.listener.flush()

    def _try_portion(self) -> None:
        try:
            self._send_portion()
        except Exception as error:  # noqa: BLE001  (`Server.run` raises it)
            self._pipeline.fail(error)

    def _finish(self) -> None:
        while self._portions is not None:
            for portion in self._portions:
                self._children.deliver(*portion)
            self._send_portion()

    def close(self) -> None:
        self._finish()
        self._receipts.close()


class OwedReceipts:
    """Receipts by client, until they leave. Those of a client that is gone leave for nobody: it will ask again."""

    def __init__(self, answer: Callable[[Reply], None]) -> None:
        self._answer = answer
        self._owed: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}  # by route
        self._due: set[tuple[int, ...]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def owe(self, request: Request, done: Done) -> None:
        """A change was applied, and is on disk."""
        owed = self._owed.setdefault(request.route, [])
        owed.append((request.id, done.first, done.last))
        if not request.lazy or len(owed) >= LAZY_MOST:
            self._due.add(request.route)

    def settle(self) -> None:
        due, self._due = self._due, set()
        for route in due:
            self._send(route)
        if self._owed and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LAZY_S, self._send_all)

    def _send_all(self) -> None:
        self._timer = None
        for route in list(self._owed):
            self._send(route)

    def _send(self, route: tuple[int, ...]) -> None:
        owed = self._owed.pop(route)
        for start in range(0, len(owed), TOGETHER_MOST):
            changes = owed[start : start + TOGETHER_MOST]
            number, first, last = changes[-1]
            body = Done(first, last) if len(changes) == 1 else Receipts(tuple(changes))
            self._answer(Reply(number, route, (), bodies.encode(body)))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._send_all()


def _comes_behind(outcome: Outcome) -> bool:
    return bool(outcome.ordered or outcome.through or outcome.void or outcome.installs)


def portions(through: int, channels: dict[int, Columns]) -> Iterator[Portion]:
    """Messages cut between updates, so that no subscriber sees half of one, in parts of about PORTION_BYTES."""
    numbers = {channel: np.asarray(columns["seq"]) for channel, columns in channels.items()}
    in_order = {channel: bool((seqs[1:] >= seqs[:-1]).all()) for channel, seqs in numbers.items()}
    first = min(int(seqs.min()) for seqs in numbers.values())
    size = sum(map(size_bytes, channels.values()))
    step = max(1, (through - first + 1) * PORTION_BYTES // size)
    for start in range(first, through + 1, step):
        until = min(through, start + step - 1)
        found = {}
        for channel, seqs in numbers.items():
            if in_order[channel]:
                low, high = np.searchsorted(seqs, (start, until + 1))
                if low < high:
                    found[channel] = take(channels[channel], slice(low, high))
            elif (wanted := (start <= seqs) & (seqs <= until)).any():
                found[channel] = take(channels[channel], wanted)
        yield until, found
