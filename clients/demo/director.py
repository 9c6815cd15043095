"""The course of the demo: start, replay, kill a gateway, wait, judge."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hullcast.clients.demo.judge import Continuity, Judge, Moment, judge_all
from hullcast.clients.demo.record import RecordReader
from hullcast.clients.demo.scenario import AT_FIRST, CLIENTS, GATEWAYS, HOSTS, PUBLISHER, VICTIM, WANTED, many_ranges
from hullcast.clients.demo.stage import DemoStage
from hullcast.clients.demo.stocks import size_of
from hullcast.clients.demo.traffic import ContentNetwork, DemoTraffic, LinkLoad, unicast
from hullcast.clients.demo.view import Summary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hullcast.clients.demo.judge import Verdict
    from hullcast.clients.processes.cluster import Notice

FRAME_S = 0.125
#: Over how long rates are taken.
RATE_S = 2.0
RECOVER_S = 30.0


NO_TRAFFIC = DemoTraffic(0, 0, 0, 0, LinkLoad(), LinkLoad(), LinkLoad())


@dataclass(slots=True)
class Shown:
    """A subscription on the screen."""

    client: str
    kind: str
    sql: str
    text: str = ""
    number: float | None = None
    before: float | None = None  # the number that was there before this one
    changes: int = 0

    def look(self, text: str, number: float | None, changes: int) -> None:
        """Take what its process says."""
        if number != self.number:
            self.before = self.number
        self.text, self.number, self.changes = text, number, changes


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """How large, how long."""

    seconds: float
    rows: int
    updates: int
    subscriptions: int
    seed: int


@dataclass(slots=True)
class DemoState:
    """The show so far. `moved_ms`: by client that moved, how long after the kill it was subscribed again."""

    settings: DemoSettings
    shown: list[Shown]
    subscriptions: int = 0
    elapsed_s: float = 0.0
    published: int = 0
    rate: float = 0.0  # recent updates a second
    told_rate: float = 0.0  # recent new answers a second
    traffic: DemoTraffic = NO_TRAFFIC
    cpu_s: float = 0.0  # of server, nodes and clients, since the replay began
    places: dict[str, str] = field(default_factory=lambda: dict(AT_FIRST))
    connected: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(AT_FIRST, True))
    alive: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(GATEWAYS, True))
    killed_at_s: float | None = None
    moved_ms: dict[str, float] = field(default_factory=dict)
    phase: str = ""
    steps: list[str] = field(default_factory=list)  # what has been started
    playing: bool = False  # or over

    @property
    def title(self) -> str:
        """What this is."""
        stocks, clients = self.settings.rows, len(CLIENTS)
        return f"Hullcast: {stocks:,} stocks, {self.subscriptions:,} SQL subscriptions, {clients} clients"


class Director:
    """Runs the demo once. `draw` is called with the state of things, several times a second."""

    def __init__(
        self, settings: DemoSettings, folder: Path, draw: Callable[[DemoState], None], tell: Callable[[Notice], None]
    ) -> None:
        self._settings, self._draw = settings, draw
        self._stage = DemoStage(folder, settings, tell)
        self._judge = Judge()
        self._ranges = many_ranges(settings.subscriptions, settings.seed)
        self._content = ContentNetwork(self._ranges)
        self._reader = RecordReader(self._stage.record)
        self._continuity = Continuity()
        self._moments: list[Moment] = []
        self._updates = 0  # of the replay, read from the record
        self._killed_at: float | None = None
        self._cpu_before_s = 0.0
        self._lately: deque[tuple[float, int, int]] = deque()
        self.state = DemoState(settings, [Shown(name, one.kind, one.sql) for name, one in WANTED.items()])

    async def run(self) -> Summary:
        """All of it; when this returns or raises, no process is left."""
        began = time.monotonic()
        try:
            self._phase("starting a server, a root, four gateways, the clients and a publisher")
            self.state.subscriptions = await self._stage.start(self._step)
            self._read_record(counting=False)
            await self._play()
            self._phase("waiting until every client has everything")
            results = await self._stage.finish()
            self._read_record()
            await self._look()
            self._phase("comparing every answer with SQL")
            verdict = self._judge_all(results)
            return Summary.of(self.state, verdict, self._judge.range_s, time.monotonic() - began)
        finally:
            await self._stage.stop()
            self._content.close()
            self._judge.close()

    async def _play(self) -> None:
        """Replay the trace; the gateway dies when half of it, or of the time, is over."""
        began, settings = time.monotonic(), self._settings
        self._cpu_before_s = self._stage.cpu_s()
        await self._stage.workers[PUBLISHER].ask("play", seconds=settings.seconds)
        self.state.playing = True
        self._phase("")
        while True:
            due = time.monotonic() + FRAME_S
            self.state.elapsed_s = time.monotonic() - began
            done = await self._look()
            self._read_record()
            half = self.state.published >= settings.updates / 2 or self.state.elapsed_s >= settings.seconds / 2
            if self._killed_at is None and (half or done):
                await self._stage.kill(VICTIM)
                self._killed_at, self.state.killed_at_s = time.monotonic(), time.monotonic() - began
                self.state.alive[VICTIM] = False
            elif done and self._recovered(time.monotonic()):
                return
            self._draw(self.state)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _recovered(self, now: float) -> bool:
        """Whether all clients of the killed gateway are at another one, or it takes too long; the verdict says so."""
        assert self._killed_at is not None, "asked after the kill"
        moved = all(name in self.state.moved_ms for name, place in AT_FIRST.items() if place == VICTIM)
        return moved or now - self._killed_at > RECOVER_S

    async def _look(self) -> bool:
        """Ask all processes how it goes; whether the replay is over."""
        self._stage.check()
        workers = self._stage.workers
        asked = zip(workers, await asyncio.gather(*(one.ask("look") for one in workers.values())), strict=True)
        looks: dict[str, Any] = {}
        for worker, look in asked:
            looks |= look if worker in HOSTS else {worker: look}
        carried, left_server = await self._stage.carried()
        state = self.state
        for name, look in looks.items():
            self._place(name, look)
        for shown in state.shown:
            shown.look(**looks[shown.client]["answer"])
        told = sum(looks[name]["told"] for name in CLIENTS)
        rows = sum(looks[name]["row_bytes"] for name in CLIENTS)
        state.published = looks[PUBLISHER]["published"]
        state.traffic = DemoTraffic(
            self._updates, left_server, told, self._content.asked, carried, self._content.load, unicast(told, rows)
        )
        state.cpu_s = self._stage.cpu_s() - self._cpu_before_s
        if not state.phase:  # while the replay goes on
            self._rates(time.monotonic(), state.published, told)
        return bool(looks[PUBLISHER]["done"])

    def _place(self, name: str, look: dict[str, Any]) -> None:
        state = self.state
        state.connected[name] = look["connected"]
        state.places[name] = self._stage.gateway_at(look["endpoint"]) or state.places[name]
        for at in look["moved"]:
            if self._killed_at is not None and at >= self._killed_at and AT_FIRST[name] == VICTIM:
                state.moved_ms.setdefault(name, 1e3 * (at - self._killed_at))

    def _rates(self, now: float, published: int, told: int) -> None:
        self._lately.append((now, published, told))
        while now - self._lately[0][0] > RATE_S and len(self._lately) > 2:
            self._lately.popleft()
        then, published_then, told_then = self._lately[0]
        if now > then:
            self.state.rate = (published - published_then) / (now - then)
            self.state.told_rate = (told - told_then) / (now - then)

    def _read_record(self, *, counting: bool = True) -> None:
        """Follow the publisher: rows for the judge, updates for CN, and what SQL says at each moment."""
        for entry in self._reader.new():
            self._continuity.follow(entry)
            moved = self._judge.apply(entry)
            if counting:
                self._updates += size_of(entry.action)
                self._content.carry(entry.action.table, entry.last, moved, self.state.places)
            if entry.moment:
                self._moments.append(
                    Moment(entry.last, {one.sql: self._judge.answer(one.sql) for one in WANTED.values()})
                )

    def _judge_all(self, results: dict[str, dict[str, Any]]) -> Verdict:
        verdict = judge_all(results, self._judge, self._moments, self._ranges)
        if self._continuity.fault is not None:
            verdict.fault(self._continuity.fault)
        for name, place in AT_FIRST.items():
            if place == VICTIM and name not in self.state.moved_ms:
                verdict.fault(f"{name} did not reconnect after {VICTIM} was killed")
        return verdict

    def _step(self, text: str) -> None:
        self.state.steps.append(text)
        self._draw(self.state)

    def _phase(self, text: str) -> None:
        self.state.phase = text
        self._draw(self.state)
