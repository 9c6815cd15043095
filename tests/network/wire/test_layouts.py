"""Layouts: a class is declared in one place, and that is all it takes to travel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

import msgpack  # type: ignore[import-untyped]  # has no types
import pytest

from hullcast.network.wire.errors import BadFrame, TooLarge
from hullcast.network.wire.fields import identity, integer, items
from hullcast.network.wire.layouts import Tagged, codec_of, fields_said, map_of, part
from hullcast.network.wire.limits import DEFAULT, WireLimits

TOYS: Tagged[object] = Tagged("toy", lambda limits: limits.body_bytes)
ID = bytes(range(16))


@part("a wheel")
@dataclass(frozen=True)
class Wheel:
    """Part of a toy."""

    size: Annotated[int, integer("a size", 1, 9)]
    grip: float | None = None


@TOYS.declare("car")
@dataclass(frozen=True)
class Car:
    """A toy."""

    owner: Annotated[bytes, identity()]
    colour: Literal["red", "blue"]
    wheels: Annotated[tuple[Wheel, ...], items(codec_of(Wheel), most=4, many="wheels of one car")]
    names: tuple[str, ...] = ()

    def check(self, limits: WireLimits) -> None:
        """What holds between fields."""
        if len(self.names) > len(self.wheels):
            raise BadFrame("more names than wheels")


class Sticker(TypedDict, total=False):
    """A map of which anything may be missing."""

    price: float


class Unclear:
    """A class with a field whose type says too little."""

    data: bytes


def test_a_declared_class_travels_as_an_array_that_begins_with_its_type() -> None:
    car = Car(ID, "red", (Wheel(3), Wheel(9, 1)), ("left",))
    sent = TOYS.encode(car)
    assert msgpack.unpackb(sent) == ["car", ID, "red", [[3, None], [9, 1.0]], ["left"]]
    assert TOYS.decode(sent) == car


def test_the_page_gets_its_row_from_the_same_declaration() -> None:
    said = "owner: id, colour: `red` or `blue`, wheels: [wheel, ...] of at most 4, names: [text, ...]"
    assert fields_said(Car) == said
    assert fields_said(Wheel) == "size: integer from 1 to 9, grip: float from 0 or nil"


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({}, "a toy must be an array"),
        ([], "a toy begins with its type, not with None"),
        (["cart"], "not with 'cart'"),
        (["car", ID, "red", []], "a car toy must be an array of 5"),
        (["car", ID[:3], "red", [], []], "owner must be 16 bytes"),
        (["car", ID, "green", [], []], "colour must be one of red, blue"),
        (["car", ID, "red", [[0, None]], []], "a size must be a whole number from 1 to 9"),
        (["car", ID, "red", [[1, float("nan")]], []], "grip must be a float"),
        (["car", ID, "red", [[1]], []], "a wheel must be an array of 2"),
        (["car", ID, "red", [[1, None]] * 5, []], "5 wheels of one car; at most 4"),
        (["car", ID, "red", [], [1]], "names must be an array of texts"),
        (["car", ID, "red", [], ["left"]], "more names than wheels"),
    ],
)
def test_what_was_not_declared_is_refused(parts: object, reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        TOYS.decode(msgpack.packb(parts))


def test_a_sender_hears_of_a_limit_before_anything_is_sent() -> None:
    with pytest.raises(TooLarge, match="wheels in this car: 5 is more than the limit of 4"):
        TOYS.encode(Car(ID, "red", (Wheel(1),) * 5))


def test_a_map_leaves_out_what_is_missing_and_ignores_what_it_does_not_know() -> None:
    codec = map_of(Sticker, "a sticker", "sticker")
    read = codec.reader("sticker")
    assert codec.pack is not None
    assert codec.pack({"price": 2}) == {"price": 2.0}
    assert codec.pack({}) == {}
    assert read({"price": 2.0, "shape": "round"}, DEFAULT) == {"price": 2.0}


def test_a_field_whose_type_says_too_little_is_refused_when_it_is_declared() -> None:
    with pytest.raises(TypeError, match="a field of type <class 'bytes'> needs a codec"):
        TOYS.declare("unclear")(Unclear)
