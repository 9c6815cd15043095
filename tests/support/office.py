"""A hall without sockets, disk or other processes: requests in, outcomes as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.engine.stream import Stream
from hullcast.broker.log.publishers import Publishers
from hullcast.broker.scheduling.driver import Work
from hullcast.broker.server.access import Access, Asked
from hullcast.broker.server.attendance import Attendance
from hullcast.broker.server.changing import Changing
from hullcast.broker.server.conditionals import Conditionals
from hullcast.broker.server.describing import Describing
from hullcast.broker.server.hall import Hall
from hullcast.broker.server.outcome import Outcome
from hullcast.broker.server.pipeline import Commits
from hullcast.broker.server.requests import HANDLERS
from hullcast.broker.server.retention import Retention
from hullcast.broker.server.service import Server
from hullcast.broker.server.settings import ServerSettings
from hullcast.broker.server.streams import StreamsProcess
from hullcast.broker.server.subscribing import Subscribing
from hullcast.broker.tables.schema import Table
from hullcast.network.security.rights import Rights
from hullcast.network.wire import bodies
from hullcast.network.wire.frames import Request


class NoJoins:
    """There is no process that joins streams: it refuses nothing, and need not know."""

    def needs(self, stream: Stream) -> int | None:
        return None

    def refuse_more(self, table: str) -> None: ...
    def check_room(self, stream: Table) -> None: ...
    def advanced(self, stream: str, seq: int, reached: float) -> None: ...


class OwnChanges:
    """The changes that the server made of its own accord."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.failed: BaseException | None = None

    def change(self, make: Callable[[], Iterable[Outcome]]) -> None:
        self.outcomes += make()

    def check_disk(self) -> None: ...
    def fail(self, error: BaseException) -> None:
        self.failed = error


class Office:
    """The parts of a server that decide, and nothing else."""

    def __init__(
        self,
        engine: ServedEngine,
        publishers: Publishers | None = None,
        *,
        rights: Callable[[], Rights] = Rights.everything,
        attendance: Attendance | None = None,
        wanted: Callable[[], set[int]] = set,
        epoch: bytes = bytes(16),
        rows: int = 1000,
        limits: ServerSettings | None = None,
        make_for: Callable[[str, str], None] = lambda sql, owner: None,
    ) -> None:
        self.engine, self.epoch = engine, epoch
        self.publishers = Publishers() if publishers is None else publishers
        self.rights, self.moment = rights, 0.0
        if attendance is None:
            retention = Retention(1 << 20)
            attendance = Attendance(engine, retention, 30.0, lambda _, partitions: np.ones(len(partitions), np.bool_))
        self.attendance = attendance
        self.own = OwnChanges()
        conditionals = Conditionals(engine, self.attendance, 0, lambda: None)
        self.changing = Changing(
            engine,
            self.publishers,
            self.attendance,
            conditionals,
            wanted,
            rows,
            cast("StreamsProcess", NoJoins()),
            cast("Commits", self.own),
        )
        self.subscribing = Subscribing(
            engine,
            epoch,
            self.attendance,
            conditionals,
            limits or ServerSettings(subscribe_rows=100, subscribe_groups=50, max_channels=3),
            make_for,
        )
        loaded = {"tables": {}, "views": {}}  # type: dict[str, dict[str, Any]]
        describing = Describing(engine, self.attendance, conditionals, lambda: loaded, lambda stream: {})
        server = SimpleNamespace(
            engine=engine,
            changing=self.changing,
            subscribing=self.subscribing,
            describing=describing,
            now=lambda: self.moment,
            commits=None,
            pipeline=None,
        )
        self.hall = Hall(cast("Server", server))

    def asked(self, body: bodies.Body, request: Request) -> Asked[Any]:
        return Asked(body, request, Access(self.rights, request), HANDLERS[type(body)].needed)

    def work(self, body: bodies.Body, request: Request) -> Work:
        """Do a request, whose body is decoded, in slices; the result is an Outcome."""
        return self.hall.decide(HANDLERS[type(body)], self.asked(body, request))

    def publish(self, arrived: Sequence[tuple[bodies.Publish, Request]]) -> list[Outcome]:
        """Apply publishes that arrived together."""
        return self.hall.publish([self.asked(*one) for one in arrived])

    def tidy(self) -> None:
        """What the server does every round."""
        self.engine.tidy()
        self.changing.forget_swept()
