"""PROTOCOL.md is true: its examples decode, its tables say what the code says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

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
    assert type(value).__name__.lower() == name
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
