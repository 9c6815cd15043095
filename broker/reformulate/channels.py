"""Which channels are open, which tables they read, and what they share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hullcast.broker.joins.costs import DEFAULTS
from hullcast.broker.reformulate.channel import Opening, side_names
from hullcast.broker.reformulate.keeper import TreeKeeper
from hullcast.broker.sql.query import Ref
from hullcast.network.wire.errors import UnknownChannel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.sql.query import Shape
    from hullcast.broker.tables.interning import Interner
    from hullcast.broker.tables.schema import Table
    from hullcast.broker.tables.store import TableStore

TreeKey = tuple[str, int | None, int | None, tuple[int, ...]]


class Channels:
    """Opens a channel when a shape is first wanted, and closes it when nobody wants it any more.

    MIN and MAX over the same columns share one tree; so do joins on one column of a table, with the same first range.
    """

    def __init__(self, interner: Interner, event_limit: int) -> None:
        self.coefficients = DEFAULTS  # for joins opened from now on
        self.at_once = True  # they leave nothing for `Channel.upkeep`
        self._interner = interner
        self._event_limit = event_limit
        self._open: dict[Shape, Channel] = {}
        self._named: dict[str, Channel] = {}
        self._readers: dict[str, list[tuple[Channel, int]]] = {}
        self._keepers: dict[TreeKey, tuple[TreeKeeper, set[Shape]]] = {}
        self._keys_of: dict[Shape, set[TreeKey]] = {}

    def __iter__(self) -> Iterator[Channel]:
        return iter(self._open.values())

    def reading(self, table: str) -> list[tuple[Channel, int]]:
        """The channels that read a table or a window, and as which side: the left one for both, where it is joined with
        itself."""
        return self._readers.get(table, [])

    def named(self, name: str) -> Channel:
        """The open channel of that name."""
        if name not in self._named:
            raise UnknownChannel(name)
        return self._named[name]

    def find(self, shape: Shape) -> Channel | None:
        """The channel of a shape, if it is open."""
        return self._open.get(shape)

    def open(self, shape: Shape, stores: Sequence[TableStore]) -> Channel:
        """The channel of a shape, opened if it is not; `load` must then bring it up to the present."""
        channel = self._open.get(shape)
        if channel is None:
            channel = self._make(shape, stores)
            self._open[shape] = self._named[channel.name] = channel
            for side, source in enumerate(dict.fromkeys(shape.sources)):  # joined with itself it is read once
                self._readers.setdefault(source, []).append((channel, side))
        return channel

    def load(self, channel: Channel, rows: int) -> bool:
        """Let a channel that was opened take in the next rows of its tables; returns whether it has them all."""
        for keeper, store in channel.loading():
            keeper.load(store, rows)
            break
        return not channel.loading()

    def close_if_unused(self, channel: Channel) -> None:
        """Close a channel that nobody holds, attends or listens to."""
        if channel.holders or channel.attended or len(channel.audience) or self._open.get(channel.shape) is not channel:
            return
        channel.release()
        del self._open[channel.shape], self._named[channel.name]
        for source in channel.shape.sources:
            self._readers[source] = [reader for reader in self._readers[source] if reader[0] is not channel]
        for key in self._keys_of.pop(channel.shape, set()):
            users = self._keepers[key][1]
            users.discard(channel.shape)
            if not users:
                del self._keepers[key]

    def memory_bytes(self) -> int:
        """About what channels hold, shared trees counted once."""
        trees = sum(keeper.tree.memory_bytes() for keeper, _ in self._keepers.values())
        return trees + sum(channel.memory_bytes() for channel in self)

    def _make(self, shape: Shape, stores: Sequence[TableStore]) -> Channel:
        name = channel_name(shape, [store.table for store in stores])
        share = partial(self._keeper, shape, stores)
        opening = Opening(
            name, shape, tuple(stores), self._interner, self._event_limit, share, self.coefficients, self.at_once
        )
        channel: Channel = shape.kind.load_channel()(opening)
        return channel

    def _keeper(
        self,
        shape: Shape,
        stores: Sequence[TableStore],
        side: int,
        x: int | None,
        y: int | None,
        groups: tuple[int, ...],
    ) -> TreeKeeper:
        """A tree over one of the tables, shared by the channels that ask for the same one."""
        store = stores[side]
        key = (store.table.name, x, y, groups)
        if key not in self._keepers:
            keeper = TreeKeeper(x, y, groups)
            keeper.begin_load(store)
            self._keepers[key] = (keeper, set())
        keeper, users = self._keepers[key]
        users.add(shape)
        self._keys_of.setdefault(shape, set()).add(key)
        return keeper


def channel_name(shape: Shape, tables: Sequence[Table]) -> str:
    """A channel's name: the query with its constants taken out, e.g. `MIN(PER) FROM STOCK OVER RISK BY SECTOR`."""
    if shape.result:
        return shape.result
    called = side_names(tables)

    def name(ref: Ref) -> str:
        column = quoted(tables[ref.side].columns[ref.column].name)
        return f"{quoted(called[ref.side])}.{column}" if len(tables) > 1 else column

    y = name(shape.y) if shape.y else "*"
    what = f"{shape.kind.name}({y})" if shape.kind.takes else f"{shape.kind.name} {y}"
    if shape.projection:
        what = f"SELECT {', '.join(map(name, shape.projection))}"
    windows = ["" if window is None else f" {window.declared}" for window in shape.windows or (None,) * len(tables)]
    text = f"{what} FROM {quoted(shape.tables[0])}{windows[0]}"
    if shape.on is not None:
        left, right = name(Ref(0, shape.on.left)), name(Ref(1, shape.on.right))
        meeting = f"{right} - {left}" if shape.on.band else f"{left} = {right}"
        alias = f" AS {quoted(called[1])}" if called[1] != tables[1].name else ""  # a table of that name is another
        text += f" JOIN {quoted(shape.tables[1])}{windows[1]}{alias} ON {meeting}"
    if shape.ranges:
        ranges = (f"{name(ref)} OR NULL" if ref in shape.nulls else name(ref) for ref in shape.ranges)
        text += f" OVER {', '.join(ranges)}"
    if shape.partition:
        text += f" BY {', '.join(map(name, shape.partition))}"
    return text if shape.memory is None else f"{text} WITH (memory = {shape.memory})"


def quoted(name: str) -> str:
    """A name as SQL writes it: as it is, or in quotes where it is not a plain word. Keeps channel names distinct."""
    return name if name.isidentifier() and name.isascii() else f'"{name}"'
