"""Kinds of fields that only bodies have: columns, parameters, arguments of errors, and numbers with a name."""

from __future__ import annotations

from itertools import chain
from typing import Annotated, Any, TypeAlias, cast

import numpy as np

from hullcast.network.wire import columns as column_format
from hullcast.network.wire import fields
from hullcast.network.wire.arrays import Booleans, Ints
from hullcast.network.wire.columns import Columns
from hullcast.network.wire.errors import BadFrame
from hullcast.network.wire.fields import Codec, Pack, Read, array, identity, integer
from hullcast.network.wire.limits import WireLimits
from hullcast.network.wire.packing import Scalar
from hullcast.network.wire.value_columns import (
    Masks,
    ValueColumns,
    Values,
    are_plain,
    check_scalars,
    is_values,
    pack_value_columns,
    pack_values,
    unpack_masks,
    unpack_value_columns,
    unpack_values,
)


def _codec(said: str, read: Read, pack: Pack | None = None) -> Codec:
    return Codec(said, lambda name: read, pack)


Publisher: TypeAlias = Annotated[bytes, identity("a publisher")]
Number: TypeAlias = Annotated[int, integer("a number")]
Epoch: TypeAlias = Annotated[bytes, identity("an epoch")]
Ticket: TypeAlias = Annotated[bytes, identity("a ticket")]
Table: TypeAlias = Annotated[str, fields.text("a table")]
GroupNumber: TypeAlias = Annotated[int, integer("a group")]

# -- columns -----------------------------------------------------------------------------------------------

_VALUES = _codec("values", unpack_values, pack_values)
ValueColumn: TypeAlias = Annotated[Values, _VALUES]
NamedValues: TypeAlias = Annotated[dict[str, Values], fields.named(_VALUES)]
Published: TypeAlias = Annotated[ValueColumns, _codec("map of values", unpack_value_columns, pack_value_columns)]
Absent: TypeAlias = Annotated[Masks, _codec("map of `b1` columns", unpack_masks, column_format.pack)]
Snapshot: TypeAlias = Annotated[Columns, _codec("columns", column_format.unpack, column_format.pack)]


def _portion(value: Any, limits: WireLimits) -> tuple[Values, ...]:
    if len(array(value, "columns")) > limits.columns:
        raise BadFrame(f"at most {limits.columns} columns")
    columns = tuple([unpack_values(column, limits) for column in value])
    if len(set(map(len, columns))) > 1:
        raise BadFrame("columns of an answer have one length")
    return columns


def _seqs(value: Any, limits: WireLimits) -> Ints:
    found = column_format.unpack_column(value, limits)
    if not isinstance(found, np.ndarray) or found.dtype != np.int64:
        raise BadFrame("sequence numbers are whole numbers")
    return cast("Ints", found)


def _marks(value: Any, limits: WireLimits) -> Booleans:
    found = column_format.unpack_column(value, limits)
    if not isinstance(found, np.ndarray) or found.dtype != np.bool_:
        raise BadFrame("deleted rows are marked by truth values")
    return cast("Booleans", found)


Portion: TypeAlias = Annotated[
    tuple[Values, ...], _codec("[values, ...]", _portion, lambda columns: list(map(pack_values, columns)))
]
Seqs: TypeAlias = Annotated[Ints, _codec("`i8` column", _seqs, column_format.pack_column)]
Marks: TypeAlias = Annotated[Booleans, _codec("`b1` column", _marks, column_format.pack_column)]

# -- scalars -----------------------------------------------------------------------------------------------


def _listed(value: Any, limits: WireLimits) -> list[Any]:
    found = array(value, "parameters")
    if len(found) > limits.columns:
        raise BadFrame(f"{len(found)} parameters; at most {limits.columns}")
    return found


def _parameters(value: Any, limits: WireLimits) -> tuple[Values | Scalar, ...]:
    found = _listed(value, limits)
    if are_plain(found):  # all at once: a stranger may send two million
        return tuple(found)
    return tuple([unpack_values(one, limits) if type(one) is list else check_scalars([one])[0] for one in found])


def _arguments(value: Any, limits: WireLimits) -> tuple[Any, ...]:
    found = array(value, "an error's arguments")
    return tuple([_NAMES(one, limits) if type(one) is list else check_scalars([one])[0] for one in found])


def _receipts(value: Any, limits: WireLimits) -> tuple[tuple[int, int, int], ...]:
    numbers = _NUMBERS(value, limits)
    if len(numbers) % 3:
        raise BadFrame("receipts are three numbers each")
    return tuple(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))


_NAMES = fields.texts().reader("names")
_NUMBERS = fields.items(integer("receipts")).reader("receipts")
_TICKET = fields.optional(identity("a ticket")).reader("")

Scalars: TypeAlias = Annotated[
    tuple[Scalar, ...], _codec("[scalar, ...]", lambda value, limits: check_scalars(_listed(value, limits), limits))
]
Parameters: TypeAlias = Annotated[
    tuple[Values | Scalar, ...],
    _codec(
        "[values or scalar, ...]",
        _parameters,
        lambda given: [pack_values(one) if is_values(one) else one for one in given],
    ),
]
Arguments: TypeAlias = Annotated[tuple[Any, ...], _codec("[scalar or [text, ...], ...]", _arguments)]
ReceiptList: TypeAlias = Annotated[
    tuple[tuple[int, int, int], ...],
    _codec("[id, first, last, id, first, last, ...]", _receipts, lambda changes: list(chain.from_iterable(changes))),
]
#: Empty in memory, nil on the wire.
TicketOrEmpty: TypeAlias = Annotated[
    bytes, _codec("id or nil", lambda value, limits: _TICKET(value, limits) or b"", lambda ticket: ticket or None)
]


def by_channel(of: Codec) -> Codec:
    """A map from numbers of channels, as an array of pairs: MessagePack maps of ours have texts for keys."""
    pairs = fields.items(fields.row("a channel with what it is", channel=integer("a channel"), spec=of))
    pack = pairs.pack
    assert pack is not None

    def reader(name: str) -> Read:
        read_pairs = pairs.reader(name)

        def read(value: Any, limits: WireLimits) -> dict[int, Any]:
            found = dict(read_pairs(value, limits))
            if len(found) < len(value):
                raise BadFrame("a channel twice")
            return found

        return read

    return Codec(pairs.said, reader, lambda value: pack(value.items()))
