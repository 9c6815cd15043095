"""Layouts: classes that travel, each declared once. Fields in their order, by their types; see `fields.py`.

    @BODIES.declare("staged")
    @dataclass(frozen=True, slots=True)
    class Staged:
        ticket: Annotated[bytes, identity("a ticket")]
        parts: Annotated[int, integer(least=1, most=4096)]

is enough to encode and to decode it as `["staged", ticket, parts]`, and for its row in PROTOCOL.md. What holds between
fields is said by a method `check(self, limits)`, which raises BadFrame. Codecs are found when a class is declared.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from hullcast.network.wire import fields, packing
from hullcast.network.wire.errors import BadFrame, TooLarge
from hullcast.network.wire.fields import Codec, Read
from hullcast.network.wire.limits import DEFAULT, WireLimits

Kind = TypeVar("Kind", bound=type)
Value = TypeVar("Value")

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
class WireLayout:
    """How a class travels. `listed` gives the array, and `read` the checked object of one."""

    kind: type
    tag: str
    names: tuple[str, ...]
    listed: Callable[[Any], list[object]]
    read: Read
    limited: tuple[tuple[str, Callable[[WireLimits], int]], ...]


class Tagged(Generic[Value]):
    """Classes that travel as arrays which begin with their type: all frames, or all bodies. `most_bytes` of limits."""

    def __init__(self, what: str, most_bytes: Callable[[WireLimits], int]) -> None:
        self._what, self._most_bytes = what, most_bytes
        self.layouts: dict[str, WireLayout] = {}
        self._by_class: dict[type, WireLayout] = {}

    def declare(self, tag: str) -> Callable[[Kind], Kind]:
        """The decorator of a class that travels under that name."""

        def declared(kind: Kind) -> Kind:
            self.layouts[tag] = self._by_class[kind] = layout_of(kind, f"a {tag} {self._what}", tag)
            return kind

        return declared

    def encode(self, value: Value, limits: WireLimits = DEFAULT) -> bytes:
        """The bytes of an object; TooLarge if no receiver would take them."""
        layout = self._by_class[type(value)]
        for name, most in layout.limited:
            if len(getattr(value, name)) > most(limits):
                raise TooLarge(f"{name} in this {layout.tag}", len(getattr(value, name)), most(limits))
        listed = layout.listed(value)
        encoded = packing.pack(listed)
        packing.check_taken(layout.tag, listed, encoded, self._most_bytes(limits), limits)
        return encoded

    def decode(self, data: bytes, limits: WireLimits = DEFAULT, kinds: frozenset[str] | None = None) -> Value:
        """The object of bytes, or BadFrame; never anything else, whatever the bytes. Of other than those `kinds`
        nothing is built."""
        if len(data) > self._most_bytes(limits):
            raise BadFrame(f"a {self._what} of {len(data)} bytes; at most {self._most_bytes(limits)}")
        parts = packing.unpack(data, limits)
        if type(parts) is not list:
            raise BadFrame(f"a {self._what} must be an array")
        tag = parts[0] if parts else None
        layout = self.layouts.get(tag) if type(tag) is str else None
        if layout is None:
            raise BadFrame(f"a {self._what} begins with its type, not with {tag!r:.40}")
        if kinds is not None and tag not in kinds:
            raise BadFrame(f"a {tag} {self._what} does not come from below")
        found: Value = layout.read(parts, limits)
        return found


def part(what: str) -> Callable[[Kind], Kind]:
    """The decorator of a class that travels as an array inside of others."""

    def declared(kind: Kind) -> Kind:
        _PARTS[kind] = array_of(kind, what)
        return kind

    return declared


def array_of(kind: type, what: str) -> Codec:
    """The codec of a class, as an array of its fields."""
    layout = layout_of(kind, what)
    return Codec(what.partition(" ")[2], lambda name: layout.read, layout.listed)


def map_of(kind: type, what: str, said: str) -> Codec:
    """The codec of a class or a TypedDict, as a map of its fields. A field that has its default is left out. A receiver
    ignores others than these, so that a later version may add some."""
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

    return Codec(said, lambda name: read, pack)


def layout_of(kind: type, what: str, tag: str = "") -> WireLayout:
    """How a class travels, whose arrays a refusal calls `what`. Both functions are written out, as those of dataclasses
    are: changes pass here one by one."""
    codecs = _codecs(kind)
    known: dict[str, Any] = {"kind": kind, "check": getattr(kind, "check", None), "BadFrame": BadFrame}
    known |= {f"read_{name}": codec.reader(name) for name, codec in codecs.items()}
    known |= {f"pack_{name}": codec.pack for name, codec in codecs.items()}
    size = len(codecs) + bool(tag)
    given = [f"pack_{name}(value.{name})" if codec.pack else f"value.{name}" for name, codec in codecs.items()]
    taken = [f"read_{name}(value[{at}], limits)" for at, name in enumerate(codecs, bool(tag))]
    refusal = f"{what} must be an array of {size}"
    source = f"""
def listed(value):
    return [{", ".join([repr(tag)] * bool(tag) + given)}]

def read(value, limits):
    if type(value) is not list or len(value) != {size}:
        raise BadFrame({refusal!r})
    found = kind({", ".join(taken)})
    {"check(found, limits)" if hasattr(kind, "check") else ""}
    return found
"""
    exec(source, known)
    limited = tuple((name, codec.most) for name, codec in codecs.items() if codec.most is not None)
    return WireLayout(kind, tag, tuple(codecs), known["listed"], known["read"], limited)


def fields_said(kind: type) -> str:
    """The fields of a class as PROTOCOL.md lists them."""
    return ", ".join(f"{name}: {codec.said}" for name, codec in _codecs(kind).items())


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
