"""The log's bytes, walked over by compiled code: which records are about a table, and the cells of rows logged singly.

A record of one row costs Python some dozen microseconds to find, check and decode; here it is less than one.
What these kernels do not know (`read_rows`) is left to the decoder of the wire format, which gives the same codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.broker.log.record import HEADER_BYTES, MAGIC, RecordKind
from hullcast.broker.tables.schema import ColumnType
from hullcast.broker.tables.values import EXACT
from hullcast.network.compiled import kernel, part
from hullcast.network.wire.packing import INSTANT, TICKS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hullcast.network.wire.arrays import Booleans, Floats, Ints

    Bytes = NDArray[np.uint8]

#: How a walk ended: it got to `through`; the bytes end, and more are needed; there is no room for more records; a
#: header or a payload is not what was written.
REACHED, MORE, FULL, BAD_HEADER, BAD_PAYLOAD = range(5)
#: What is noted of each record: where its payload begins, its bytes, its first update, its number of updates.
NOTED = 4

KINDS = {ColumnType.TEXT: 0, ColumnType.REAL: 1, ColumnType.INTEGER: 2, ColumnType.TIMESTAMP: 3}
_TEXT, _REAL, _INTEGER, _TIMESTAMP = range(4)
_BATCH, _LAST_KIND = int(RecordKind.BATCH), max(RecordKind)
_MAGIC = int.from_bytes(MAGIC, "little")
_HEADER_BYTES = HEADER_BYTES
_INSTANT = INSTANT
_EXACT = float(EXACT)
#: How encoded changes begin: an array of 6 or 5, and a text.
_PUBLISH = np.array([*b"\x96\xa7publish"], np.uint8)
_DELETE = np.array([*b"\x95\xa6delete"], np.uint8)
#: How a datetime64 in microseconds begins and ends, as an extension of 11 bytes.
_TICKS, _MICROSECONDS = np.array([0xC7, 11, TICKS, *b"M"], np.uint8), np.array([*b"us"], np.uint8)


def _crc_tables() -> Ints:
    """The tables of CRC-32 by eight bytes at once ("slicing"): what a byte does to the checksum, k bytes later."""
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = np.where(table & 1, 0xEDB88320 ^ (table >> 1), table >> 1)
    tables = [table]
    for _ in range(7):
        tables.append(table[tables[-1] & 0xFF] ^ (tables[-1] >> 8))
    return np.array(tables)


_CRC = _crc_tables()


@part
def _crc32(data: Bytes, start: int, stop: int, seed: int) -> int:
    """zlib.crc32(data[start:stop], seed)."""
    crc = seed ^ 0xFFFFFFFF
    while stop - start >= 8:
        low = crc ^ _uint32(data, start)
        crc = (
            _CRC[7, low & 0xFF]
            ^ _CRC[6, (low >> 8) & 0xFF]
            ^ _CRC[5, (low >> 16) & 0xFF]
            ^ _CRC[4, low >> 24]
            ^ _CRC[3, int(np.int64(data[start + 4]))]
            ^ _CRC[2, int(np.int64(data[start + 5]))]
            ^ _CRC[1, int(np.int64(data[start + 6]))]
            ^ _CRC[0, int(np.int64(data[start + 7]))]
        )
        start += 8
    while start < stop:
        crc = _CRC[0, (crc ^ int(np.int64(data[start]))) & 0xFF] ^ (crc >> 8)
        start += 1
    return crc ^ 0xFFFFFFFF


@part
def _uint32(data: Bytes, at: int) -> int:
    return (
        int(np.int64(data[at]))
        | int(np.int64(data[at + 1])) << 8
        | int(np.int64(data[at + 2])) << 16
        | int(np.int64(data[at + 3])) << 24
    )


@part
def _big_endian(data: Bytes, at: int, width: int) -> int:
    value = 0
    for i in range(width):
        value = (value << 8) | int(np.int64(data[at + i]))
    return value


@part
def _text(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Where a text of MessagePack begins and ends; the end is -1 if there is none."""
    if at >= end:
        return at, -1
    head = int(np.int64(data[at]))
    if 0xA0 <= head <= 0xBF:
        start, stop = at + 1, at + 1 + (head & 0x1F)
    elif 0xD9 <= head <= 0xDB:
        width = 1 << (head - 0xD9)
        if at + 1 + width > end:
            return at, -1
        start = at + 1 + width
        stop = start + _big_endian(data, at + 1, width)
    else:
        return at, -1
    return (start, stop) if stop <= end else (at, -1)


@part
def _same(data: Bytes, start: int, stop: int, name: Bytes, first: int, end: int) -> bool:
    """Whether data[start:stop] is name[first:end], which is folded, but for the case of A to Z."""
    if stop - start != end - first:
        return False
    for i in range(stop - start):
        byte = data[start + i]
        if 65 <= byte <= 90:
            byte += 32
        if byte != name[first + i]:
            return False
    return True


