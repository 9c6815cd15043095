"""The join of a stream with a table: a tuple meets the table's rows at its own sequence number.

    tuples            7        9           12        the changes of the table are an input like the stream: before
    changes       5      8        10  11             tuple 9 is joined, 5 and 8 are applied, and 10 is not

The log has both, in order, so changes never have to be waited for: whoever brings tuples has brought all changes
before them (`Runner.change`). What waits here is bounded by what waits in the queue: changes up to where the stream is
are applied as soon as no tuple before them is left.

The operator has its own copy of the table (the key, and the columns that the query names), since no other is as far as
this one. A row that lies in no box of the query's ranges over the table is kept, but not found.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.streams.batch import TupleBatch
from hullcast.broker.streams.operators.hashing import hash_of
from hullcast.broker.streams.operators.operator import MOST_RESULTS, RESULTS_AT_ONCE, KeptMemory, Ran, too_many
from hullcast.network.compiled import kernel, part
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hullcast.broker.streams.operators.selection import SelectionBoxes
    from hullcast.broker.streams.queue import TupleQueue
    from hullcast.network.wire.arrays import Booleans, Floats, Ints

_SMALLEST = 256
#: In the codes of a change: this column keeps its value (broker/tables/ingest.py).
_KEEP = float("-inf")


class TableChanges(NamedTuple):
    """Changes of a table that follow each other: whole rows as codes, of shape (columns, changes); of a row that is
    deleted only the key counts."""

    seqs: Ints
    cells: Floats
    deleted: Booleans

    @property
    def size_bytes(self) -> int:
        """What they hold in memory."""
        return int(self.seqs.nbytes + self.cells.nbytes + self.deleted.nbytes)

    def columns(self, which: Ints) -> TableChanges:
        """With these columns only."""
        return self._replace(cells=self.cells[which])


class TableJoinColumns(NamedTuple):
    """Which columns must be equal, pair by pair, and which ones results have, those of the tuple first; `key` is the
    table's primary key. Those of the table are by their place in what the operator keeps of it."""

    key: int
    key_column: Ints  # the same, as kernels take columns
    tuple_keys: Ints
    row_keys: Ints
    tuple_out: Ints
    row_out: Ints


class _Rows(NamedTuple):
    """A table in slots. By key: `key_heads` and `key_next`, chains of slots. By the columns that are joined: `heads`,
    `next` and `before`, the same in both directions; `before` of a row that is in no chain is -2."""

    cells: Floats
    key_heads: Ints
    key_next: Ints
    heads: Ints
    next: Ints
    before: Ints
    free: Ints  # slots without a row, the last one is used first
    counts: Ints  # [free slots]


