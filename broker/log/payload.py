"""What the record of a batch says.

Its payload is a Publish or a Delete as the wire encodes them. But logs live longer than connections: the version that
counts is that of the segment it stands in (`segment.VERSION`), not the wire's. If the wire encodes one of the two
another way one day, version 1 stays readable here and in walk.py, which reads the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.log.record import NOBODY
from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import Delete, Publish
from hullcast.network.wire.errors import BadFrame
from hullcast.network.wire.limits import LOGGED
from hullcast.network.wire.packing import pack

if TYPE_CHECKING:
    from hullcast.network.wire.value_columns import ValueColumns


def decode_batch(payload: bytes) -> Publish | Delete:
    """The change that was logged; BadFrame if it is something else."""
    body = bodies.decode(payload, LOGGED)
    if not isinstance(body, Publish | Delete):
        raise BadFrame(f"a {type(body).__name__} in the log")
    return body


def encode_tuples(stream: str, columns: ValueColumns, rows: int) -> bytes:
    """The payload of tuples that no client published, up to their positions; TooLarge if no record can hold it. The
    columns are arrays, the last of them POSITION, of which the numbers do not matter."""
    payload = bodies.encode(Publish(stream, columns, None, NOBODY, 0), LOGGED)
    return payload[: -8 * rows - len(_BEHIND)]


def positioned(begun: bytes, rows: int, first: int) -> bytes:
    """A payload that `encode_tuples` began, of tuples whose positions begin with `first`."""
    return b"".join((begun, np.arange(first, first + rows, dtype="<i8").data, _BEHIND))


#: What a Publish has behind its columns, of which POSITION is the last: masks, publisher and number.
_BEHIND = pack(None) + pack(NOBODY) + pack(0)
