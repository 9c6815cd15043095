"""Tables at a sequence number, and ranges of their change history, as Spark reads them.

A range of the history gives the same rows whenever it is read. So an offset of a stream is a sequence number, and
Spark's checkpoint is all that is needed to read each change once.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from hullcast.broker.tables.schema import fold
from hullcast.clients.sdk.blocking import BlockingClient
from hullcast.clients.spark.options import EARLIEST, LATEST
from hullcast.clients.spark.schema import arrow_schema
from hullcast.network.wire.errors import BadSetting, HistoryGone, HullcastError, UsageError
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from hullcast.clients.sdk.history import ChangePart, History, TablePart
    from hullcast.clients.spark.options import ServerAccess

log = logger(__name__)

#: Rows of a partition, and the most partitions, unless the user says how many. One process of the server reads for all.
PARTITION_ROWS, MOST_PARTITIONS = 250_000, 16


class TableSlice(InputPartition):
    """A part of the rows of a table (created then) as of one update."""

    def __init__(self, created: int, seq: int, part: int, parts: int) -> None:
        self.created, self.seq, self.part, self.parts = created, seq, part, parts


class ChangeRange(InputPartition):
    """The changes of a table (created then) behind `after`, up to `through`."""

    def __init__(self, created: int, after: int, through: int) -> None:
        self.created, self.after, self.through = created, after, through


class TableReader(DataSourceReader):
    """`read` with a `table`."""

    def __init__(
        self,
        access: ServerAccess,
        table: str,
        schema: StructType,
        seq: int | None,
        parts: int | None,
        created: int | None,
    ) -> None:
        self._access, self._table, self._schema, self._seq, self._parts = access, table, schema, seq, parts
        self._created = created

    def partitions(self) -> list[InputPartition]:
        """Parts of the rows, all as of the same update."""
        with self._access.blocking() as db:
            span = db.history(self._table)
            check_same(self._table, self._created, span)
            seq = span.last if self._seq is None else self._seq
            rows = [facts["rows"] for name, facts in db.tables().items() if fold(name) == fold(self._table)]
        parts = self._parts or partitions_for(sum(rows))
        return [TableSlice(span.created, seq, part, parts) for part in range(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part, in a worker."""
        assert isinstance(partition, TableSlice)
        with self._access.blocking() as db:
            check_same(self._table, partition.created, db.history(self._table))  # Spark plans once, and may read often
            portions = db.table_at(self._table, partition.seq, part=partition.part, parts=partition.parts)
            yield from as_batches(portions, self._schema)