class TableJoin:
    """The operator, and its copy of the table.

    Invariants (`check` tests them):
      T1  A slot is free, or its row is in the chain of its key. If the row lies in the boxes and no column that is
          joined is NULL, it is in the chain of these columns, too.
      T2  No two rows have the same key.
    """

    name = "table join"

    def __init__(self, columns: TableJoinColumns, width: int, boxes: SelectionBoxes | None = None) -> None:
        """`width`: how many columns of the table are kept."""
        self._columns, self._boxes = columns, boxes
        wanted = (np.empty(0, np.int64), np.empty((1, 0)), np.empty((1, 0)))
        self._ranges = wanted if boxes is None else (boxes.columns, boxes.lows, boxes.highs)
        self._rows = _new_rows(width, _SMALLEST)
        self._memory = KeptMemory()
        self._changes: deque[TableChanges] = deque()
        self._later = np.empty(1024, np.int64)
        self._out = np.empty((len(columns.tuple_out) + len(columns.row_out), 1024))
        self.changes_bytes = 0  # of what waits
        self.pending = 0  # changes that wait

    def __len__(self) -> int:
        """How many rows the table has, as far as it is known here."""
        return len(self._rows.free) - int(self._rows.counts[0])

    def change(self, changes: TableChanges) -> None:
        """More changes, behind all others; or the rows that the table has at the beginning."""
        if len(changes.seqs):
            self._changes.append(changes)
            self.changes_bytes += changes.size_bytes
            self.pending += len(changes.seqs)

    def can_run(self, inputs: Sequence[TupleQueue]) -> bool:
        return inputs[0].tuples > 0 or bool(self._changes and self._changes[0].seqs[0] <= inputs[0].reached.seq)

    def run(self, inputs: Sequence[TupleQueue], most: int) -> Ran:
        queue = inputs[0]
        batch = queue.take(most) if queue.tuples else _none(queue)
        through = queue.frontier().seq if not queue.tuples else int(batch.seqs[-1])
        changes = self._due(through)
        self._make_room(len(changes.seqs))
        laters, outs, at, applied, found = [], [], 0, 0, 0
        while True:
            at, applied, made = join_rows(
                (batch.seqs, np.ascontiguousarray(batch.cells)),
                (changes.seqs, changes.cells, changes.deleted),
                (at, applied),
                self._columns,
                self._ranges,
                self._rows,
                self._later,
                self._out,
            )
            laters.append(self._later[:made].copy())
            outs.append(self._out[:, :made].copy())
            found += made
            if at == len(batch.seqs):
                break
            if found >= RESULTS_AT_ONCE and batch.seqs[at] != batch.seqs[at - 1]:
                batch, rest = batch.split(at)
                queue.put_back(rest)
                self._put_back(changes, applied)
                break
            if not made:
                if len(self._later) >= MOST_RESULTS:
                    raise too_many(len(self._later) + 1)
                self._later = np.empty(4 * len(self._later), np.int64)
                self._out = np.empty((len(self._out), len(self._later)))
        later = laters[0] if len(laters) == 1 else np.concatenate(laters)
        cells = outs[0] if len(outs) == 1 else np.concatenate(outs, axis=1)
        made_batch = TupleBatch(batch.seqs[later], batch.times[later], cells, batch.reached, batch.arrived)
        return Ran(len(batch.seqs), batch.size_bytes, made_batch)

    def _due(self, through: int) -> TableChanges:
        """The changes up to a sequence number; they do not wait any more."""
        due = []
        while self._changes and self._changes[0].seqs[0] <= through:
            changes = self._changes.popleft()
            self.changes_bytes -= changes.size_bytes
            count = int(np.searchsorted(changes.seqs, through, side="right"))
            if count < len(changes.seqs):
                rest = TableChanges(changes.seqs[count:], changes.cells[:, count:], changes.deleted[count:])
                self._changes.appendleft(rest)
                self.changes_bytes += rest.size_bytes
                changes = TableChanges(changes.seqs[:count], changes.cells[:, :count], changes.deleted[:count])
            due.append(changes)
        self.pending -= sum(len(changes.seqs) for changes in due)
        width = len(self._rows.cells)
        if not due:
            return TableChanges(np.empty(0, np.int64), np.empty((width, 0)), np.empty(0, np.bool_))
        return TableChanges(
            np.concatenate([changes.seqs for changes in due]),
            np.concatenate([changes.cells for changes in due], axis=1),
            np.concatenate([changes.deleted for changes in due]),
        )

    def _put_back(self, changes: TableChanges, applied: int) -> None:
        """Changes that were due, and whose tuples must wait, wait with them."""
        if applied < len(changes.seqs):
            rest = TableChanges(changes.seqs[applied:], changes.cells[:, applied:], changes.deleted[applied:])
            self._changes.appendleft(rest)
            self.changes_bytes += rest.size_bytes
            self.pending += len(rest.seqs)

    def _make_room(self, rows: int) -> None:
        if rows > self._rows.counts[0]:
            size = self.bytes_for(len(self) + rows)
            self._memory.grow(self.size_bytes, size - self.size_bytes)
            larger = _new_rows(len(self._rows.cells), _slots(len(self) + rows))
            copy_rows(self._rows, larger, self._columns, self._ranges)
            self._rows = larger

    def held(self) -> Iterable[Floats]:
        used = np.ones(len(self._rows.free), np.bool_)
        used[self._rows.free[: self._rows.counts[0]]] = False
        yield self._rows.cells[:, used]
        yield self._ranges[1]
        for changes in self._changes:
            yield changes.cells

    @property
    def size_bytes(self) -> int:
        """What the table holds in memory."""
        return sum(array.nbytes for array in self._rows)

    def bytes_for(self, rows: int) -> int:
        """The same if it had so many rows."""
        return 8 * (_slots(rows) * (len(self._rows.cells) + 6) + 1)

    def keep_in(self, memory: KeptMemory) -> None:
        self._memory = memory

    def check(self) -> None:
        """Raise InvariantBroken unless T1 and T2 hold."""
        rows = self._rows
        free = set(rows.free[: rows.counts[0]].tolist())
        by_key = [slot for head in rows.key_heads.tolist() for slot in _chain(head, rows.key_next)]
        if sorted([*by_key, *free]) != list(range(len(rows.free))):
            raise InvariantBroken("T1: a slot that is neither free nor found by its key, or both, or twice")
        keys = rows.cells[self._columns.key, by_key]
        if len(set(keys.tolist())) != len(by_key):
            raise InvariantBroken("T2: two rows of one key")
        found = {slot for head in rows.heads.tolist() for slot in _chain(head, rows.next)}
        cells = rows.cells[:, by_key]
        wanted: Booleans = np.logical_not(np.isnan(cells[self._columns.row_keys]).any(axis=0))
        if self._boxes is not None:
            wanted &= self._boxes.holds(cells)
        if found != {slot for slot, want in zip(by_key, wanted.tolist(), strict=True) if want}:
            raise InvariantBroken("T1: other rows are found than lie in the boxes")


