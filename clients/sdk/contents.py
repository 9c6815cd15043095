"""First contents of collections that nobody has looked at yet, in the columns they came in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.sdk.decoding import entries

if TYPE_CHECKING:
    import numpy.typing as npt

    from hullcast.network.wire.bodies import ChannelSpec
    from hullcast.network.wire.columns import Columns

    Ints = npt.NDArray[np.int64]


class Contents:
    """Of 100,000 sets most are never looked at: their values become Python objects when one is."""

    def __init__(self, spec: ChannelSpec) -> None:
        self._spec = spec
        self._where: dict[int, tuple[Columns, Ints]] = {}  # a snapshot goes with the last one that needs it

    def put(self, listeners: Ints, snapshot: Columns) -> None:
        """Take the contents of listeners, given by the place of each in `listeners`, column "of"; -1 is nobody."""
        of = np.asarray(snapshot["of"])
        order = np.argsort(of, kind="stable")
        places = np.arange(len(listeners))
        starts, stops = np.searchsorted(of, places, sorter=order), np.searchsorted(of, places, "right", sorter=order)
        for listener, start, stop in zip(listeners.tolist(), starts.tolist(), stops.tolist(), strict=True):
            if listener >= 0:
                self._where[listener] = (snapshot, order[start:stop])

    def look(self, listener: int) -> dict[Any, Any]:
        """The contents of one listener, which stay here."""
        return dict(entries(self._spec, *self._where[listener]))

    def take(self, listener: int) -> dict[Any, Any]:
        """The contents of one listener, from now on its own business."""
        snapshot, rows = self._where.pop(listener)
        return dict(entries(self._spec, snapshot, rows))

    def forget(self, listeners: Ints) -> None:
        """These left."""
        for listener in listeners.tolist():
            self._where.pop(listener, None)
