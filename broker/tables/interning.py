"""The interner: every TEXT of the engine has one small number, its code, as long as somebody needs it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import is_
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hullcast.broker.tables.values import NULL, Refused, check_text, texts_are_good
from hullcast.network.wire.arrays import Booleans, Floats
from hullcast.network.wire.errors import InvariantBroken

UNKNOWN = -1.0  # the code of no text: what a lookup without interning answers
SWEEP_SLACK = 4096  # texts that may gather before a first sweep is worth its walk over all live codes


class Texts:
    """The texts of codes as they were at one moment: later sweeps and reuses of codes do not touch it.

    Costs nothing to make: a sweep builds a new table and never writes to the one given out.
    """

    __slots__ = ("_table",)

    def __init__(self, table: NDArray[np.object_]) -> None:
        self._table = table

    def decode(self, codes: Floats) -> NDArray[np.object_]:
        """The texts of codes that were in use then, None for NULL."""
        null = np.isnan(codes)
        if not null.any():
            return self._table[codes.astype(np.int64)]
        texts = self._table[np.where(null, 0.0, codes).astype(np.int64)]
        texts[null] = None
        return texts

    def text(self, code: float) -> str:
        """The text of one code."""
        return str(self._table[int(code)])


class Interner:
    """Text to code and back, for all tables of one engine.

    Codes are not counted by reference (that would touch Python per cell); dead texts are found by mark and
    sweep instead. The owner gathers all codes still in use, between two batches, whenever `wants_sweep`.
    A batch that the door refused interned nothing; one that a store refused later leaves texts that
    nobody uses, and the next sweep takes them.

    Invariants (`check_invariants` tests them):
      I1  `_codes` and `_texts` are inverse to each other on the codes in use.
      I2  0.._used-1 is divided into codes in use and `_free`, without overlap.
      I3  every text passes `values.check_text`, so a known text need not be judged again.

    Cost: `encode` one dict lookup a row at C speed, plus judging and storing each text not seen before.
    If the owner sweeps when told, there are never more texts than twice what the last sweep kept, plus SWEEP_SLACK.
    """

    def __init__(self) -> None:
        self._codes: dict[str | None, float] = {None: NULL}  # NULL is in it so that `encode` needs no branch
        self._texts: NDArray[np.object_] = np.full(64, None, dtype=object)
        self._used = 0
        self._free: list[int] = []
        self._kept = 0

    def __len__(self) -> int:
        """The number of texts known."""
        return len(self._codes) - 1

    @property
    def texts(self) -> Texts:
        """The texts of all codes in use now, to decode with later."""
        return Texts(self._texts)

    @property
    def wants_sweep(self) -> bool:
        """Whether so many texts came since the last sweep that looking for dead ones pays."""
        return len(self) > 2 * self._kept + SWEEP_SLACK

    def encode(self, texts: Sequence[str | None]) -> Floats:
        """The codes of texts (None is NULL), interning new ones; Refused (with its row) before any change."""
        codes = self.known(texts)
        if codes is not None:
            return codes
        fresh = [text for text in dict.fromkeys(texts) if text is not None and text not in self._codes]
        if not texts_are_good(fresh):
            self.check(texts)  # words the refusal
        self._intern(fresh)
        return np.fromiter(map(self._codes.__getitem__, texts), np.float64, len(texts))

    def known(self, texts: Sequence[str | None]) -> Floats | None:
        """The codes of texts, if all have one."""
        try:
            return np.fromiter(map(self._codes.__getitem__, texts), np.float64, len(texts))
        except KeyError:
            return None

    def check(self, texts: Sequence[str | None]) -> None:
        """Refuse what `encode` would refuse, without interning anything."""
        if all(map(self._codes.__contains__, texts)):  # by I3 these are good
            return
        fresh = set(texts).difference(self._codes)  # without None, which `_codes` has
        if texts_are_good(cast("set[str]", fresh)):
            return
        for row, text in enumerate(texts):
            if text in fresh and text is not None:
                try:
                    check_text(text)
                except Refused as refused:
                    raise Refused(refused.reason, row) from None
        raise InvariantBroken("texts are bad together and good alone")

    def code(self, text: str) -> float:
        """The code of one text, interning it if it is new."""
        code = self._codes.get(text)
        if code is None:
            check_text(text)
            self._intern([text])
            code = self._codes[text]
        return code

    def find(self, text: str) -> float | None:
        """The code of a text if it has one; never interns."""
        return self._codes.get(text)

    def find_all(self, texts: Sequence[str | None]) -> Floats:
        """The codes of texts, UNKNOWN for those without one; never interns."""
        return np.fromiter(map(self._codes.get, texts, repeat(UNKNOWN)), np.float64, len(texts))

    def text(self, code: float) -> str:
        """The text of a code; KeyError if the code is not in use."""
        text = self._texts[int(code)] if 0 <= code < self._used else None
        if text is None:
            raise KeyError(code)
        return str(text)

    def codes(self) -> Floats:
        """All codes in use."""
        return np.flatnonzero(~_absent(self._texts[: self._used])).astype(np.float64)

    def decode(self, codes: Floats) -> NDArray[np.object_]:
        """The texts of codes, None for NULL; KeyError if a code is not in use."""
        null = np.isnan(codes)
        places = np.where(null, 0, codes).astype(np.int64)
        if places.size and not (places.min() >= 0 and places.max() < max(self._used, 1)):
            raise KeyError(float(codes[(places < 0) | (places >= self._used)][0]))
        texts = self._texts[places]
        texts[null] = None
        dead = _absent(texts) & ~null
        if dead.any():
            raise KeyError(float(codes[dead][0]))
        return texts

    def sweep(self, live_codes: Floats) -> int:
        """Forget every text whose code is not live, and say how many were.

        `live_codes` must hold all codes that anybody still keeps, in any order and number; codes that are no
        text's (NaN, infinities, UNKNOWN) are skipped. The freed codes are given to later texts.
        """
        keep = np.zeros(self._used, dtype=np.bool_)
        keep[live_codes[(live_codes >= 0) & (live_codes < self._used)].astype(np.int64)] = True
        keep &= ~_absent(self._texts[: self._used])
        kept = np.flatnonzero(keep)
        forgotten = len(self) - len(kept)
        texts = self._texts[kept]
        # both sides are built again: a dict does not shrink by deletion
        self._codes = {None: NULL}
        self._codes.update(zip(texts.tolist(), kept.astype(np.float64).tolist(), strict=True))
        self._used = int(kept[-1]) + 1 if len(kept) else 0
        self._free = np.flatnonzero(~keep[: self._used])[::-1].tolist()
        self._texts = np.full(max(64, 1 << self._used.bit_length()), None, dtype=object)
        self._texts[kept] = texts
        self._kept = len(kept)
        return forgotten

    def memory_bytes(self) -> int:
        """About what the interner holds, without the texts' own bytes."""
        return self._codes.__sizeof__() + 24 * len(self._codes) + self._texts.nbytes + 8 * len(self._free)

    def characters(self) -> int:
        """Of all texts; takes as long as there are many."""
        return sum(map(len, filter(None, self._codes)))

    def check_invariants(self) -> None:
        """InvariantBroken unless I1 to I3 hold."""
        known = {text: int(code) for text, code in self._codes.items() if text is not None}
        in_use = sorted(known.values())
        stored = {text: code for code, text in enumerate(self._texts.tolist()) if text is not None}
        if known != stored:
            raise InvariantBroken("I1: texts and codes are not inverse")
        if sorted(in_use + self._free) != list(range(self._used)):
            raise InvariantBroken("I2: codes in use and free codes do not divide the codes given out")
        if not all(texts_are_good([text]) for text in known):
            raise InvariantBroken("I3: a text that would be refused is interned")

    def _intern(self, fresh: Sequence[str]) -> None:
        """Give codes to texts that are new, distinct and good: freed codes first."""
        reused = max(0, len(self._free) - len(fresh))
        codes = self._free[reused:][::-1]
        del self._free[reused:]
        last = self._used + len(fresh) - len(codes)
        codes.extend(range(self._used, last))
        if last > len(self._texts):
            grown = np.full(max(last, 2 * len(self._texts)), None, dtype=object)
            grown[: self._used] = self._texts[: self._used]
            self._texts = grown
        self._used = last
        self._texts[codes] = fresh
        self._codes.update(zip(fresh, map(float, codes), strict=True))


def _absent(texts: NDArray[np.object_]) -> Booleans:
    return np.fromiter(map(is_, texts, repeat(None)), np.bool_, len(texts))