def _none(queue: TupleQueue) -> TupleBatch:
    return TupleBatch(np.empty(0, np.int64), np.empty(0), np.empty((0, 0)), queue.reached, queue.arrived)


def _chain(head: int, following: Ints) -> Iterable[int]:
    while head >= 0:
        yield head
        head = int(following[head])


def _slots(rows: int) -> int:
    return max(_SMALLEST, 1 << (rows - 1).bit_length())


def _new_rows(width: int, size: int) -> _Rows:
    key_heads, key_next, heads, following = (np.full(size, -1, np.int64) for _ in range(4))
    free = np.arange(size)[::-1].copy()
    before = np.full(size, -2, np.int64)
    return _Rows(np.empty((width, size)), key_heads, key_next, heads, following, before, free, np.array([size]))


@part
def _link(
    rows: _Rows, slot: int, columns: TableJoinColumns, ranges: tuple[Ints, Floats, Floats], room: tuple[Floats, Ints]
) -> None:
    """Let a row be found, if it lies in a box."""
    which, lows, highs = ranges
    wanted = False
    for b in range(lows.shape[0]):
        inside = True
        for k in range(len(which)):
            code = rows.cells[which[k], slot]
            inside &= lows[b, k] <= code <= highs[b, k]
        wanted |= inside
    hashed = hash_of(rows.cells, slot, columns.row_keys, room[0], room[1])
    if not wanted or hashed < 0:
        rows.before[slot] = -2
        return
    bucket = hashed & (len(rows.heads) - 1)
    head = rows.heads[bucket]
    rows.next[slot] = head
    rows.before[slot] = -1
    if head >= 0:
        rows.before[head] = slot
    rows.heads[bucket] = slot


@part
def _unlink(rows: _Rows, slot: int, columns: TableJoinColumns, room: tuple[Floats, Ints]) -> None:
    before = rows.before[slot]
    if before == -2:
        return
    following = rows.next[slot]
    if before >= 0:
        rows.next[before] = following
    else:
        hashed = hash_of(rows.cells, slot, columns.row_keys, room[0], room[1])
        rows.heads[hashed & (len(rows.heads) - 1)] = following
    if following >= 0:
        rows.before[following] = before
    rows.before[slot] = -2


