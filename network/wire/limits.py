"""What a receiver takes at most: judged before anything is built from a stranger's bytes.

Anything that can reach the port may send a frame. Its size bounds its columns (they are raw bytes), but not
what its structure costs: 64 MB of empty lists would be gigabytes of Python objects, and a value of an extension
type costs a call. So the headers are walked first (`network/wire/packing.py`), and only then decoded.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Limits of one receiver. The defaults are the protocol's: a sender may rely on them (PROTOCOL.md)."""

    frame_bytes: int = 64 << 20  # of one payload frame
    body_bytes: int = (64 << 20) - (64 << 10)  # of one body, so that its frame has room for the rest
    objects: int = 2 << 20  # values of any kind in one frame, bytes of columns not counted
    containers: int = 1 << 17  # arrays and maps in one frame
    extensions: int = 1 << 17  # values of extension types in one frame
    nesting: int = 16  # arrays and maps inside each other
    rows: int = 10_000_000  # of one column
    columns: int = 4096  # of one batch, answer or message; also parameters of one query, foreign values of a frame
    groups: int = 4096  # of one Subscribe
    words: int = 2 << 20  # distinct texts of one column
    text_bytes: int = 1 << 20  # of one text or name


DEFAULT = WireLimits()
#: Of what the server's own log holds. A request that lacked columns is there with whole rows, so it may be larger than
#: any request; nobody but the server writes there.
LOGGED = WireLimits(
    frame_bytes=1 << 30,
    body_bytes=(1 << 30) - 1,
    objects=1 << 28,
    containers=1 << 28,
    extensions=1 << 28,
    words=1 << 28,
)
