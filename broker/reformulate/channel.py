"""A channel: all who ask the same question with other constants, and what updates mean for them."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np

from hullcast.broker.index.grouping import Grouping
from hullcast.broker.joins.costs import DEFAULTS, Coefficients
from hullcast.broker.reformulate.messages import on_the_way
from hullcast.broker.tables.schema import ColumnType
from hullcast.broker.tables.travel import Codes
from hullcast.broker.tables.values import decode_column
from hullcast.network.answers.answers import CollectionAnswers, SingleAnswers
from hullcast.network.answers.audience import Audience
from hullcast.network.answers.outbox import Outbox
from hullcast.network.matching.duality import box_points
from hullcast.network.matching.messages import RECTANGLES
from hullcast.network.wire.bodies import ChannelSpec
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hullcast.broker.reformulate.keeper import TreeKeeper
    from hullcast.broker.reformulate.messages import Messages, ShownColumn
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.sql.query import Predicates, Ref, Shape
    from hullcast.broker.tables.interning import Interner, Texts
    from hullcast.broker.tables.schema import Table
    from hullcast.broker.tables.store import TableStore, Updates
    from hullcast.network.answers.answers import Answers
    from hullcast.network.wire.arrays import Booleans, Floats, Ints
    from hullcast.network.wire.columns import Columns


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """What a channel has seen since it was opened.

    Every update of the table is ignorable (no message), easy (one: its own new value) or difficult (it uncovered
    others). `told` counts events for local subscriptions, `waiting` those not yet drained.
    """

    updates: int
    ignorable: int
    easy: int
    difficult: int
    messages: int
    subscriptions: int
    told: int
    waiting: int
    memory_bytes: int


class Opening(NamedTuple):
    """What every channel is opened with."""

    name: str
    shape: Shape
    stores: tuple[TableStore, ...]  # of the tables it reads, left one first
    interner: Interner
    event_limit: int
    share: Callable[[int, int | None, int | None, tuple[int, ...]], TreeKeeper]  # the tree of (side, x, y, groups)
    coefficients: Coefficients = DEFAULTS  # what the plans of a join cost on this machine
    at_once: bool = True  # nothing is left for `upkeep`


class Channel(ABC):
    """One query shape while somebody wants it: it keeps what the shape needs, and turns updates into messages.

    `update` comes before `tell`: the first describes (and is all that a server without local subscribers does), the
    second lets the answers of this process's own subscriptions hear it.

    A kind's channel extends `SingleChannel` or `CollectionChannel`, as its answers do. It says what `update` makes of a
    batch and what first answers are (`capture`). The trees it needs are its `keepers`, one a table.
    """

    #: Whether messages describe only what is wanted: then the channel must be told every range (`want`, `forgo`).
    counted: ClassVar[bool] = False

    def __init__(self, opening: Opening) -> None:
        self.name, self.shape, self.stores, self.interner = (
            opening.name,
            opening.shape,
            opening.stores,
            opening.interner,
        )
        self.share = opening.share
        self.outbox = Outbox(opening.event_limit)
        self.spec = self._spec()
        self.audience = Audience(2 * self.spec.dimensions + self.spec.partitioned, self.outbox)
        self.grouping = Grouping(len(self.shape.partition))  # numbers of the partitions
        self.keepers: tuple[TreeKeeper, ...] = ()
        self.answers: Answers = self.shape.kind.answers(self.spec, Codes(self.interner), self.recompute)
        self.holders = 0  # explicit opens; the channel lives while it has holders or an audience
        self.held = False  # rows of a batch that nobody may see yet are in its tables
        self.attended = False  # subscribers elsewhere listen, as far as the server knows
        self.asked_elsewhere: Callable[[Floats], Booleans] | None = None  # which partitions they ask for
        self._tally = np.zeros(3, np.int64)
        self._counted = 0
        self._told = 0

    @property
    def function(self) -> int:
        """Which of the functions that share its answers this is, where several do."""
        return 0

    def _spec(self) -> ChannelSpec:
        """What a subscriber needs to know of a channel to understand its messages."""
        shape, tables, form = self.shape, self.tables, self.shape.kind.answers.form
        return ChannelSpec(
            name=self.name,
            kind=shape.kind.name,
            form=form,
            dimensions=max(shape.dimensions, int(form == RECTANGLES)),  # without a range column, over all x
            partitioned=bool(shape.partition),
            function=self.function,
            y_type=tables[0].columns[shape.y.column].type.value if shape.y is not None else "",
            key_types=tuple(table.key_column.type.value for table in tables),
            row_names=tuple(self.column_name(ref) for ref in shape.projection),
            row_types=tuple(tables[ref.side].columns[ref.column].type.value for ref in shape.projection),
        )

    @property
    def most_messages(self) -> int:
        """Messages described for one batch. Where it makes more, nobody is told which: whoever listens begins again."""
        return sys.maxsize

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables read, left one first."""
        return tuple(store.table for store in self.stores)

    @abstractmethod
    def update(self, side: int, updates: Updates, first_seq: int) -> Messages:
        """Take a batch of updates of one of the tables, and describe which answers changed."""

    def loading(self) -> list[tuple[TreeKeeper, TableStore]]:
        """The trees that do not have all rows yet: `update` must not be called before they do."""
        return [(keeper, store) for keeper, store in zip(self.keepers, self.stores, strict=False) if not keeper.loaded]

    def absorb(self, side: int, updates: Updates) -> None:
        """Take a batch while trees are being loaded: nothing is described."""
        self.keepers[side].update(updates)

    def hold(self) -> None:
        """A large batch begins: until it is switched to, nobody may ask what answers are, or for other ranges."""
        self.held = True
        self.holders += 1

    def let_go(self, seq: int) -> None:
        """It is switched to, and was the updates up to this one."""
        self.held = False
        self.holders -= 1

    def compares(self, column: int) -> bool:
        """Whether which messages there are depends on a column of its (one) table."""
        shape = self.shape
        refs = {*shape.ranges, *shape.partition, *((shape.y,) if shape.y else ())}
        return any(ref.column == column for ref in refs)

    @property
    def positions(self) -> Mapping[str, str]:
        """Of a channel over a stream: which columns of messages, as they travel and as people see them, have the
        position of the tuple that came."""
        key, shown = self.tables[0].key, enumerate(self.shape.projection)
        return {f"row.{i}": f"row.{self.column_name(ref)}" for i, ref in shown if ref.column == key}

    def check_free(self) -> None:
        """InvariantBroken if it is held: somebody did not ask the engine."""
        if self.held:
            raise InvariantBroken(f"{self.name} is held by a large batch")

    def tell(self, messages: Messages) -> None:
        """Let the local subscriptions hear the messages of the latest `update`."""
        if not messages.complete:
            self.outbox.lose(self.audience.everybody())
        if len(self.audience) and len(messages):
            self._told += self.answers.hear(self.audience, messages.codes)

    def admit(self, predicates: Predicates) -> Ints:
        """Take in local subscriptions, with their answers as of now; returns their numbers."""
        return self.audience.admit(self.points(predicates), predicates.never, predicates.of)

    def dismiss(self, listeners: Ints) -> None:
        """Local subscriptions leave."""
        self.audience.dismiss(listeners)

    def recompute(self, listeners: Ints) -> Columns:
        """First answers of local subscriptions as of now, for kinds whose messages may leave an answer in doubt."""
        raise InvariantBroken(f"{self.name}: answers of this kind are never recomputed")

    def first(self, predicates: Predicates) -> Columns:
        """The answers as of now of subscriptions elsewhere, as columns that travel (network/wire/PROTOCOL.md)."""
        return self.capture(predicates)()

    @abstractmethod
    def capture(self, predicates: Predicates) -> Callable[[], Columns]:
        """`first` in two steps: the state is taken now, and computed with when the result is called, in any thread."""

    #: How many predicates `capture` takes in a few milliseconds.
    capture_at_once = 1 << 62

    def capture_cost(self, n: int) -> int:
        """How many rows are looked at, and perhaps found, when n first answers are computed, at most."""
        return n * sum(len(store) for store in self.stores)

    def want(self, points: Floats | None) -> None:  # noqa: B027  (most channels describe everything anyway)
        """From now on messages describe all that subscriptions with these points hear of; None: with any point.
        Counted: see `forgo`."""

    def forgo(self, points: Floats | None) -> None:  # noqa: B027
        """Undo one `want` of each of these."""

    def wanted_since(self, points: Floats) -> int:
        """Messages of all updates after this one have described what these points hear of."""
        return 0

    def ranges_known(self) -> tuple[int, int]:
        """How many different ranges are wanted, and how many in all, where they are counted."""
        return 0, 0

    def upkeep(self) -> Work | None:
        """Work that makes updates cheaper, where some is due and none is under way. It may be given up at any time."""
        return None

    def bounds(self, predicates: Predicates) -> tuple[Floats, Floats]:
        """Predicates as boxes over the range columns and the partition columns, (n, d) each, to look for rows with."""
        self.check_free()
        equal = [codes.reshape(-1, 1) for codes in self.partition_codes(predicates)]
        return np.hstack((predicates.low, *equal)), np.hstack((predicates.high, *equal))

    def live_codes(self) -> Floats:
        """Codes that local subscriptions compare partition columns with: their texts must not be forgotten."""
        if not self.shape.partition:
            return np.empty(0)
        return np.concatenate(self.grouping.columns(np.unique(self.partitions_asked())))

    def partitions_asked(self) -> Floats:
        """The partitions that subscriptions ask for: those here, and those elsewhere as far as anybody knows."""
        here = self.audience.partitions()
        if self.asked_elsewhere is None:
            return here
        candidates = self.grouping.known()
        types = [self.tables[ref.side].columns[ref.column].type for ref in self.shape.partition]
        if types == [ColumnType.TEXT]:
            candidates = self.interner.codes()
        return np.concatenate((here, candidates[self.asked_elsewhere(candidates)]))

    def release(self) -> None:  # noqa: B027  (most channels have nothing to hand back)
        """Let go of what is shared with other channels."""

    @property
    def wants_sweep(self) -> bool:
        """Whether so many groups came that looking for dead ones pays."""
        return self.grouping.wants_sweep

    def sweep(self) -> bool:
        """Forget some of the groups that no row and no subscription is in any more. Returns whether their numbers are
        given back from now on. Of most channels only subscriptions hold some: rows pass through."""
        begins = not self.grouping.sweeping
        if begins:
            self.grouping.begin_sweep()
            self.grouping.mark(self.partitions_asked())
        self.grouping.sweep_some()
        return begins

    def count(self, messages: int, tally: Ints) -> None:
        """Add a batch to the statistics: its messages, and its updates by class (each update has one)."""
        self._counted += messages
        self._tally += tally

    def statistics(self) -> ChannelStatistics:
        """A snapshot."""
        ignorable, easy, difficult = self._tally.tolist()
        return ChannelStatistics(
            updates=ignorable + easy + difficult,
            ignorable=ignorable,
            easy=easy,
            difficult=difficult,
            messages=self._counted,
            subscriptions=len(self.audience),
            told=self._told,
            waiting=len(self.outbox),
            memory_bytes=self.memory_bytes(),
        )

    def facts(self) -> dict[str, object]:
        """What `hullcast explain` shows of this kind of channel, besides what it shows of all."""
        return {}

    def memory_bytes(self) -> int:
        """About what is held for this channel alone: its audience, and its tree where nobody shares it."""
        return self.audience.index.memory_bytes() + self.outbox.memory_bytes()

    def placed(self, ref: Ref, column: Floats) -> Floats:
        """Where rows lie that have these values in a range or partition column: NaN is nowhere, and NULL too, unless it
        has a place (S7)."""
        return np.where(np.isnan(column), -np.inf, column) if ref in self.shape.nulls else column

    def points(self, predicates: Predicates) -> Floats:
        """Predicates as points of the matching index."""
        low, high = predicates.low, predicates.high
        if self.spec.dimensions > low.shape[1]:
            low, high = np.full((len(low), 1), -np.inf), np.full((len(low), 1), np.inf)
        if not self.shape.partition:
            return box_points(low, high)
        return box_points(low, high, self.grouping.numbers(self.partition_codes(predicates), len(low)))

    def points_elsewhere(self, predicates: Predicates) -> Floats:
        """Predicates as points for indexes that know of no `never`: those lie where no message reaches."""
        points = self.points(predicates)
        if predicates.never is not None:
            points[predicates.never, 0::2] = np.inf
            points[predicates.never, 1::2] = -np.inf
        return points

    def partition_codes(self, predicates: Predicates) -> list[Floats]:
        """The codes that predicates ask for in the partition columns. Texts that no row holds get one: somebody waits
        for them."""
        texts = [bool(values) and isinstance(values[0], str) for values in predicates.partition]
        return [
            self.interner.encode(cast("list[str]", values)) if text else np.array(values, np.float64)
            for text, values in zip(texts, predicates.partition, strict=True)
        ]

    def column_name(self, ref: Ref) -> str:
        """A column's name, with its table's where there are two."""
        return column_name(self.tables, ref)

    def decoded(self, ref: Ref, codes: Floats, texts: Texts) -> ShownColumn:
        """The values of a column, for messages as people read them."""
        kind = self.tables[ref.side].columns[ref.column].type
        return np.array(decode_column(kind, codes, texts), dtype=object)

    def partition_columns(self, partition: Sequence[Floats], texts: Texts) -> dict[str, ShownColumn]:
        """The values of the partition columns, for messages as people read them."""
        found = zip(self.shape.partition, partition, strict=True)
        return {f"by.{self.column_name(ref)}": self.decoded(ref, codes, texts) for ref, codes in found}