class ChangesReader(DataSourceReader):
    """`read` with a `table` and `changes`."""

    def __init__(
        self,
        access: ServerAccess,
        table: str,
        schema: StructType,
        span: tuple[int | None, int | None],
        parts: int | None,
        created: int | None,
    ) -> None:
        self._access, self._table, self._schema, self._span, self._parts = access, table, schema, span, parts
        self._created = created

    def partitions(self) -> list[InputPartition]:
        """Ranges of the history."""
        after, through = self._span
        with self._access.blocking() as db:
            span = db.history(self._table)
        check_same(self._table, self._created, span)
        after = span.first - 1 if after is None else after or span.created
        through = span.last if through is None else through
        check_kept(self._table, after, span)
        for name, value in (("after", after), ("through", through)):
            if value > span.last:
                raise BadSetting(f"option {name}", value, f"the last update on the server's disk is {span.last}")
        if self._span[0] and through < after:
            raise BadSetting("option through", through, f"must not be less than after, which is {after}")
        return ranges(span.created, after, through, self._parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one range, in a worker."""
        return read_range(self._access, self._table, self._schema, partition)


class ChangesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`readStream` with a `table`. An offset is {"seq": all changes up to here are read, "created": of which table}."""

    def __init__(
        self,
        access: ServerAccess,
        table: str,
        schema: StructType,
        starting: int | str,
        most_rows: int | None,
        fail_on_data_loss: bool,
        parts: int | None,
    ) -> None:
        self._access, self._table, self._schema = access, table, schema
        self._starting, self._most_rows, self._parts = starting, most_rows, parts
        self._fail_on_data_loss = fail_on_data_loss
        self._db: BlockingClient | None = None
        self._target: int | None = None  # trigger(availableNow=True): not beyond this

    def initialOffset(self) -> dict[str, int]:
        """Where a new query begins."""
        span = self._history()
        if self._starting == EARLIEST:
            seq = span.first - 1
        elif self._starting == LATEST:
            seq = span.last
        else:
            assert isinstance(self._starting, int)
            seq = self._starting or span.created  # 0: from the beginning
            if seq > span.last:
                raise BadSetting("option startingSeq", seq, f"the last update on the server's disk is {span.last}")
        return {"seq": seq, "created": span.created}

    def getDefaultReadLimit(self) -> ReadLimit:
        """As many rows as the user wants at once."""
        return ReadAllAvailable() if self._most_rows is None else ReadMaxRows(self._most_rows)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """How far the next micro-batch goes. Updates of other tables count, too: it has at most so many rows."""
        span = self._history()
        if span.created != start["created"] and self._fail_on_data_loss:
            raise UsageError(
                f"{self._table} was dropped and created again, so its changes after {start['seq']} are gone; begin "
                'again with a new checkpoint, or go on with the new table with .option("failOnDataLoss", "false")'
            )
        if span.last < start["seq"] and self._fail_on_data_loss:
            raise UsageError(
                f"the checkpoint has the changes of {self._table} up to {start['seq']}, but the server's last update "
                f"is {span.last}: it is another server, or an older copy of it was restored. Begin again with a new "
                'checkpoint, or wait until it is beyond that with .option("failOnDataLoss", "false")'
            )
        last = span.last if self._target is None else min(span.last, self._target)
        if isinstance(limit, ReadMaxRows):
            last = min(last, max(start["seq"], span.first - 1) + limit.max_rows)
        return {"seq": max(last, start["seq"]), "created": span.created}

    def reportLatestOffset(self) -> dict[str, int]:
        """For the progress that Spark shows."""
        span = self._history()
        return {"seq": span.last, "created": span.created}

    def prepareForTriggerAvailableNow(self) -> None:
        """Go as far as the history goes now."""
        self._target = self._history().last

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Ranges of the history between two offsets."""
        after, span = start["seq"], self._history()
        try:
            check_kept(self._table, after, span)
        except HistoryGone as error:
            if self._fail_on_data_loss:
                raise UsageError(
                    f"{error}. Begin again with a new checkpoint, or leave out what is gone with "
                    '.option("failOnDataLoss", "false")'
                ) from None
            log.warning("changes are gone", extra={"table": self._table, "after": after, "first": error.first})
            after = error.first - 1
        return ranges(span.created, min(after, end["seq"]), end["seq"], self._parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one range, in a worker."""
        return read_range(self._access, self._table, self._schema, partition)

    def stop(self) -> None:
        """The query has ended."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(HullcastError):
                db.close()

    def _history(self) -> History:
        if self._db is None:
            self._db = self._access.blocking()
        return self._db.history(self._table)

    def __getstate__(self) -> dict[str, Any]:
        """What a worker needs."""
        return self.__dict__ | {"_db": None}


def partitions_for(rows: int) -> int:
    """How many partitions so many rows get."""
    return min(MOST_PARTITIONS, 1 + rows // PARTITION_ROWS)


def ranges(created: int, after: int, through: int, parts: int | None) -> list[InputPartition]:
    """A range of sequence numbers in parts; none if it is empty."""
    parts = min(parts or partitions_for(through - after), max(0, through - after))
    edges = [after + (through - after) * part // parts for part in range(parts + 1)] if parts else []
    return [ChangeRange(created, begin, end) for begin, end in pairwise(edges)]


def check_same(table: str, created: int | None, span: History) -> None:
    """UsageError if the table whose columns were asked for (created then) is not the one that there is now."""
    if created is not None and created != span.created:
        raise UsageError(f"{table} was dropped and created again since it was loaded; load it again")


def check_kept(table: str, after: int, span: History) -> None:
    """HistoryGone unless the changes behind `after` can be read."""
    if after < span.first - 1:
        why = "it is no longer kept; the server's setting history_bytes keeps more"
        if span.first == span.created + 1:
            why = "the table was created later"
        raise HistoryGone(table, after + 1, span.first, why)


def read_range(
    access: ServerAccess, table: str, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """The changes of one range."""
    if not isinstance(partition, ChangeRange):  # Spark's own, where there was nothing to read
        return
    with access.blocking() as db:
        check_same(table, partition.created, db.history(table))
        yield from as_batches(db.changes(table, partition.after, partition.through), schema)


def as_batches(portions: Iterable[TablePart | ChangePart], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Portions as Spark takes them: the columns that it wants, in its order."""
    wanted = arrow_schema(schema.fields)
    for portion in portions:
        if len(portion):
            rows = portion.to_arrow()
            if missing := [name for name in wanted.names if name not in rows.column_names]:
                there = ", ".join(rows.column_names)
                raise UsageError(f"the schema has a column {missing[0]}, which is not there; there are {there}")
            yield from rows.select(wanted.names).cast(wanted).to_batches()
