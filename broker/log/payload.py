"""What the record of a batch says.

Its payload is a Publish or a Delete as the wire encodes them. But logs live longer than connections: the version that
counts is that of the segment it stands in (`segment.VERSION`), not the wire's. If the wire encodes one of the two
another way one day, version 1 stays readable here and in walk.py, which reads the same bytes.
"""

from __future__ import annotations

from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import Delete, Publish
from hullcast.network.wire.errors import BadFrame
from hullcast.network.wire.limits import LOGGED


def decode_batch(payload: bytes) -> Publish | Delete:
    """The change that was logged; BadFrame if it is something else."""
    body = bodies.decode(payload, LOGGED)
    if not isinstance(body, Publish | Delete):
        raise BadFrame(f"a {type(body).__name__} in the log")
    return body