class Attended(NamedTuple):
    """Subscriptions elsewhere, understood: channel, predicates, the names of their answer's columns, and the
    tables that their text reads."""

    channel: Channel
    predicates: Predicates
    columns: tuple[str, ...]
    reads: tuple[str, ...] = ()


class SingleChannel(Channel):
    """A channel whose answers are single values, kept up to date by every message."""

    answers: SingleAnswers

    def admit(self, predicates: Predicates) -> Ints:
        first = self.first(predicates)
        ids = super().admit(predicates)
        self.answers.start(ids, first)
        return ids

    def memory_bytes(self) -> int:
        return super().memory_bytes() + self.answers.state.nbytes


class CollectionChannel(Channel):
    """A channel whose answers are sets or rows, by key; its events carry the key and what is shown of it."""

    answers: CollectionAnswers

    @abstractmethod
    def selected(self, predicates: Predicates) -> Callable[[], Columns]:
        """The codes of what predicates select from the rows as they are now, in two steps as in `capture`; column "of"
        says which predicate selects each."""

    @property
    @abstractmethod
    def types(self) -> Mapping[str, ColumnType]:
        """The columns of `selected` and of messages that travel as values, and their types."""

    def capture(self, predicates: Predicates) -> Callable[[], Columns]:
        texts, selected, types = self.interner.texts, self.selected(predicates), self.types
        return lambda: on_the_way(selected(), types, texts)

    def contents(self, predicate: Predicates) -> dict[Any, Any]:
        """What one predicate selects now: key to what is shown."""
        columns = self.selected(predicate)()
        return dict(self.answers.entries(columns, np.arange(len(columns["of"]))))


def column_name(tables: Sequence[Table], ref: Ref) -> str:
    """A column's name, with its table's where there are two."""
    name = tables[ref.side].columns[ref.column].name
    return f"{side_names(tables)[ref.side]}.{name}" if len(tables) > 1 else name


def side_names(tables: Sequence[Table]) -> list[str]:
    """The names of the tables read; one that is joined with itself is called `STOCK` and `STOCK 2`."""
    names = [table.name for table in tables]
    return [names[0], f"{names[0]} 2"] if len(names) == 2 and names[0] == names[1] else names


def differs(one: Floats, other: Floats) -> Booleans:
    """Where two columns of codes differ; NULL equals NULL here, as in a row that did not change."""
    different: Booleans = (one != other) & ~(np.isnan(one) & np.isnan(other))
    return different
