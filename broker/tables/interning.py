"""The interner: every TEXT of the engine has one small number, its code, as long as somebody needs it.

Nothing of it grows or shrinks at one go. Texts are found by several dicts, chosen by their hashes; when there are too
few, one of them is divided, and later the next one (linear hashing, Litwin 1980)::

    hash & 3        0      1      2      3          two dicts, none of the round is divided: 2 is 0, 3 is 1
    dicts          [a]    [b]    [a]    [b]
    a divided      [a]    [b]    [a']   [b]         what was in `a` and has the bit 2 is in a' now
    b divided      [a]    [b]    [a']   [b']        the next round begins with eight places, for four dicts

But the first dict is divided into FIRST_DICTS at once.

Texts are kept by code in blocks, which are never moved. And who looks for texts that are no longer used may do so in
parts: see `begin_sweep`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress, repeat
from operator import and_, contains, delitem, getitem, not_, setitem
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hullcast.broker.tables.room import with_room
from hullcast.broker.tables.values import NULL, Refused, check_text, texts_are_good
from hullcast.network.wire.arrays import Booleans, Floats, Ints
from hullcast.network.wire.errors import InvariantBroken

UNKNOWN = -1.0  # the code of no text: what a lookup without interning answers
SWEEP_SLACK = 4096  # texts that may gather before a first sweep is worth its walk over all live codes
#: Texts for each dict, on average: to divide one takes a millisecond or two.
DICT_TEXTS = 1 << 14
#: The first dict is divided into so many: one after the other would move each text six times on the way to a million.
FIRST_DICTS = 64
#: Texts of a block: to copy one, and forget all its texts, takes no longer.
BLOCK_BITS = 14
BLOCK, SMALLEST_BLOCK = 1 << BLOCK_BITS, 64
#: Bytes for each text of a dict that has too few; 24 to 110 are usual.
LOOSE_BYTES = 256

_Block = NDArray[np.object_]


class Texts:
    """The texts of codes as they were at one moment: later sweeps and reuses of codes do not touch it.

    Costs nothing to make: a sweep copies the blocks that it changes, and never writes to those given out.
    """

    __slots__ = ("_blocks",)

    def __init__(self, blocks: list[_Block]) -> None:
        self._blocks = blocks

    def decode(self, codes: Floats) -> _Block:
        """The texts of codes that were in use then, None for NULL."""
        null = np.isnan(codes)
        if not null.any():
            return _at(self._blocks, codes.astype(np.int64))
        texts = _at(self._blocks, np.where(null, 0.0, codes).astype(np.int64))
        texts[null] = None
        return texts

    def text(self, code: float) -> str:
        """The text of one code."""
        place = int(code)
        return str(self._blocks[place >> BLOCK_BITS][place & BLOCK - 1])


def _at(blocks: list[_Block], places: Ints) -> _Block:
    """The texts at places."""
    if not len(places):
        return blocks[0][places]
    first = int(places.min()) >> BLOCK_BITS
    if first == int(places.max()) >> BLOCK_BITS:  # texts that came together often are
        return blocks[first][places - (first << BLOCK_BITS)]
    of, within = (places >> BLOCK_BITS).tolist(), (places & BLOCK - 1).tolist()
    return np.fromiter(map(getitem, map(blocks.__getitem__, of), within), np.object_, len(places))


class Interner:
    """Text to code and back, for all tables of one engine.

    Codes are not counted by reference (that would touch Python per cell); dead texts are found by mark and
    sweep instead. The owner marks all codes still in use, between batches, whenever `wants_sweep`.
    A batch that the door refused interned nothing; one that a store refused later leaves texts that
    nobody uses, and the next sweep takes them.

    Invariants (`check_invariants` tests them):
      I1  `_dicts` and `_blocks` are inverse to each other on the codes in use.
      I2  0.._used-1 is divided into codes in use, as `_in_use` has them, and `_free`, without overlap.
      I3  every text passes `values.check_text`, so a known text need not be judged again.
      I4  a text is in the dict that its hash leads to.

    Cost: `encode` one dict lookup a row at C speed, plus judging and storing each text not seen before. Whatever is
    done for growth is a dict divided for each DICT_TEXTS new texts.
    If the owner sweeps when told, there are never more texts than twice what the last sweep kept, plus SWEEP_SLACK, and
    those that come during a sweep.
    """

    def __init__(self) -> None:
        codes: dict[str | None, float] = {None: NULL}  # NULL is in it so that `encode` needs no branch
        self._dicts = [codes, codes]  # by the lower bits of a hash; as long as one is not divided it stands twice
        self._round, self._divided = 1, 0  # dicts that the round began with, and how many of them are divided
        self._blocks: list[_Block] = [np.full(SMALLEST_BLOCK, None, np.object_)]
        self._in_use: Booleans = np.zeros(SMALLEST_BLOCK, np.bool_)
        self._used = 0
        self._known = 0
        self._free: list[int] = []
        self._kept = 0
        self._marks: Booleans | None = None  # while a sweep is under way, for the codes that there were when it began
        self._swept = 0  # those below were looked at
        self.moved = 0  # entries of dicts that were divided

    def __len__(self) -> int:
        """The number of texts known."""
        return self._known

    @property
    def texts(self) -> Texts:
        """The texts of all codes in use now, to decode with later."""
        return Texts(self._blocks)

    @property
    def wants_sweep(self) -> bool:
        """Whether so many texts came since the last sweep that looking for dead ones pays."""
        return self._known > 2 * self._kept + SWEEP_SLACK

    def encode(self, texts: Sequence[str | None]) -> Floats:
        """The codes of texts (None is NULL), interning new ones; Refused (with its row) before any change."""
        codes = self.known(texts)
        if codes is not None:
            return codes
        fresh, dicts = self._unknown(texts)
        if not texts_are_good(fresh):
            self.check(texts)  # words the refusal
        given = self._intern(fresh, dicts)
        codes = given if len(fresh) == len(texts) else self.known(texts)  # in order, if no other texts are there
        assert codes is not None, "all of them are known now"
        return codes

    def known(self, texts: Sequence[str | None]) -> Floats | None:
        """The codes of texts, if all have one."""
        try:
            if self._round + self._divided == 1:
                codes = np.fromiter(map(self._dicts[0].__getitem__, texts), np.float64, len(texts))
            else:
                codes = np.fromiter(map(getitem, self._dicts_of(texts), texts), np.float64, len(texts))
        except KeyError:
            return None
        if self._marks is not None:
            self.mark(codes)
        return codes

    def check(self, texts: Sequence[str | None]) -> None:
        """Refuse what `encode` would refuse, without interning anything."""
        fresh, _ = self._unknown(texts)  # by I3 all others are good
        if texts_are_good(fresh):
            return
        bad = set(fresh)
        for row, text in enumerate(texts):
            if text in bad and text is not None:
                try:
                    check_text(text)
                except Refused as refused:
                    raise Refused(refused.reason, row) from None
        raise InvariantBroken("texts are bad together and good alone")

    def code(self, text: str) -> float:
        """The code of one text, interning it if it is new."""
        code = self.find(text)
        if code is None:
            check_text(text)
            code = float(self._intern([text], [self._dict_of(text)])[0])
        return code

    def find(self, text: str) -> float | None:
        """The code of a text if it has one; never interns."""
        code = self._dicts[hash(text) & len(self._dicts) - 1].get(text)
        if self._marks is not None and code is not None:
            self.mark(np.array([code]))
        return code

    def find_all(self, texts: Sequence[str | None]) -> Floats:
        """The codes of texts, UNKNOWN for those without one; never interns."""
        codes = np.fromiter(map(dict.get, self._dicts_of(texts), texts, repeat(UNKNOWN)), np.float64, len(texts))
        if self._marks is not None:
            self.mark(codes)
        return codes

    def text(self, code: float) -> str:
        """The text of a code; KeyError if the code is not in use."""
        if not (0 <= code < self._used and self._in_use[int(code)]):
            raise KeyError(code)
        return self.texts.text(code)

    def codes(self) -> Floats:
        """All codes in use."""
        return np.flatnonzero(self._in_use[: self._used]).astype(np.float64)

    def decode(self, codes: Floats) -> _Block:
        """The texts of codes, None for NULL; KeyError if a code is not in use."""
        null = np.isnan(codes)
        there = codes[~null]
        dead = (there < 0) | (there >= self._used)
        if not dead.any():
            dead = ~self._in_use[there.astype(np.int64)]
        if dead.any():
            raise KeyError(float(there[dead][0]))
        return self.texts.decode(codes)

    # --- what nobody needs any more ------------------------------------------------------------------------

    def sweep(self, live_codes: Floats) -> int:
        """Forget every text whose code is not live, and say how many were; all of it now.

        `live_codes` must hold all codes that anybody still keeps, in any order and number; codes that are no
        text's (NaN, infinities, UNKNOWN) are skipped. The freed codes are given to later texts.
        """
        before = len(self)
        self.begin_sweep()
        self.mark(live_codes)
        while not self.sweep_some():
            pass
        return before - len(self)

    @property
    def sweeping(self) -> bool:
        """Whether a sweep is under way."""
        return self._marks is not None

    def begin_sweep(self) -> None:
        """Begin a sweep that takes as long as its owner likes: `mark` what is in use, some at a time, then call
        `sweep_some` until it is done.

        A code that anybody asks for meanwhile is marked by that. So whoever marks need not look again at what has been
        looked at: what is there later came from there, or from here.
        """
        self._marks, self._swept = np.zeros(self._used, np.bool_), 0

    def mark(self, codes: Floats) -> None:
        """These codes are in use."""
        assert self._marks is not None, "a sweep has begun"
        self._marks[codes[(codes >= 0) & (codes < len(self._marks))].astype(np.int64)] = True

    def sweep_some(self) -> bool:
        """Forget the texts of the next BLOCK codes that were not marked; returns whether that were all."""
        assert self._marks is not None, "a sweep has begun"
        start = self._swept << BLOCK_BITS
        if start < len(self._marks):
            self._forget(
                start,
                np.flatnonzero(self._in_use[start : len(self._marks)][:BLOCK] & ~self._marks[start : start + BLOCK]),
            )
        else:
            self._tighten(self._dicts[self._swept - _blocks_of(len(self._marks))])
        self._swept += 1
        if self._swept < _blocks_of(len(self._marks)) + self._round + self._divided:
            return False
        self._marks = None
        self._kept = self._known
        return True

    def _forget(self, start: int, dead: Ints) -> None:
        """Forget these texts of the block that starts there."""
        if not len(dead):
            return
        at = start >> BLOCK_BITS
        self._blocks = self._blocks.copy()  # `Texts` keep the others
        block = self._blocks[at] = self._blocks[at].copy()
        texts = block[dead].tolist()
        _all(map(delitem, self._dicts_of(texts), texts))
        block[dead] = None
        self._in_use[start + dead] = False
        self._free.extend((start + dead)[::-1].tolist())
        self._known -= len(dead)

    @staticmethod
    def _tighten(codes: dict[str | None, float]) -> None:
        """Give back the memory of a dict that has lost most of its texts: by deletion it does not shrink."""
        if codes.__sizeof__() > LOOSE_BYTES * (len(codes) + SMALLEST_BLOCK):
            kept = codes.copy()
            codes.clear()
            codes.update(kept)

    # --- the dicts -----------------------------------------------------------------------------------------

    def _dict_of(self, text: str | None) -> dict[str | None, float]:
        return self._dicts[hash(text) & len(self._dicts) - 1]

    def _dicts_of(self, texts: Iterable[str | None]) -> Iterator[dict[str | None, float]]:
        """The dict of each text."""
        return map(self._dicts.__getitem__, map(and_, map(hash, texts), repeat(len(self._dicts) - 1)))

    def _unknown(self, texts: Iterable[str | None]) -> tuple[list[str], list[dict[str | None, float]]]:
        """Those of some texts that are not known, once each, and the dict of each."""
        distinct = list(cast("dict[str, None]", dict.fromkeys(texts)))  # None is known
        dicts = list(self._dicts_of(distinct))
        unknown = list(map(not_, map(contains, dicts, distinct)))
        return list(compress(distinct, unknown)), list(compress(dicts, unknown))

    def _intern(self, fresh: Sequence[str], dicts: Sequence[dict[str | None, float]]) -> Floats:
        """Give codes to texts that are new, distinct and good, with their dicts: freed codes first."""
        reused = max(0, len(self._free) - len(fresh))
        codes = self._free[reused:][::-1]
        del self._free[reused:]
        last = self._used + len(fresh) - len(codes)
        codes.extend(range(self._used, last))
        self._used = last
        self._in_use = with_room(self._in_use, last)
        self._known += len(fresh)
        found = np.array(codes, np.float64)
        _all(map(setitem, dicts, fresh, found.tolist()))
        self._store(found.astype(np.int64), fresh)
        while self._known > DICT_TEXTS * (self._round + self._divided):
            self._divide()
        return found

    def _store(self, places: Ints, texts: Sequence[str]) -> None:
        """Put texts that got codes into their blocks."""
        self._in_use[places] = True
        if self._marks is not None:
            self.mark(places.astype(np.float64))
        while len(self._blocks[0]) < min(self._used, BLOCK):
            self._blocks[0] = np.append(self._blocks[0], np.full(len(self._blocks[0]), None, np.object_))
        while len(self._blocks) << BLOCK_BITS < self._used:
            self._blocks.append(np.full(BLOCK, None, np.object_))
        of, within, given = places >> BLOCK_BITS, places & BLOCK - 1, np.fromiter(texts, np.object_, len(texts))
        for block in np.unique(of).tolist():
            here = of == block
            self._blocks[block][within[here]] = given[here]

    def _divide(self) -> None:
        """Divide the next dict of the round; the only one there is into many."""
        if self._round + self._divided == 1:
            parts: list[dict[str | None, float]] = [{} for _ in range(FIRST_DICTS)]
            (codes, *_) = self._dicts
            places = map(and_, map(hash, codes), repeat(FIRST_DICTS - 1))
            _all(map(setitem, map(parts.__getitem__, places), codes, codes.values()))
            self._dicts, self._round = parts + parts, FIRST_DICTS
            self.moved += len(codes)
            return
        if self._divided == self._round:
            self._dicts += self._dicts
            self._round, self._divided = 2 * self._round, 0
        at, bit = self._divided, self._round
        items = self._dicts[at].items()
        goes = list(map(and_, map(hash, self._dicts[at]), repeat(bit)))
        self._dicts[at], self._dicts[at + bit] = dict(compress(items, map(not_, goes))), dict(compress(items, goes))
        self.moved += len(goes)
        self._divided += 1

    def _distinct_dicts(self) -> list[dict[str | None, float]]:
        return self._dicts[: self._round + self._divided]

    # --- statistics ----------------------------------------------------------------------------------------

    def memory_bytes(self) -> int:
        """About what the interner holds, without the texts' own bytes."""
        found = sum(codes.__sizeof__() for codes in self._distinct_dicts()) + 24 * self._known
        return found + sum(block.nbytes for block in self._blocks) + self._used + 8 * len(self._free)

    def characters(self) -> int:
        """Of all texts; takes as long as there are many."""
        return sum(map(len, filter(None, chain.from_iterable(self._distinct_dicts()))))

    def check_invariants(self) -> None:
        """InvariantBroken unless I1 to I4 hold."""
        known = {
            text: int(code) for codes in self._distinct_dicts() for text, code in codes.items() if text is not None
        }
        in_use = sorted(known.values())
        stored = {text: code for code, text in enumerate(chain.from_iterable(self._blocks)) if text is not None}
        if known != stored or len(known) != len(self):
            raise InvariantBroken("I1: texts and codes are not inverse")
        if sorted(in_use + self._free) != list(range(self._used)) or self.codes().tolist() != in_use:
            raise InvariantBroken("I2: codes in use and free codes do not divide the codes given out")
        if not all(texts_are_good([text]) for text in known):
            raise InvariantBroken("I3: a text that would be refused is interned")
        if not all(text in self._dict_of(text) for text in (None, *known)):
            raise InvariantBroken("I4: a text is in another dict than its hash leads to")


def _blocks_of(codes: int) -> int:
    """How many blocks have room for so many codes."""
    return -(-codes >> BLOCK_BITS)


def _all(done: Iterable[None]) -> None:
    """Do what an iterator does, at C speed."""
    deque(done, maxlen=0)
