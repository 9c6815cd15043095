"""Walks over MessagePack headers, and builds nothing, to see whether bytes are whole and within limits."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from hullcast.network.compiled import kernel, plain
from hullcast.network.wire.limits import WireLimits

_OK, _CUT_SHORT, _TOO_MANY, _TOO_DEEP, _LONG_TEXT, _UNKNOWN, _TRAILING, _LONG_EXTENSION = range(8)
_CONTAINERS, _EXTENSIONS, _FOREIGN = range(8, 11)
_EXTENSION_BYTES = 256
FOREIGN = 3  # the extension type that stands for a value of a type that does not travel
_REASONS = {
    _CUT_SHORT: "the bytes end in the middle of a value",
    _TOO_MANY: "more than {0.objects} values in one frame",
    _TOO_DEEP: "nested deeper than {0.nesting}",
    _LONG_TEXT: "a text of more than {0.text_bytes} bytes",
    _UNKNOWN: "a byte that begins no MessagePack value",
    _TRAILING: "bytes after the end of the value",
    _LONG_EXTENSION: "an extension of more than 256 bytes",
    _CONTAINERS: "more than {0.containers} arrays and maps in one frame",
    _EXTENSIONS: "more than {0.extensions} values of extension types (instants beside other values, say) in one frame",
    _FOREIGN: "more than {0.columns} foreign values in one frame",
}
_DEEPEST = 64
# Values of what was received that are walked over in Python (150 ms at most) before numba is loaded for it, which takes
# a second, and several on a busy host. A portion of an answer to a query has fewer: a client that loaded numba for it
# would be silent for so long that it loses its link. What is sent is counted in another way (`tally.py`).
_SHORT = 300_000


#: What a sender may have too much of, and the limit of it.
_EXCEEDED = {
    _TOO_MANY: ("values", "objects"),
    _CONTAINERS: ("arrays and maps", "containers"),
    _EXTENSIONS: ("values of extension types", "extensions"),
    _FOREIGN: ("foreign values", "columns"),
    _LONG_TEXT: ("bytes of one text", "text_bytes"),
}


def walk(data: bytes, limits: WireLimits) -> str:
    """Why the bytes are refused; empty if they are not."""
    code = _code(data, limits)
    return _REASONS[code].format(limits) if code else ""


def exceeded(data: bytes, limits: WireLimits) -> tuple[str, int] | None:
    """What these bytes of our own have too much of, and how much of it is allowed; None if they are fine."""
    what = _EXCEEDED.get(_code(data, limits))
    return None if what is None else (what[0], getattr(limits, what[1]))


def is_ready() -> bool:
    """Whether a walk over very many values is quick: it is compiled, and was used before."""
    return bool(getattr(_walk, "signatures", ()))


def _code(data: bytes, limits: WireLimits) -> int:
    most = (limits.objects, limits.containers, limits.extensions, limits.columns)
    nesting, in_python = min(limits.nesting, _DEEPEST), plain(_walk)
    if in_python is not None:  # a client that only publishes and queries has no need of numba; a long walk does
        few = (min(limits.objects, _SHORT), *most[1:])
        code = in_python(cast("Any", data), few, nesting, limits.text_bytes)
        if code != _TOO_MANY or limits.objects <= _SHORT:
            return code
    return _walk(np.frombuffer(data, np.uint8), most, nesting, limits.text_bytes)


@kernel
def _walk(data: npt.NDArray[np.uint8], most: tuple[int, int, int, int], nesting: int, text_bytes: int) -> int:
    """One loop over headers. `left[d]` is how many values are still to come at depth d; `most` are the numbers of
    values, containers, values of extension types and foreign values."""
    size = len(data)
    objects, containers, extensions, foreign = most
    left = np.zeros(_DEEPEST + 2, dtype=np.int64)
    left[0] = 1
    depth = 0
    seen = 0
    at = 0
    while depth >= 0:
        if left[depth] == 0:
            depth -= 1
            continue
        left[depth] -= 1
        seen += 1
        if seen > objects:
            return _TOO_MANY
        if at >= size:
            return _CUT_SHORT
        head = int(data[at])
        at += 1
        count = 0  # values inside
        skip = 0  # bytes of content
        width = 0  # bytes of a length that follows
        container = False
        text = False
        if head <= 0x7F or head >= 0xE0 or head == 0xC0 or head == 0xC2 or head == 0xC3:
            continue
        if head <= 0x8F:
            container, count = True, 2 * (head & 0x0F)
        elif head <= 0x9F:
            container, count = True, head & 0x0F
        elif head <= 0xBF:
            text, skip = True, head & 0x1F
        elif head == 0xC1:
            return _UNKNOWN
        elif head <= 0xC6:  # bin 8, 16, 32
            width = 1 << (head - 0xC4)
        elif head <= 0xC9:  # ext 8, 16, 32
            width = 1 << (head - 0xC7)
        elif head <= 0xCB:  # float 32, 64
            skip = 4 << (head - 0xCA)
        elif head <= 0xCF:  # uint
            skip = 1 << (head - 0xCC)
        elif head <= 0xD3:  # int
            skip = 1 << (head - 0xD0)
        elif head <= 0xD8:  # fixext
            skip = 1 + (1 << (head - 0xD4))
        elif head <= 0xDB:  # str 8, 16, 32
            text, width = True, 1 << (head - 0xD9)
        else:  # array 16, 32, map 16, 32
            container, width = True, 2 << (head & 1)
        if width:
            if at + width > size:
                return _CUT_SHORT
            length = 0
            for i in range(width):
                length = (length << 8) | int(data[at + i])
            at += width
            if container:
                count = 2 * length if head >= 0xDE else length
            else:
                skip = length
            if 0xC7 <= head <= 0xC9:
                if length > _EXTENSION_BYTES:
                    return _LONG_EXTENSION
                skip += 1
        if 0xC7 <= head <= 0xC9 or 0xD4 <= head <= 0xD8:  # the byte after the length is the type
            extensions -= 1
            if extensions < 0:
                return _EXTENSIONS
            if at < size and data[at] == FOREIGN:
                foreign -= 1
                if foreign < 0:
                    return _FOREIGN
        if text and skip > text_bytes:
            return _LONG_TEXT
        if skip > size - at:
            return _CUT_SHORT
        at += skip
        if container:
            containers -= 1
            if containers < 0:
                return _CONTAINERS
            if count > size - at:  # each value takes a byte at least
                return _CUT_SHORT
            if depth >= nesting:
                return _TOO_DEEP
            depth += 1
            left[depth] = count
    return _TRAILING if at < size else _OK
