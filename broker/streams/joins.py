"""The joins behind derived streams, as the server knows them: what each reads, needs and keeps, and how it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hullcast.broker.streams.definition import kept_counts, start_of, terms_of
from hullcast.broker.streams.operators.operator import check_kept
from hullcast.broker.streams.plan import kept_bytes, plan_of, query_of
from hullcast.broker.tables.schema import AT, fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.engine.stream import Stream
    from hullcast.broker.streams.memory.bounded_join import BoundedJoinStatistics
    from hullcast.broker.streams.messages import QueryStart, QueryTerms, RangeEnd
    from hullcast.broker.streams.runner import PathStatistics
    from hullcast.broker.tables.schema import Table
    from hullcast.network.wire.errors import HullcastError


class Noted(NamedTuple):
    """A record of the log that says up to which update a join has consumed it; `before`: the one before says that."""

    record: int
    seq: int
    before: int


@dataclass(eq=False, slots=True)
class JoinState:
    """A join in the streams process that there is now; number 0: it was not told of it."""

    number: int = 0
    opened: bool = False
    failed: HullcastError | None = None
    again_at: float = 0.0
    paths: tuple[PathStatistics, ...] = ()
    memory: BoundedJoinStatistics | None = None
    kept_bytes: int = 0


class DerivedJoin:
    """What makes a derived stream, and what came of it since the server started, however many processes there were."""

    def __init__(self, stream: Stream, terms: QueryTerms) -> None:
        self.stream, self.terms, self.table = stream, terms, stream.store.table
        self.reads = frozenset(fold(source.life.table.name) for source in terms.sources)
        self.reads_table = len(terms.streams) < len(terms.sources)
        self.results = 0
        self.gaps = 0  # times that results are missing; subscribers got a Resync
        self.noted: Noted | None = None  # of one that reads a table
        self.state = JoinState()

    @property
    def created(self) -> int:
        """From there on it has results; before, they may be gone, by age."""
        return max(self.stream.store.created, self.stream.order.removed)

    def last_at(self) -> int | None:
        """The tuple that made its last result, if it has any."""
        store = self.stream.store
        if not len(self.stream.order):
            return None
        live = store.live_slots()
        last = live[np.argmax(store.cells[store.table.key, live])]
        return int(store.cells[store.table.position(AT.name), last])

    def start(self, streams: Mapping[str, Stream], at: int | None, through: int) -> QueryStart:
        """Where it goes on: see `start_of`."""
        return start_of(self.terms, streams, at, self.created, through, self.stream.consumed)

    def durable(self, synced: int) -> int:
        """Up to which update it has consumed the log, by what would be known after a crash: records up to `synced`."""
        if self.noted is not None:
            return self.noted.seq if self.noted.record <= synced else self.noted.before
        return self.stream.store.created if self.stream.logged is None else self.stream.logged[1]


class DerivedJoins:
    """Those of all derived streams of an engine, and the memory that they may take together."""

    def __init__(self, engine: ServedEngine, memory_bytes: int) -> None:
        self._engine, self._memory_bytes = engine, memory_bytes
        self._joins: dict[Stream, DerivedJoin] = {}
        self._definitions = -1

    def __iter__(self) -> Iterator[DerivedJoin]:
        engine = self._engine
        if self._definitions != engine.catalogue.definitions:
            self._definitions, known = engine.catalogue.definitions, self._joins
            self._joins = {
                stream: known.get(stream) or DerivedJoin(stream, terms_of(stream.store.table, engine.catalogue.stores))
                for stream in engine.streams.derived
            }
        return iter(self._joins.values())

    def named(self, name: str) -> DerivedJoin | None:
        """That of a derived stream."""
        return next((join for join in self if fold(join.table.name) == fold(name)), None)

    def reading(self, name: str) -> list[DerivedJoin]:
        """Those that read a stream or table."""
        folded = fold(name)
        return [join for join in self if folded in join.reads]

    def needs(self, stream: Stream) -> int | None:
        """The last position of a stream that no derived stream needs any more, to go on from what it has consumed; None
        if none is made of it."""
        name, found = fold(stream.store.table.name), []
        for join in self.reading(name):
            at = join.last_at() if join.stream.consumed is None else None
            bases = join.start(self._engine.streams, at, self._engine.seq).bases
            sides = zip(bases, join.terms.streams, strict=True)
            found += [base.seq for base, side in sides if fold(side.life.table.name) == name]
        return min(found, default=None)

    def check_room(self, table: Table, but: DerivedJoin | None = None) -> None:
        """TooLarge if there is no room for what a derived stream would keep, beside all others (`but` one)."""
        others = [join for join in self if join is not but]
        kept = sum(max(self.needed_bytes(join.terms), join.state.kept_bytes) for join in others)
        check_kept(kept, self.needed_bytes(terms_of(table, self._engine.catalogue.stores)), self._memory_bytes)

    def needed_bytes(self, terms: QueryTerms) -> int:
        """What a join keeps in memory, as far as that is known before it does."""
        query = query_of(terms, _no_text)
        return kept_bytes(query, kept_counts(terms, self._engine.streams, self._engine.catalogue.stores))

    # -- for people --------------------------------------------------------------------------------------------

    def facts(self, join: DerivedJoin) -> dict[str, Any]:
        """A derived stream, opened or not."""
        state = join.state
        waiting = sum(operator.waiting for path in state.paths for operator in path.operators)
        behind_s, slowest = self._waits_for(join)
        return {
            **self._kept(join.table, join.terms, state),
            "results": join.results,
            "waiting": waiting,
            "behind_s": behind_s,
            "waits_for": slowest if waiting else None,
            "opened": state.opened,
            "gaps": join.gaps,
            "failed": None if state.failed is None else str(state.failed),
        }

    def explain(self, table: Table) -> dict[str, Any]:
        """How a derived stream is computed, or would be: its operators, what they were measured to take and to let
        through, their progress charts and envelopes. `made`: whether it exists."""
        join, terms = self.named(table.name), terms_of(table, self._engine.catalogue.stores)
        facts = self._kept(table, terms, JoinState()) if join is None else self.facts(join)
        measured = () if join is None else join.state.paths
        paths = [_path_facts(path) for path in measured] or _planned(terms)
        for path in paths:
            (path["stream"],) = self._engine.catalogue.spelt([path["stream"]])
        return {**facts, "made": join is not None, "paths": paths}

    def _kept(self, table: Table, terms: QueryTerms, state: JoinState) -> dict[str, Any]:
        memory = state.memory
        return {
            "source": self._engine.catalogue.source_shown(table),
            "memory": None if memory is None else {**asdict(memory), "missed_share": memory.missed_share},
            "memory_limit": terms.memory,
            "kept_bytes": state.kept_bytes,
            "needed_bytes": self.needed_bytes(terms),
        }

    def _waits_for(self, join: DerivedJoin) -> tuple[float | None, str | None]:
        """Of a join of two streams with times: how far what it has consumed is behind the one that is ahead, in
        seconds, and the name of the other one, whose time it waits for."""
        sources = [self._engine.streams[fold(side.life.table.name)] for side in join.terms.streams]
        if len(sources) < 2 or not join.terms.timed or not all(np.isfinite(source.order.time) for source in sources):
            return None, None
        first, last = sorted(sources, key=lambda source: source.order.time)
        consumed = join.stream.consumed
        reached = first.order.time if consumed is None else min(consumed[0], last.order.time)
        slowest = first.store.table.name if first.order.time < last.order.time else None
        return max(0.0, last.order.time - reached) / 1e6, slowest


def _no_text(end: RangeEnd) -> float:
    """Stands for the codes of texts where only sizes and names count."""
    return 0.0 if isinstance(end, str) else end


def _path_facts(path: PathStatistics) -> dict[str, Any]:
    """A path as `hullcast explain` shows it. The unit of its chart is a byte of its stream's tuples: after `times[i]`
    seconds of work `sizes[i]` bytes of it are left. `envelope` has the numbers of points, `slopes` what each operator's
    chain frees, in bytes per second and byte."""
    chart = path.chart
    return {
        "stream": path.stream,
        "operators": [operator._asdict() for operator in path.operators],
        "chart": {
            "times": list(chart.times),
            "sizes": list(chart.sizes),
            "envelope": list(chart.envelope()),
            "slopes": list(chart.slopes()),
        },
    }


def _planned(terms: QueryTerms) -> list[dict[str, Any]]:
    """The paths of a query that is not open, with the names of their operators only."""
    query = query_of(terms._replace(memory=None), _no_text)
    plan = plan_of(query)
    return [
        {"stream": stream.stream, "operators": [{"name": operator.name} for operator in plan.path(leaf)], "chart": None}
        for leaf, stream in enumerate(query.streams)
    ]
