"""PROTOCOL.md is true: its examples decode, its tables say what the code says."""

from __future__ import annotations

import base64
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]  # has no types
import pytest

from hullcast.broker.tables.schema import ColumnType
from hullcast.network.answers.aggregate import AVG, COUNT, EXACT_SUM, STATE, SUM
from hullcast.network.answers.kinds import KINDS
from hullcast.network.answers.result import decode_result, encode_result
from hullcast.network.link import header
from hullcast.network.wire import bodies, frames, packing
from hullcast.network.wire.limits import DEFAULT

TEXT = (Path(frames.__file__).parent / "PROTOCOL.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```hex (\w+) (\w+)(.*)\n([0-9a-f\n]+)```$", TEXT, re.MULTILINE)
FIXED = {frames._REQUEST: "request", frames._REPLY: "reply"}
#: Headers that are not msgpack, and their first bytes.
BINARY = {"data": header.DATA, "ack": header.ACK}
LAYERS: dict[str, Any] = {"header": header, "frame": frames, "body": bodies}


@pytest.mark.parametrize(("layer", "name", "note", "digits"), EXAMPLES, ids=lambda part: part.strip()[:40])
def test_an_example_decodes_and_encodes_to_the_same_bytes(layer: str, name: str, note: str, digits: str) -> None:
    data = bytes.fromhex(digits.replace("\n", ""))
    value = LAYERS[layer].decode(data)
    if name in (*BINARY, *FIXED.values()):
        assert type(value).__name__ == name.capitalize()
    else:
        assert msgpack.unpackb(data)[1 if layer == "header" else 0] == name
    assert LAYERS[layer].encode(value) == data


def test_every_header_frame_and_body_has_an_example() -> None:
    shown = {(layer, name) for layer, name, _, _ in EXAMPLES}
    assert shown == (
        {("header", name) for name in (*header._DECODERS, *BINARY)}
        | {("frame", name) for name in (*frames.FRAMES.layouts, *FIXED.values())}
        | {("body", name) for name in bodies.BODIES.layouts}
    )


def test_the_limits_are_those_of_the_code() -> None:
    said = dict(re.findall(r"^\| (\w+) \| ([\d,]+)[^|]* \| [^|]+ \|$", TEXT.split("## 3 ")[0], re.MULTILINE))
    numbers = {name: int(number.replace(",", "")) for name, number in said.items()}
    assert numbers["frame"] << 20 == DEFAULT.frame_bytes
    assert DEFAULT.body_bytes == DEFAULT.frame_bytes - (64 << 10)
    assert numbers["header"] << 10 == header.HEADER_BYTES
    assert numbers["bundle"] << 10 == header.BUNDLE_BYTES
    assert numbers["bundled"] == header.BUNDLE_FRAMES
    assert numbers["values"] == DEFAULT.objects
    assert numbers["text"] << 20 == DEFAULT.text_bytes
    assert numbers["route"] == frames.LONGEST_ROUTE
    assert numbers["gone"] == bodies.MOST_GONE
    for name in ("containers", "extensions", "nesting", "rows", "columns", "groups", "words"):
        assert numbers[name] == getattr(DEFAULT, name)
    assert len(fields(DEFAULT)) == 11


def table(begins: str) -> list[str]:
    """The first column of the table whose first row begins like this, without that row."""
    rows = TEXT.split(f"\n{begins}")[1].split("\n\n")[0].splitlines()[2:]
    return [row.split("|")[1].strip(" `") for row in rows]


def test_the_codes_of_bye_are_all_explained() -> None:
    assert table("| code | the link ends because |") == list(header.BYE_CODES)


def test_what_a_spec_holds_is_explained_field_by_field_and_value_by_value() -> None:
    assert table("| field of a spec |") == [one.name for one in fields(bodies.ChannelSpec)]
    assert table("| field of a group |") == [one.name for one in fields(bodies.Group)]
    assert sorted(table("| kind | a subscription is |")) == sorted(KINDS)
    assert sorted(table("| kind | snapshot |")) == sorted(KINDS)
    assert table("| function | the answer |") == [str(one) for one in (COUNT, SUM, EXACT_SUM, AVG)]
    assert table("| number | holds |") == list(STATE)
    assert table("| type | in an `f8` column |") == [kind.value for kind in ColumnType]


def test_the_examples_show_channels_that_there_are() -> None:
    replies = [
        bodies.decode(bytes.fromhex(digits.replace("\n", "")))
        for _, name, _, digits in EXAMPLES
        if name == "subscribed"
    ]
    specs = [spec for reply in replies if isinstance(reply, bodies.Subscribed) for spec in reply.channels.values()]
    assert specs
    assert {spec.kind for spec in specs} <= KINDS.keys()
    assert {kind for spec in specs for kind in (spec.y_type, *spec.key_types)} <= {kind.value for kind in ColumnType}


def test_the_version_is_that_of_the_code() -> None:
    said = [
        *re.findall(r"(?:The protocol, version|protocol's version,) (\d+)", TEXT),
        *re.findall(r"^\| `\[(\d+), ", TEXT, re.MULTILINE),
    ]
    assert set(said) == {str(header.VERSION)}
    assert len(said) == 2 + len(header._DECODERS)


def rows_of(first: str) -> list[list[str]]:
    """The rows of the table whose head begins with that, without quotes."""
    (found,) = re.findall(rf"^\| {first} \|.*\n\|[- |]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in found.splitlines()]


def test_the_fields_of_a_spec_are_those_of_the_code() -> None:
    defaults = {"none": MISSING, "0": 0, "false": False}
    said = {name.strip(): kind for name, kind, *_ in rows_of("field of a spec")}
    of_code = {field.name: field for field in fields(bodies.ChannelSpec)}
    assert said.keys() == of_code.keys()
    types = {"text": "str", "integer": "int", "boolean": "bool", "array of texts": "tuple[str, ...]"}
    for name, kind, default, _, used_by in rows_of("field of a spec"):
        field = of_code[name]
        assert field.type in (types[kind], "Form")
        assert field.default == defaults.get(default, "" if kind == "text" else ())
        assert used_by == "all kinds" or set(used_by.split(", ")) <= KINDS.keys()


def test_the_forms_of_kinds_are_those_of_the_code() -> None:
    kinds = {kind: form for kind, _, form in rows_of(r"kind \| a subscription is")}
    assert kinds == {name: kind.answers.form for name, kind in KINDS.items()}


def test_the_fields_of_a_trigger_are_those_of_the_code() -> None:
    assert table("| field of a trigger |") == [one.name for one in fields(bodies.Trigger)]


def test_the_example_of_a_result_is_one() -> None:
    (encoded,) = re.findall(r"^```base64 result\n(.*?)```", TEXT, re.MULTILINE | re.DOTALL)
    text = encoded.replace("\n", "")
    names, rows, worth = decode_result(text)
    assert (names, rows) == (("n",), [(2,)])
    assert worth is not None
    assert worth.seq == 41
    assert encode_result(packing.unpack(base64.b64decode(text))) == text
