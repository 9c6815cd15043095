"""Records: classes that travel, each declared once. Fields in their order, by their types; see `fields.py`.

    @BODIES.declare("staged")
    @dataclass(frozen=True, slots=True)
    class Staged:
        ticket: Annotated[bytes, identity("a ticket")]
        parts: Annotated[int, integer("parts", 1, 4096)]

is enough to encode and to decode it as `["staged", ticket, parts]`, and for its row in PROTOCOL.md. What holds between
fields is said by a method `check(self, limits)`, which raises BadFrame. Codecs are found when a class is declared.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from hullcast.network.wire import fields, packing
from hullcast.network.wire.errors import BadFrame, TooLarge
from hullcast.network.wire.fields import Codec, Read
from hullcast.network.wire.limits import WireLimits

Kind = TypeVar("Kind", bound=type)

#: Marks a field that does not travel.
UNSENT = object()

_PLAIN: dict[object, Codec] = {
    int: fields.integer(),
    float: fields.number(),
    bool: fields.boolean(),
    str: fields.text(),
    tuple[str, ...]: fields.texts(),
}
_PARTS: dict[object, Codec] = {}


@dataclass(frozen=True, slots=True)
class Record:
    """How a class travels. `listed` gives the array, and `read` the checked object of one."""

    tag: str
    codecs: dict[str, Codec]
    listed: Callable[[Any], list[object]]
    read: Read
    limited: tuple[tuple[str, Callable[[WireLimits], int]], ...]

    @property
    def said(self) -> str:
        """Its fields as PROTOCOL.md lists them."""
        return ", ".join(f"{name}: {codec.said}" for name, codec in self.codecs.items())


class Tagged:
    """Classes that travel as arrays which begin with their type: all frames, or all bodies."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.records: dict[str, Record] = {}
        self._by_class: dict[type, Record] = {}

    def declare(self, tag: str) -> Callable[[Kind], Kind]:
        """The decorator of a class that travels under that name."""

        def declared(kind: Kind) -> Kind:
            self.records[tag] = self._by_class[kind] = record_of(kind, f"a {tag} {self._what}", tag)
            return kind

        return declared

    def encode(self, value: object, most_bytes: int, limits: WireLimits) -> bytes:
        """The bytes of an object; TooLarge if no receiver would take them."""
        record = self._by_class[type(value)]
        for name, most in record.limited:
            if len(getattr(value, name)) > most(limits):
                raise TooLarge(f"{name} in this {record.tag}", len(getattr(value, name)), most(limits))
        listed = record.listed(value)
        encoded = packing.pack(listed)
        packing.check_taken(record.tag, listed, encoded, most_bytes, limits)
        return encoded

    def decode(self, data: bytes, limits: WireLimits, kinds: frozenset[str] | None = None) -> Any:
        """The object of bytes, or BadFrame; of other than those `kinds` nothing is built."""
        parts = fields.array(packing.unpack(data, limits), f"a {self._what}")
        tag = parts[0] if parts else None
        record = self.records.get(tag) if type(tag) is str else None
        if record is None:
            raise BadFrame(f"a {self._what} begins with its type, not with {tag!r:.40}")
        if kinds is not None and record.tag not in kinds:
            raise BadFrame(f"a {tag} {self._what} does not come from below")
        return record.read(parts, limits)


def part(what: str) -> Callable[[Kind], Kind]:
    """The decorator of a class that travels as an array inside of others."""

    def declared(kind: Kind) -> Kind:
        _PARTS[kind] = array_of(kind, what)
        return kind

    return declared


def array_of(kind: type, what: str) -> Codec:
    """The codec of a class, as an array of its fields."""
    record = record_of(kind, what)
    return Codec(what.partition(" ")[2], lambda name: record.read, record.listed)


def map_of(kind: type, what: str) -> Codec:
    """The codec of a class or a TypedDict, as a map of its fields. One that has its default is left out; others than
    these are ignored, so that a later version may add some."""
    codecs = _codecs(kind)
    if is_typeddict(kind):
        defaults: dict[str, Any] = dict.fromkeys(codecs, MISSING)
        needed: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]  # a TypedDict has them
    else:
        defaults = {one.name: one.default for one in dataclasses.fields(kind)}
        needed = frozenset(name for name, default in defaults.items() if default is MISSING)
    get: Callable[[Any, str, Any], Any] = dict.get if is_typeddict(kind) else getattr
    packers = {name: codec.pack or (lambda value: value) for name, codec in codecs.items()}
    readers = {name: codec.reader(name) for name, codec in codecs.items()}

    def pack(value: Any) -> dict[str, object]:
        found = ((name, get(value, name, MISSING), pack) for name, pack in packers.items())
        return {name: pack(one) for name, one, pack in found if one != defaults[name]}

    def read(value: Any, limits: WireLimits) -> Any:
        if type(value) is not dict:
            raise BadFrame(f"{what} must be a map")
        if missing := needed - value.keys():
            raise BadFrame(f"{what} has no {min(missing)}")
        return kind(**{name: read(value[name], limits) for name, read in readers.items() if name in value})

    return Codec(what.rpartition(" ")[2], lambda name: read, pack)


def record_of(kind: type, what: str, tag: str = "") -> Record:
    """How a class travels, whose arrays a refusal calls `what`."""
    codecs = _codecs(kind)
    first = [tag] if tag else []
    readers = tuple(codec.reader(name) for name, codec in codecs.items())
    packers = [(at, codec.pack) for at, codec in enumerate(codecs.values(), len(first)) if codec.pack is not None]
    skipped, size = len(first), len(first) + len(readers)
    names = tuple(codecs)
    values = attrgetter(*names) if len(names) > 1 else lambda value: [getattr(value, name) for name in names]
    check: Callable[[Any, WireLimits], None] | None = getattr(kind, "check", None)

    def listed(value: Any) -> list[object]:
        items = [*first, *values(value)]
        for at, pack in packers:
            items[at] = pack(items[at])
        return items

    def read(value: Any, limits: WireLimits) -> Any:
        if type(value) is not list or len(value) != size:
            raise BadFrame(f"{what} must be an array of {size}")
        found = kind(*[read(item, limits) for read, item in zip(readers, value[skipped:], strict=True)])
        if check is not None:
            check(found, limits)
        return found

    limited = tuple((name, codec.most) for name, codec in codecs.items() if codec.most is not None)
    return Record(tag, codecs, listed, read, limited)


def _codecs(kind: type) -> dict[str, Codec]:
    names = vars(sys.modules[kind.__module__])  # and not those of the class, which has fields called as codecs are
    hints = get_type_hints(kind, names, names, include_extras=True)
    order = [one.name for one in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else hints
    return {name: codec_of(hints[name]) for name in order if UNSENT not in getattr(hints[name], "__metadata__", ())}


def codec_of(hint: Any) -> Codec:
    """The codec of a field, by its type."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next(one for one in hint.__metadata__ if isinstance(one, Codec))
    if origin in (Union, types.UnionType) and type(None) in inside:
        (other,) = (one for one in inside if one is not type(None))
        return fields.optional(codec_of(other))
    if origin is Literal:
        return fields.choice(*inside)
    if found := _PLAIN.get(hint) or _PARTS.get(hint):
        return found
    if origin is tuple and inside[-1] is Ellipsis:
        return fields.items(codec_of(inside[0]))
    raise TypeError(f"a field of type {hint} needs a codec: Annotated[.., codec]")
