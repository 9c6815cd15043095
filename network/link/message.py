"""A link message as ZeroMQ gives it: its header and payload, checked."""

from __future__ import annotations

from hullcast.network.link.header import Bye, Header, decode
from hullcast.network.wire.errors import BadFrame, PeerError


def read_message(parts: list[bytes], message_bytes: int) -> tuple[Header, bytes | None]:
    """A message's header and payload, or `BadFrame`."""
    count = len(parts)
    if count == 2:
        if len(parts[1]) > message_bytes:
            raise BadFrame(f"payload of {len(parts[1])} bytes, at most {message_bytes}")
        return decode(parts[0]), parts[1]
    if count != 1:
        raise BadFrame("a message is not a header and perhaps a payload")
    return decode(parts[0]), None


def is_bye(parts: list[bytes]) -> bool:
    """Whether a message ends a link."""
    try:
        return isinstance(read_message(parts, 0)[0], Bye)
    except PeerError:
        return False