@part
def _apply(
    rows: _Rows,
    columns: TableJoinColumns,
    ranges: tuple[Ints, Floats, Floats],
    cells: Floats,
    at: int,
    deleted: bool,
    room: tuple[Floats, Ints],
) -> None:
    """One change of the table."""
    key = cells[columns.key, at]
    bucket = hash_of(cells, at, columns.key_column, room[0], room[1]) & (len(rows.key_heads) - 1)
    before, slot = -1, rows.key_heads[bucket]
    while slot >= 0 and rows.cells[columns.key, slot] != key:
        before, slot = slot, rows.key_next[slot]
    if deleted:
        if slot >= 0:
            _unlink(rows, slot, columns, room)
            if before >= 0:
                rows.key_next[before] = rows.key_next[slot]
            else:
                rows.key_heads[bucket] = rows.key_next[slot]
            rows.free[rows.counts[0]] = slot
            rows.counts[0] += 1
        return
    new = slot < 0
    if new:
        rows.counts[0] -= 1
        slot = rows.free[rows.counts[0]]
        rows.key_next[slot] = rows.key_heads[bucket]
        rows.key_heads[bucket] = slot
        rows.before[slot] = -2
    else:
        _unlink(rows, slot, columns, room)
    for c in range(cells.shape[0]):
        code = cells[c, at]
        if code != _KEEP:
            rows.cells[c, slot] = code
        elif new:
            rows.cells[c, slot] = np.nan
    _link(rows, slot, columns, ranges, room)


@kernel
def copy_rows(rows: _Rows, larger: _Rows, columns: TableJoinColumns, ranges: tuple[Ints, Floats, Floats]) -> None:
    """Put all rows of a table into another one."""
    code = np.empty(1)
    room = (code, code.view(np.int64))
    for head in rows.key_heads:
        slot = head
        while slot >= 0:
            _apply(larger, columns, ranges, rows.cells, slot, False, room)
            slot = rows.key_next[slot]


@kernel
def join_rows(
    tuples: tuple[Ints, Floats],
    changes: tuple[Ints, Floats, Booleans],
    start: tuple[int, int],
    columns: TableJoinColumns,
    ranges: tuple[Ints, Floats, Floats],
    rows: _Rows,
    later: Ints,
    out: Floats,
) -> tuple[int, int, int]:
    """Join tuples from the first of `start` on, each after the changes before it, which are applied from the second of
    `start` on. Stops at a tuple whose results do not fit into `out`, or after all changes. Returns the first tuple that
    was not joined, the first change that was not applied, and the number of results."""
    seqs, cells = tuples
    change_seqs, change_cells, deleted = changes
    at, applied = start
    code = np.empty(1)
    room = (code, code.view(np.int64))
    made, width = 0, len(columns.tuple_out)
    while at < len(seqs):
        while applied < len(change_seqs) and change_seqs[applied] < seqs[at]:
            _apply(rows, columns, ranges, change_cells, applied, deleted[applied], room)
            applied += 1
        begin = made
        hashed = hash_of(cells, at, columns.tuple_keys, room[0], room[1])
        slot = rows.heads[hashed & (len(rows.heads) - 1)] if hashed >= 0 else -1
        while slot >= 0:
            same = True
            for k in range(len(columns.tuple_keys)):
                same &= cells[columns.tuple_keys[k], at] == rows.cells[columns.row_keys[k], slot]
            if same:
                if made == len(later):
                    return at, applied, begin
                later[made] = at
                for c in range(width):
                    out[c, made] = cells[columns.tuple_out[c], at]
                for c in range(len(columns.row_out)):
                    out[width + c, made] = rows.cells[columns.row_out[c], slot]
                made += 1
            slot = rows.next[slot]
        at += 1
    while applied < len(change_seqs):
        _apply(rows, columns, ranges, change_cells, applied, deleted[applied], room)
        applied += 1
    return at, applied, made
