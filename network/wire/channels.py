"""Messages by channel, as Deliver and the replay of Subscribed carry them: columns, or for MIN and MAX two blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from hullcast.network.wire import columns as column_format
from hullcast.network.wire.columns import Column, Columns
from hullcast.network.wire.errors import BadFrame
from hullcast.network.wire.fields import Codec, array, integer
from hullcast.network.wire.limits import WireLimits

#: The numbers of a MIN or MAX message as they travel: what the network mostly carries, and mostly one at a time. As
#: columns with names and kinds a lone one is a frame of 123 bytes, of which 48 are numbers; as two blocks, of 69.
_NUMBERS = ("il", "ir", "ol", "or", "best", "part")
_PLAIN = frozenset(("seq", *_NUMBERS[:-1]))
_PARTITIONED = frozenset(("seq", *_NUMBERS))
_WHOLE, _REAL = np.dtype(np.int64), np.dtype(np.float64)


def pack_channels(channels: Mapping[int, Columns]) -> list[object]:
    """Columns by channel number, as arrays that begin with it: MessagePack maps of ours have texts for keys."""
    return [
        [channel, *_pack_rectangles(columns)] if _are_rectangles(columns) else [channel, column_format.pack(columns)]
        for channel, columns in channels.items()
    ]


def read_channels(value: object, limits: WireLimits) -> dict[int, Columns]:
    """The opposite, or BadFrame."""
    channels: dict[int, Columns] = {}
    for item in array(value, "channels"):
        match array(item, "a channel with its messages"):
            case [channel, columns]:
                channels[_CHANNEL(channel, limits)] = column_format.unpack(columns, limits)
            case [channel, seqs, numbers]:
                channels[_CHANNEL(channel, limits)] = _unpack_rectangles(seqs, numbers, limits)
            case other:
                raise BadFrame(f"a channel with its messages is an array of 2 or 3, not of {len(other)}")
    if len(channels) < len(cast("list[Any]", value)):
        raise BadFrame("a channel twice")
    return channels


def _are_rectangles(columns: Mapping[str, Column]) -> bool:
    """Whether these columns can travel as two blocks: the names and types of a MIN or MAX, and at least a row."""
    names = columns.keys()
    if (names != _PLAIN and names != _PARTITIONED) or not len(columns["seq"]):
        return False
    arrays = cast("Mapping[str, np.ndarray[Any, Any]]", columns)
    return all(arrays[name].dtype == (_WHOLE if name == "seq" else _REAL) for name in names)


def _pack_rectangles(columns: Mapping[str, Column]) -> list[object]:
    """The two blocks as MessagePack takes them."""
    arrays = cast("Mapping[str, np.ndarray[Any, Any]]", columns)
    numbers = np.concatenate([arrays[name] for name in _NUMBERS[: len(columns) - 1]])
    return [column_format.raw(arrays["seq"], np.dtype("<i8")), column_format.raw(numbers, np.dtype("<f8"))]


def _unpack_rectangles(seqs: object, numbers: object, limits: WireLimits) -> Columns:
    """The columns of two blocks, or BadFrame: each writable and contiguous."""
    if type(seqs) is not bytes or type(numbers) is not bytes:
        raise BadFrame("rectangles are two blocks of bytes")
    seq = column_format.array_of("i8", seqs, limits)
    if not len(seq):
        raise BadFrame("blocks of no rectangle")
    width = len(_NUMBERS) if len(numbers) == len(_NUMBERS) * len(seqs) else len(_NUMBERS) - 1
    if len(numbers) != width * len(seqs):
        raise BadFrame(f"{len(seq)} rectangles of 5 or 6 numbers are not {len(numbers)} bytes")
    table = np.frombuffer(numbers, "<f8").astype(np.float64).reshape(width, len(seq))
    columns: Columns = {"seq": seq}
    columns.update(zip(_NUMBERS, table, strict=False))  # `part` is left out where there is none
    return columns


_CHANNEL = integer("a channel").reader("")
CHANNELS = Codec("[[channel, columns], ...]", lambda name: read_channels, pack_channels)