@part
def _changed(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Which kind of change an encoded body is (1: publish, 2: delete, 0: neither), and where its second part begins."""
    if end - at >= len(_PUBLISH) and _begins(data, at, _PUBLISH):
        return 1, at + len(_PUBLISH)
    if end - at >= len(_DELETE) and _begins(data, at, _DELETE):
        return 2, at + len(_DELETE)
    return 0, at


@part
def _begins(data: Bytes, at: int, what: Bytes) -> bool:
    same = True
    for i in range(len(what)):
        same &= data[at + i] == what[i]
    return same


@kernel
def walk_records(
    data: Bytes, size: int, seed: int, moment: tuple[int, int, int, int], name: Bytes, noted: Ints
) -> tuple[int, int, int, int, int, int]:
    """Walk over the records of data[:size] from `at` on, `moment` being (at, seq, after, through): `seq` is the last
    update before. Notes the records about the table `name` (folded) with updates behind `after` up to `through`.

    Returns how it ended, how many records were noted, where it stands and the last update before that, and the same of
    the last place that is not behind `through`.
    """
    at, seq, after, through = moment
    count, safe, safe_seq = 0, at, seq
    while seq < through:
        if at + _HEADER_BYTES > size:
            return MORE, count, at, seq, safe, safe_seq
        if _uint32(data, at) != _MAGIC or _crc32(data, at + 8, at + _HEADER_BYTES, seed) != _uint32(data, at + 4):
            return BAD_HEADER, count, at, seq, safe, safe_seq
        kind = _uint32(data, at + 16)
        first = _uint32(data, at + 36) | _uint32(data, at + 40) << 32
        if kind > _LAST_KIND or first != seq + 1:
            return BAD_HEADER, count, at, seq, safe, safe_seq
        updates, start = _uint32(data, at + 44), at + _HEADER_BYTES
        stop = start + _uint32(data, at + 8)
        last = seq + updates
        if kind == _BATCH and last > after:
            if stop > size:
                return MORE, count, at, seq, safe, safe_seq
            if count == noted.shape[1]:
                return FULL, count, at, seq, safe, safe_seq
            if _crc32(data, start, stop, seed) != _uint32(data, at + 12):
                return BAD_PAYLOAD, count, at, seq, safe, safe_seq
            change, place = _changed(data, start, stop)
            begin, end = _text(data, place, stop)
            if change and _same(data, begin, end, name, 0, len(name)):
                noted[0, count] = start
                noted[1, count] = stop - start
                noted[2, count] = first
                noted[3, count] = updates
                count += 1
        at, seq = stop, last
        if seq <= through:
            safe, safe_seq = at, seq
    return REACHED, count, at, seq, safe, safe_seq


@kernel
def read_rows(
    data: Bytes,
    noted: Ints,
    which: tuple[int, int],
    table: tuple[Bytes, Ints, Ints, int],
    cells: Floats,
    deleted: Booleans,
    texts: Ints,
) -> int:
    """The rows of records that are one row each, from the first of `which` on, until one is not plain, or its second is
    reached; returns how many there are.

    `table` is (names of the columns, folded, one behind the other; where each ends; their KINDS; the key). Row i gets
    its codes in `cells[:, i]`, whether it is a deletion in `deleted[i]`, and of each text (of a TIMESTAMP, too) where
    it begins and ends in `texts[column, :, i]` (-1: it is none).
    """
    names, ends, kinds, key = table
    place, stop_place = which
    bits = np.empty(1, np.int64)
    floats = bits.view(np.float64)
    width = len(ends)
    order = np.arange(width)  # in which the row before had its columns
    row = 0
    while place + row < stop_place and noted[3, place + row] == 1:
        at = noted[0, place + row]
        stop = at + noted[1, place + row]
        change, at = _changed(data, at, stop)
        _, at = _text(data, at, stop)  # the table
        if change == 2:
            if at + 4 > stop or data[at] != 0x92 or data[at + 1] != 0xA1 or data[at + 2] != 118 or data[at + 3] != 0x91:
                return row
            for i in range(width):
                cells[i, row] = np.nan
                texts[i, 0, row] = -1
                texts[i, 1, row] = -1
            if _cell(data, at + 4, stop, kinds[key], cells, texts, key, row, bits, floats) < 0:
                return row
            if texts[key, 0, row] < 0 and cells[key, row] != cells[key, row]:  # no row has such a key
                return row
            deleted[row] = True
        else:
            if at >= stop:
                return row
            head = int(np.int64(data[at]))
            if 0x80 <= head <= 0x8F:
                columns = head & 0x0F
                at += 1
            elif head == 0xDE and at + 3 <= stop:
                columns = _big_endian(data, at + 1, 2)
                at += 3
            else:
                return row
            if columns != width:
                return row
            for i in range(width):
                begin, end = _text(data, at, stop)
                if end < 0:
                    return row
                found = -1
                for j in range(i, width):  # columns before i are taken: a name that comes twice is not found
                    column = order[j]
                    if _same(data, begin, end, names, ends[column - 1] if column else 0, ends[column]):
                        found = column
                        order[j] = order[i]
                        order[i] = column
                        break
                if found < 0:
                    return row
                at = _cell(data, end, stop, kinds[found], cells, texts, found, row, bits, floats)
                if at < 0:
                    return row
            if at >= stop or data[at] != 0xC0:  # rows that lack columns
                return row
            deleted[row] = False
        row += 1
    return row


@part
def _cell(
    data: Bytes,
    at: int,
    stop: int,
    kind: int,
    cells: Floats,
    texts: Ints,
    column: int,
    row: int,
    bits: Ints,
    floats: Floats,
) -> int:
    """Read one value; returns where the next one begins, or -1 if this one is not plain."""
    if at >= stop:
        return -1
    head = int(np.int64(data[at]))
    texts[column, 0, row] = -1
    texts[column, 1, row] = -1
    if kind == _TEXT or (kind == _TIMESTAMP and (0xA0 <= head <= 0xBF or head == 0xD9)):
        cells[column, row] = np.nan
        if head == 0xC0:
            return at + 1
        begin, end = _text(data, at, stop)
        for i in range(begin, end):
            if data[i] == 0 or data[i] == 0xED:  # NUL, which separates texts, or perhaps a surrogate
                return -1
        texts[column, 0, row] = begin
        texts[column, 1, row] = end
        return end
    value = np.nan
    if head == 0xC0:
        after = at + 1
    elif kind == _TIMESTAMP:
        start = at + 2
        after = at + 10
        if head == 0xC7 and at + 14 <= stop and _begins(data, at, _TICKS) and _begins(data, at + 12, _MICROSECONDS):
            start = at + 4
            after = at + 14
        elif head != 0xD7 or after > stop or data[at + 1] != _INSTANT:
            return -1
        value = float(_uint32(data, start) | _uint32(data, start + 4) << 32)
    elif head <= 0x7F:
        after, value = at + 1, float(head)
    elif head >= 0xE0:
        after, value = at + 1, float(head - 256)
    elif 0xCC <= head <= 0xCE or 0xD0 <= head <= 0xD3 or head == 0xCB:
        wide = 8 if head == 0xCB else 1 << (head - (0xD0 if head >= 0xD0 else 0xCC))
        after = at + 1 + wide
        if after > stop:
            return -1
        bits[0] = _big_endian(data, at + 1, wide)
        if head == 0xCB:
            value = floats[0] + 0.0  # one code for both zeros
            if not np.isfinite(value):
                return -1
        else:
            if head >= 0xD0 and wide < 8 and bits[0] >> (8 * wide - 1):
                bits[0] -= 1 << (8 * wide)
            value = float(bits[0])
    else:
        return -1
    if kind != _REAL and value == value and (abs(value) > _EXACT or value != np.floor(value)):
        return -1
    cells[column, row] = value
    return after


@kernel
def join_texts(data: Bytes, texts: Ints, joined: Bytes) -> None:
    """Copy texts (where they begin and end; -1: none) into `joined`, a NUL behind each."""
    at = 0
    for row in range(texts.shape[1]):
        for i in range(texts[0, row], texts[1, row]):
            joined[at] = data[i]
            at += 1
        joined[at] = 0
        at += 1


def table_of(columns: Any, key: int) -> tuple[Bytes, Ints, Ints, int]:
    """What `read_rows` must know of a table: (folded name, type) of each column."""
    names = [name.encode(errors="surrogatepass") for name, _ in columns]
    blob = np.frombuffer(b"".join(names) or b"\0", np.uint8).copy()
    ends = np.cumsum([len(name) for name in names], dtype=np.int64)
    return blob, ends, np.array([KINDS[kind] for _, kind in columns], np.int64), key


def run_log() -> None:
    """Compile, or load, what reads records of the log: to compile takes seconds, and should not be waited for later."""
    no_bytes, noted, nothing = np.zeros(1, np.uint8), np.zeros((NOTED, 1), np.int64), np.zeros(1, np.int64)
    walk_records(no_bytes, 0, 0, (0, 0, 0, 0), no_bytes, noted)
    table = (no_bytes, nothing, nothing, 0)
    read_rows(no_bytes, noted, (0, 0), table, np.zeros((1, 1)), np.zeros(1, np.bool_), np.zeros((1, 2, 1), np.int64))
    join_texts(no_bytes, np.zeros((2, 0), np.int64), no_bytes)
