"""What PROTOCOL.md lists is what the code declares: headers, frames, bodies and their fields, types, errors.

Its examples, limits, kinds and functions are checked in tests/network/wire/test_protocol_document.py, its numbers in
tests/documents/test_numbers.py.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from hullcast.network.answers.kinds import KINDS
from hullcast.network.link import header
from hullcast.network.wire import bodies, columns, errors, frames, packing, walk
from hullcast.network.wire.layouts import fields_said
from tests.support.documents import section, text_of

PAGE = text_of("PROTOCOL.md")
#: `**name** `["name", field, ...]``, also where several stand in one paragraph.
LISTED: dict[str, str] = dict(re.findall(r'\*\*\w+\*\* `\["(\w+)"(?:, )?(.*?)\]`', PAGE, re.DOTALL))


def names_of(kind: Any) -> list[str]:
    """The fields of a dataclass or a NamedTuple."""
    return [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else list(kind._fields)


def split(fields: str) -> list[str]:
    """The items of an array: what is inside another array or a map is part of its item."""
    items, depth = [""], 0
    for sign in " ".join(fields.split()):
        depth += (sign in "[{") - (sign in "]}")
        if sign == "," and depth == 0:
            items.append("")
        else:
            items[-1] += sign
    return [item.strip() for item in items if item.strip()]


TAGGED = frames.FRAMES.layouts | bodies.BODIES.layouts
#: What travels inside of others.
PARTS = {
    "node": frames.NodeEntry,
    "install": frames.Install,
    "group": bodies.Group,
    "trigger": bodies.Trigger,
    "opened group": bodies.Opened,
    "spec": bodies.ChannelSpec,
    "worth": bodies.SentWorth,
    "table worth": bodies.SentViewWorth,
}


@pytest.mark.parametrize("name", TAGGED)
def test_a_frame_or_body_has_the_fields_that_the_page_lists(name: str) -> None:
    declared = TAGGED[name].names
    assert name in LISTED, f'PROTOCOL.md: add **{name}** `["{name}", {", ".join(declared)}]`'
    items = split(LISTED[name])
    assert len(items) == len(declared), f"PROTOCOL.md: {name} has the fields {', '.join(declared)}"
    for item, field in zip(items, declared, strict=True):  # an array or a map is described by what is in it
        assert item == field or item[0] in "[{" or item == "map", (
            f"PROTOCOL.md: {name} has the field `{field}` where the page says `{item}`"
        )


def test_the_table_of_fields_is_that_of_the_code() -> None:
    kinds = {name: layout.kind for name, layout in TAGGED.items()} | PARTS
    rows = [f"| {name} | {fields_said(kind) or 'none'} |" for name, kind in kinds.items()]
    right = "\n".join(["| type | fields |", "| --- | --- |", *rows])
    assert right in section("PROTOCOL.md", "### 6.3 "), f"PROTOCOL.md, section 6.3: write\n{right}"


@pytest.mark.parametrize("kind", [frames.Request, frames.Reply])
def test_the_fields_of_a_fixed_header_are_in_its_table(kind: Any) -> None:
    table = PAGE.split(f"| bytes of a {kind.__name__.lower()} |")[1].split("\n\n")[0]
    assert set(names_of(kind)) <= set(re.findall(r"`(\w+)`", table))


def test_the_page_lists_nothing_else() -> None:
    assert LISTED.keys() == TAGGED.keys()


def test_frames_stand_under_their_direction() -> None:
    up = set(re.findall(r"^\*\*(\w+)\*\*(?:: a request| `\[)", section("PROTOCOL.md", "### 5.1 Up"), re.MULTILINE))
    assert up == frames.UPWARD, f"PROTOCOL.md, 5.1 Up: a child sends {', '.join(sorted(frames.UPWARD))}"


@pytest.mark.parametrize(
    ("what", "declared"),
    [
        ("A group is", names_of(bodies.Group)),
        (
            "An opened group is",
            [name for name in names_of(bodies.Opened) if name != "points"],
        ),  # these come as installs
        ("An install is", names_of(frames.Install)),
        ("nodes are", names_of(frames.NodeEntry)),
    ],
)
def test_a_part_of_a_frame_has_the_fields_that_the_page_lists(what: str, declared: list[str]) -> None:
    found = re.search(rf"{what.replace(' ', chr(92) + 's+')}\s+`\[(.*?)\]`", PAGE, re.DOTALL)
    right = f"{what} `[{', '.join(declared)}]`"
    assert found is not None, f"PROTOCOL.md: write {right}"
    assert split(found[1]) == declared, f"PROTOCOL.md: write {right}"


@pytest.mark.parametrize("kind", KINDS)
def test_the_form_of_a_kind_is_that_of_the_code(kind: str) -> None:
    row = re.search(rf"^\| `{kind}` \| SELECT .*\| `(\w+)` \|$", PAGE, re.MULTILINE)
    form = KINDS[kind].answers.form
    assert row is not None, f"PROTOCOL.md, 7.1: say of {kind} what a subscription is, and its form, `{form}`"
    assert row[1] == form, f"PROTOCOL.md, 7.1: the form of {kind} is `{form}`"


@pytest.mark.parametrize("name", header._DECODERS)
def test_a_header_has_the_fields_that_the_page_lists(name: str) -> None:
    declared = names_of(getattr(header, name.capitalize()))
    row = re.search(rf'^\| `\[(\d+), "{name}", (.*?)\]`', PAGE, re.MULTILINE)
    assert row is not None, f"PROTOCOL.md, section 3: add a row for {name}"
    assert int(row[1]) == header.VERSION, f"PROTOCOL.md, section 3: the version is {header.VERSION}"
    if row[2] == "{...}":
        about = re.search(rf"^\*\*{name}\*\*: (.*?)\n\n", PAGE, re.DOTALL | re.MULTILINE)
        assert about is not None
        outside = re.sub(r"\([^()]*\)", "", about[1])
        assert re.findall(r"`(\w+)`", outside) == declared, f"PROTOCOL.md, section 3: {name} has {', '.join(declared)}"
    else:
        assert split(row[2]) == declared, f"PROTOCOL.md, section 3: {name} has {', '.join(declared)}"


@pytest.mark.parametrize(("name", "first"), [("data", header.DATA), ("ack", header.ACK)])
def test_a_binary_header_has_the_fields_that_the_page_lists(name: str, first: bytes) -> None:
    row = re.search(rf"^\| {name} \| (\d+) \| (.*)\|$", PAGE, re.MULTILINE)
    assert row is not None, f"PROTOCOL.md, section 3: add a row for {name}"
    assert bytes([int(row[1])]) == first
    assert re.findall(r"`(\w+)`", row[2]) == names_of(getattr(header, name.capitalize()))
    sizes = [int(size) for size in re.findall(r"(\d+) bytes(?! each)", row[2])]
    assert 1 + sum(sizes) == len(header.encode(getattr(header, name.capitalize())(1, 0)))


def test_the_version_is_that_of_the_code() -> None:
    title = re.match(r"# The protocol, version (\d+)\n", PAGE)
    first = re.search(r"whose first item is the protocol's version, (\d+)\.", PAGE)
    assert title is not None
    assert first is not None
    assert int(title[1]) == int(first[1]) == header.VERSION, f"PROTOCOL.md: the version is {header.VERSION}"


def test_the_types_of_columns_and_extensions_are_those_of_the_code() -> None:
    table = section("PROTOCOL.md", "## 4 Columns")
    assert set(re.findall(r'"([a-z]\d)"', table)) == {*columns._KINDS, "b1", "t4"}
    listed = {int(number) for number in re.findall(r"^\| (\d) \|", table, re.MULTILINE)}
    assert listed == {packing.INSTANT, packing.BIG, walk.FOREIGN, packing.TICKS, packing.DURATION}
    units = re.search(r"the unit \(`([^`]*)`\)", table)
    assert units is not None
    assert tuple(units[1].split()) == packing.UNITS


#: How the page calls the types of an error's fields.
WORDS = {"str": "text", "int": "integer", "float": "float", "tuple[str, ...]": "texts", "object": "scalar"}


def row_of(code: str) -> str:
    """The row of an error in section 8: its fields by its signature, its meaning by its docstring."""
    kind = errors._CLASSES[code]
    named = getattr(kind, "__dataclass_fields__", ["what"])
    fields = [
        f"[{name}: {WORDS[annotation]}]" if optional else f"{name}: {WORDS[annotation]}"
        for name, (annotation, optional) in zip(named, errors._FIELDS[code], strict=True)
    ]
    meaning = " ".join((kind.__doc__ or "").split("\n\n")[0].split()).removesuffix(".")
    return f"| {code} | {', '.join(fields)} | {meaning} |"


def test_the_table_of_errors_is_that_of_the_code() -> None:
    right = "\n".join(["| code | arguments | meaning |", "| --- | --- | --- |", *map(row_of, errors._CLASSES)])
    assert f"{right}\n\n" in section("PROTOCOL.md", "## 8 "), f"PROTOCOL.md, section 8: write\n{right}"
