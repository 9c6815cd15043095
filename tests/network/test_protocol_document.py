"""PROTOCOL.md is true: its examples decode, its tables say what the code says."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]  # has no types
import pytest

from hullcast.broker.reformulate.channel import RECTANGULAR
from hullcast.broker.sql.query import Kind
from hullcast.broker.tables.schema import ColumnType
from hullcast.network.answers.aggregate import AVG, COUNT, EXACT_SUM, STATE, SUM
from hullcast.network.link import header
from hullcast.network.wire import bodies, errors, frames
from hullcast.network.wire.limits import DEFAULT

TEXT = (Path(frames.__file__).parent / "PROTOCOL.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```hex (\w+) (\w+)(.*)\n([0-9a-f\n]+)```$", TEXT, re.MULTILINE)
LAYERS: dict[str, Any] = {"header": header, "frame": frames, "body": bodies}


@pytest.mark.parametrize(("layer", "name", "note", "digits"), EXAMPLES, ids=lambda part: part.strip()[:40])
def test_an_example_decodes_and_encodes_to_the_same_bytes(layer: str, name: str, note: str, digits: str) -> None:
    data = bytes.fromhex(digits.replace("\n", ""))
    value = LAYERS[layer].decode(data)
    assert msgpack.unpackb(data)[1 if layer == "header" else 0] == name
    assert LAYERS[layer].encode(value) == data


def test_every_header_frame_and_body_has_an_example() -> None:
    shown = {(layer, name) for layer, name, _, _ in EXAMPLES}
    assert shown == (
        {("header", name) for name in header._DECODERS}
        | {("frame", name) for name in frames._READERS}
        | {("body", name) for name in bodies._READERS}
    )


def test_every_error_code_is_listed_with_its_arguments() -> None:
    listed = dict(re.findall(r"^\| (\w+) \| ([^|]*) \| [^|]+ \|$", TEXT.split("## 8 ")[1], re.MULTILINE))
    del listed["code"]
    assert listed.keys() == errors._FIELDS.keys()
    for code, arguments in listed.items():
        optional = [argument.startswith("[") for argument in arguments.split(", ")]
        assert optional == [may_be_left_out for _, may_be_left_out in errors._FIELDS[code]], code


def test_the_limits_are_those_of_the_code() -> None:
    said = dict(re.findall(r"^\| (\w+) \| ([\d,]+)[^|]* \| [^|]+ \|$", TEXT.split("## 3 ")[0], re.MULTILINE))
    numbers = {name: int(number.replace(",", "")) for name, number in said.items()}
    assert numbers["frame"] << 20 == DEFAULT.frame_bytes
    assert DEFAULT.body_bytes == DEFAULT.frame_bytes - (64 << 10)
    assert numbers["header"] << 10 == header.HEADER_BYTES
    assert numbers["values"] == DEFAULT.objects
    assert numbers["text"] << 20 == DEFAULT.text_bytes
    assert numbers["route"] == frames.LONGEST_ROUTE
    for name in ("containers", "extensions", "nesting", "rows", "columns", "groups", "words"):
        assert numbers[name] == getattr(DEFAULT, name)
    assert len(fields(DEFAULT)) == 11


def test_the_codes_of_bye_are_all_explained() -> None:
    explained = re.search(r"\*\*bye\*\* codes:(.*?)\n\n", TEXT, re.DOTALL)
    assert explained is not None
    assert set(re.findall(r"`(\w+)`", explained[1])) == set(header.BYE_CODES)


def test_the_version_is_that_of_the_code() -> None:
    said = [
        *re.findall(r"(?:The protocol, version|protocol's version,) (\d+)", TEXT),
        *re.findall(r"^\| `\[(\d+), ", TEXT, re.MULTILINE),
    ]
    assert set(said) == {str(header.VERSION)}
    assert len(said) == 2 + len(header._DECODERS)


def rows_of(first: str) -> list[list[str]]:
    """The rows of the table whose head begins with that, without quotes."""
    (table,) = re.findall(rf"^\| {first} \|.*\n\|[- |]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


def test_the_fields_of_a_spec_are_those_of_the_code() -> None:
    defaults = {"none": MISSING, "0": 0, "false": False}
    said = {name.strip(): kind for name, kind, *_ in rows_of("field")}
    of_code = {field.name: field for field in fields(bodies.ChannelSpec)}
    assert said.keys() == of_code.keys() == bodies._SPEC_READERS.keys()
    types = {"text": "str", "integer": "int", "boolean": "bool", "array of texts": "tuple[str, ...]"}
    for name, kind, default, _, used_by in rows_of("field"):
        field = of_code[name]
        assert field.type in (types[kind], "Form")
        assert field.default == defaults.get(default, "" if kind == "text" else ())
        assert used_by == "all kinds" or set(used_by.split(", ")) <= {kind.value for kind in Kind}


def test_the_kinds_and_functions_are_those_of_the_code() -> None:
    kinds = {kind: form for kind, _, form in rows_of("kind")}
    assert kinds == {kind.value: "rectangles" if kind in RECTANGULAR else "places" for kind in Kind}
    functions = {int(number): name for number, name, _ in rows_of("function")}
    assert functions == {
        COUNT: "COUNT", SUM: "SUM of a REAL column", EXACT_SUM: "SUM of an INTEGER column", AVG: "AVG",
    }  # fmt: skip
    assert [name for name, _ in rows_of("number")] == list(STATE)
    types = re.search(r"^A type is (.*?)\. The kinds:", TEXT, re.MULTILINE)
    assert types is not None
    assert set(re.findall(r"`(\w+)`", types[1])) == {kind.value for kind in ColumnType}
