"""A table's columns as Spark's, and which of Spark's types each column takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from hullcast.broker.tables.schema import fold
from hullcast.network.wire.errors import BadSetting, UnknownColumn, UnknownTable, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hullcast.clients.sdk.client import Client

SEQ_COLUMN, DELETED_COLUMN = "_seq", "_deleted"

#: The types of columns as Spark's.
SPARK_TYPES: dict[str, DataType] = {
    "REAL": DoubleType(),
    "INTEGER": LongType(),
    "TEXT": StringType(),
    "TIMESTAMP": TimestampType(),
}
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
#: What a column takes from Spark.
_TAKES: dict[str, tuple[type[DataType], ...]] = {
    "REAL": (DoubleType, FloatType, DecimalType, *_WHOLE),
    "INTEGER": _WHOLE,
    "TEXT": (StringType, VarcharType, CharType),
    "TIMESTAMP": (TimestampType, TimestampNTZType, DateType),
}


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A table as the server describes it: its name, its key, and its columns' types by name."""

    name: str
    key: str
    types: dict[str, str]

    def fields(self, metadata: dict[str, Any] | None = None) -> list[StructField]:
        """The columns as Spark's."""
        return [StructField(name, SPARK_TYPES[kind], name != self.key, metadata) for name, kind in self.types.items()]

    def changes(self) -> StructType:
        """The columns of its history: which change, whether it removed the row, and the row (or only its key)."""
        before = [StructField(SEQ_COLUMN, LongType(), False), StructField(DELETED_COLUMN, BooleanType(), False)]
        return StructType([*before, *self.fields()])

    def declared(self, name: str) -> str | None:
        """A column's name as the table has it, which may be written otherwise; None if it has no such column."""
        return next((one for one in self.types if fold(one) == fold(name)), None)

    def check_written(self, schema: StructType, deleted: str | None) -> None:
        """UsageError that names the first column which does not fit the table."""
        names = schema.fieldNames()
        if self.key not in map(self.declared, names):
            raise UsageError(f"the rows lack the key column {self.key} of {self.name}; they have {', '.join(names)}")
        folded = [fold(name) for name in names]
        if twice := [name for name in names if folded.count(fold(name)) > 1]:
            raise UsageError(f"the rows have column {twice[0]} twice ({', '.join(twice)}); rename or drop one")
        for field in schema.fields:
            if field.name == deleted:
                if not isinstance(field.dataType, BooleanType):
                    raise UsageError(f"column {deleted} (option deleted) must be BOOLEAN; it is {_said(field)}")
            elif (name := self.declared(field.name)) is None:
                raise UnknownColumn(field.name, self.name, tuple(self.types))
            elif not isinstance(field.dataType, _TAKES[kind := self.types[name]]):
                takes = ", ".join(dict.fromkeys(one.typeName().upper() for one in _TAKES[kind]))
                raise UsageError(
                    f"column {field.name} of {self.name} is {kind}, which takes {takes}; the rows have {_said(field)}"
                )
        if deleted is not None and deleted not in names:
            raise BadSetting("option deleted", deleted, f"the rows have no such column; they have {', '.join(names)}")


async def columns_of(client: Client, table: str) -> TableColumns:
    """The columns of a table, or UnknownTable."""
    tables = await client.tables()
    for name, facts in tables.items():
        if fold(name) == fold(table):
            return TableColumns(name, facts["key"], dict(facts["columns"]))
    raise UnknownTable(table, tuple(tables))


def as_sent(batch: pa.RecordBatch, table: TableColumns, deleted: str | None) -> pa.RecordBatch:
    """Rows as the table takes them: its names, and a DECIMAL, which NumPy has no array of, as the nearest float64."""
    arrays = [
        column.cast(pa.float64(), safe=False) if pa.types.is_decimal(column.type) else column
        for column in batch.columns
    ]
    names = [name if name == deleted else table.declared(name) or name for name in batch.schema.names]
    return pa.record_batch(arrays, names)


def arrow_schema(fields: Iterable[StructField]) -> pa.Schema:
    """Columns as Spark takes them in Arrow."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(StructType(list(fields)), timezone="UTC")


def _said(field: StructField) -> str:
    return field.dataType.simpleString().upper()
