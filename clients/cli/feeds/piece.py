"""A piece of a trace on its way to be replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats


@dataclass(frozen=True, slots=True)
class Piece:
    """Updates of one table: rows to publish (a list, or a dict of columns), or keys to delete."""

    table: str
    rows: Any
    count: int
    deletes: bool = False
    seconds: Floats | None = None  # instants of a trace with times

    def cut(self, start: int, stop: int) -> Any:
        """Some of the rows or keys."""
        if isinstance(self.rows, dict):
            return {name: values[start:stop] for name, values in self.rows.items()}
        return self.rows[start:stop] if isinstance(self.rows, list | tuple) else self.rows.slice(start, stop - start)


def size_and_seed(text: str, size: int) -> tuple[int, int]:
    """`kind[:size[:seed]]`: how large, and which seed (0 unless given)."""
    kind, *numbers = text.split(":")
    try:
        found = list(map(int, numbers)) + [size, 0][len(numbers) :]
        if len(numbers) > 2:
            raise ValueError
    except ValueError:
        raise UsageError(
            f"{text!r} is not a trace; write {kind}:1000 for 1000 rows, or {kind}:1000:7 for seed 7"
        ) from None
    return found[0], found[1]
