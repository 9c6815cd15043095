"""What our own bytes would have too much of, found in the values that they are made from.

A walk over the bytes (`walk.py`) needs a kernel where they are many. To load that takes a client a second, in which it
is silent. This needs builtins only, some tens of nanoseconds a value, about what it takes to pack it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from hullcast.network.wire.limits import WireLimits

#: Types of values that reach no limit but that on their number.
_PLAIN = frozenset({type(None), bool, float, bytes, bytearray, memoryview})
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1  # integers that MessagePack has


class ValueTally:
    """Counts what is limited in a value: lists, tuples, dicts with texts for keys, and scalars."""

    __slots__ = ("_foreign", "_limits", "containers", "extensions", "foreign", "long_texts", "values")

    def __init__(self, value: object, limits: WireLimits, foreign: type) -> None:
        """`foreign`: the class that stands for values that do not travel."""
        self._limits, self._foreign = limits, foreign
        self.values = self.containers = self.extensions = self.foreign = self.long_texts = 0
        self._add((value,))

    def exceeded(self) -> tuple[str, int] | None:
        """What there is too much of, and how much is allowed; None if it is fine."""
        limits = self._limits
        for what, found, most in (
            ("values", self.values, limits.objects),
            ("arrays and maps", self.containers, limits.containers),
            ("values of extension types", self.extensions, limits.extensions),
            ("foreign values", self.foreign, limits.columns),
        ):
            if found > most:
                return what, most
        return ("bytes of one text", limits.text_bytes) if self.long_texts else None

    def _add(self, items: Collection[Any]) -> None:
        """All values of an array or a map, and those inside them."""
        self.values += len(items)
        kinds = set(map(type, items))
        for kind in kinds - _PLAIN:
            of_kind: Collection[Any] = items if len(kinds) == 1 else [item for item in items if type(item) is kind]
            if issubclass(kind, str):
                self._add_texts(of_kind)
            elif issubclass(kind, list | tuple | dict):
                self.containers += len(of_kind)
                for item in of_kind:
                    self._add(item)  # of a dict, the keys
                    if isinstance(item, dict):
                        self._add(item.values())
            elif issubclass(kind, int):
                if min(of_kind) < _LEAST or max(of_kind) > _MOST:
                    self.extensions += sum(not _LEAST <= item <= _MOST for item in of_kind)
            elif not issubclass(kind, np.generic) or issubclass(kind, np.datetime64 | np.timedelta64):
                self.extensions += len(of_kind)
                self.foreign += len(of_kind) if issubclass(kind, self._foreign) else 0

    def _add_texts(self, texts: Collection[str]) -> None:
        most = self._limits.text_bytes
        if 4 * max(map(len, texts)) > most:  # a character has 4 bytes at most
            long = (text for text in texts if 4 * len(text) > most)
            self.long_texts += sum(len(text.encode(errors="surrogatepass")) > most for text in long)
