"""How much of the way up each child takes: a greedy one must not fill it for the others."""

from __future__ import annotations

from collections import deque

from hullcast.network.wire.errors import Overloaded

#: A client's part of the queue to the parent, and that of a node, which speaks for many.
CLIENT_SHARE = 1 / 4
NODE_SHARE = 1 / 2


class Shares:
    """Counts, per child, what was sent up for it and is not yet acknowledged by the parent's link.

    A child with nothing on its way may always send one request, however large; the link itself judges that. A request
    counts for `least` bytes at least, since the queue has a limit in frames too.
    """

    def __init__(self, queue_bytes: int, queue_frames: int) -> None:
        self._queue_bytes = queue_bytes
        self._least = queue_bytes // queue_frames
        self._flying: deque[tuple[int, int, int]] = deque()  # number of the frame on the link, child, bytes
        self._bytes: dict[int, int] = {}
        self.refused = 0

    def check(self, child: int, size: int, *, speaks_for_many: bool, acknowledged: int) -> None:
        """Overloaded if this child has its share on the way already. The link has acknowledged frames up to that."""
        while self._flying and self._flying[0][0] <= acknowledged:
            _, arrived, taken = self._flying.popleft()
            left = self._bytes[arrived] - taken
            if left:
                self._bytes[arrived] = left
            else:
                del self._bytes[arrived]
        most = int(self._queue_bytes * (NODE_SHARE if speaks_for_many else CLIENT_SHARE))
        held = self._bytes.get(child, 0)
        if held and held + max(size, self._least) > most:
            self.refused += 1
            raise Overloaded("bytes from one client or node on their way to the server", most)

    def took(self, child: int, size: int, number: int) -> None:
        """The link took a frame for this child, as its number `number`."""
        taken = max(size, self._least)
        self._flying.append((number, child, taken))
        self._bytes[child] = self._bytes.get(child, 0) + taken

    def clear(self) -> None:
        """A fresh link: nothing is on its way."""
        self._flying.clear()
        self._bytes.clear()

    def __len__(self) -> int:
        return len(self._bytes)
