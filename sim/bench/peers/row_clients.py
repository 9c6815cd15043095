"""Messages of a broker that carries rows, and the clients that apply all they get."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns

import msgpack  # type: ignore[import-untyped]  # has no types
import numpy as np

from hullcast.clients.processes.worker import WorkerFailed
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import HullcastError
from hullcast.sim.bench.peers.interface import LOOK_S, Part
from hullcast.sim.bench.peers.state import ClientState
from hullcast.sim.bench.peers.workload import Call, Rows


class LostUpdates(HullcastError):
    """A message did not arrive, so this client's rows are wrong from here on."""


def packed(call: Call) -> bytes:
    """A call as a message: the number of its first update, then the row's values or the bytes of the columns."""
    if call.row is not None:
        return bytes(msgpack.packb((call.first, *call.row)))
    rows = call.rows
    return bytes(msgpack.packb((call.first, rows.ids.tobytes(), rows.risk.tobytes(), rows.per.tobytes())))


class RowClient:
    """One connection's client. It applies what arrived in one turn of the event loop in one go."""

    def __init__(self, state: ClientState, heard: Callable[[int, Ints], None], seen: Callable[[int], None]) -> None:
        self.state = state
        self.at = 0  # updates applied
        self.when = 0  # the last of them
        self.lost: LostUpdates | None = None
        self._heard, self._seen = heard, seen
        self._waiting: list[bytes] = []

    def hear(self, message: bytes) -> None:
        """Apply a message soon, together with others that are already here."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._take_waiting)
        self._waiting.append(message)

    def _take_waiting(self) -> None:
        messages, self._waiting = self._waiting, []
        self.take(messages)

    def take(self, messages: list[bytes]) -> None:
        """Apply messages, in order."""
        singles: list[tuple[int, float, float]] = []
        at = self.at
        for message in messages:
            first, ids, risk, per = msgpack.unpackb(message)
            if first != at:
                self.lost = self.lost or LostUpdates(f"updates {at:,} to {first:,} did not arrive")
                return
            if isinstance(ids, int):
                singles.append((ids, risk, per))
                at += 1
                continue
            self._apply_singles(singles)
            singles = []
            rows = Rows(np.frombuffer(ids, np.int64), np.frombuffer(risk), np.frombuffer(per))
            at += len(rows)
            self._apply(rows)
        self._apply_singles(singles)
        self._seen(self.at)
        self.when = monotonic_ns()

    def _apply_singles(self, singles: list[tuple[int, float, float]]) -> None:
        if singles:
            ids, risk, per = zip(*singles, strict=True)
            self._apply(Rows(np.array(ids, np.int64), np.array(risk), np.array(per)))

    def _apply(self, rows: Rows) -> None:
        changed = np.flatnonzero(self.state.apply(rows))
        if len(changed):
            self._heard(monotonic_ns(), changed + self.at)
        self.at += len(rows)


class RowClients:
    """The client side that all such peers share: a listener for each connection of this process."""

    def __init__(self, part: Part) -> None:
        job = part.job
        self.listeners = [
            RowClient(
                ClientState(job.start, job.capacity, job.low[which], job.high[which]),
                part.sampler.heard,
                part.progress.saw(connection),
            )
            for connection in part.connections
            for which in [job.part(connection, part.total)]
        ]
        self._failure: Exception | None = None

    async def failed(self, error: Exception) -> None:
        """The connection reports an error, such as messages it had to drop."""
        self._failure = self._failure or error

    async def drained(self, published: int) -> int:
        """Wait until every listener has applied so many updates."""
        while min(listener.at for listener in self.listeners) < published:
            for listener in self.listeners:
                if listener.lost is not None:
                    raise listener.lost
            if self._failure is not None:
                raise WorkerFailed(f"{type(self._failure).__name__}: {self._failure}")
            await asyncio.sleep(LOOK_S)
        return max(listener.when for listener in self.listeners)

    async def answers(self) -> list[Floats]:
        """Of each connection."""
        return [listener.state.answers for listener in self.listeners]
