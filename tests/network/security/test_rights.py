"""Rights: who may do what with which tables, and what an allow list may not contain."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.tables.schema import fold as fold_of_schema
from hullcast.network.security.rights import Action, Rights, fold, is_public_key
from hullcast.network.wire.errors import BadSetting, NotPermitted

TICKER = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
READER = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
STRANGER = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"
ACTIONS: tuple[Action, ...] = get_args(Action)

LIST = f"""
[[key]]
name = "ticker"
public = "{TICKER}"
publish = ["STOCK"]
node = true

[[key]]
name = "reader"
public = "{READER}"
subscribe = ["*"]
query = ["stock", "Größe"]
admin = true
"""


def listed(text: str = LIST) -> Rights:
    return Rights.parse(tomllib.loads(text))


def test_without_a_list_everybody_may_do_everything() -> None:
    rights = Rights.load(None)
    for key in (None, STRANGER):
        assert rights.knows(key)
        somebody = rights.who(key, "me")
        assert (somebody.name, somebody.node, somebody.admin) == ("me", True, True)
        for action in ACTIONS:
            rights.check(somebody, action, ["STOCK", "anything"])
    assert rights.who(None).name == "anybody"


def test_a_key_may_do_what_its_entry_says_and_nothing_else() -> None:
    rights = listed()
    ticker = rights.who(TICKER, "I call myself admin")
    assert (ticker.name, ticker.node, ticker.admin) == ("ticker", True, False)
    rights.check(ticker, "publish", ["STOCK"])
    rights.check(ticker, "node")
    for action, tables in (
        ("publish", ["STOCK", "NEWS"]),
        ("subscribe", ["STOCK"]),
        ("query", ["STOCK"]),
        ("admin", []),
    ):
        with pytest.raises(NotPermitted) as refused:
            rights.check(ticker, action, tables)  # type: ignore[arg-type]  # a literal, lost in the tuple
        assert (refused.value.who, refused.value.action) == ("ticker", action)
        assert refused.value.table == (tables[-1] if tables else "")


def test_a_star_is_every_table_and_names_compare_as_in_sql() -> None:
    rights = listed()
    reader = rights.who(READER)
    rights.check(reader, "subscribe", ["STOCK", "whatever"])
    rights.check(reader, "query", ["STOCK", "Stock", "gRößE"])
    assert not reader.may("query", "GRÖSSE")
    assert not reader.may("query", "GRÖßE")  # only A to Z have two cases


@pytest.mark.parametrize("key", [None, "", STRANGER, TICKER.swapcase()])
def test_a_stranger_may_do_nothing_not_even_with_no_table(key: str | None) -> None:
    rights = listed()
    assert not rights.knows(key)
    somebody = rights.who(key, "ticker")
    assert (somebody.known, somebody.node, somebody.admin) == (False, False, False)
    for action in ACTIONS:
        for tables in ((), ("STOCK",)):
            with pytest.raises(NotPermitted):
                rights.check(somebody, action, tables)


def test_an_empty_list_lets_nobody_in() -> None:
    rights = listed("")
    assert not rights.knows(TICKER)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (LIST + "pubish = []\n", "key 2, pubish = []: there is no such field; did you mean publish?"),
        (LIST + "zzz = 1\n", "there is no such field; there are public, name, publish"),
        ("[[keys]]\n", "there is no such field; did you mean key?"),
        ("[key]\n", "headed [[key]]"),
        ("key = [1]\n", "headed [[key]]"),
        ("[[key]]\nname = 'x'\n", "public = None: must be the 40 characters"),
        ("[[key]]\nname = 'x'\npublic = 'short'\n", "public = 'short': must be the 40 characters"),
        (f"[[key]]\npublic = '{TICKER}'\n", "name = None: must be a name"),
        (f"[[key]]\npublic = '{TICKER}'\nname = ' '\n", "must be a name"),
        (f"[[key]]\npublic = '{TICKER}'\nname = 'x'\nadmin = 'yes'\n", "admin = 'yes': must be true or false"),
        (f"[[key]]\npublic = '{TICKER}'\nname = 'x'\npublish = 'STOCK'\n", "must be a list of tables"),
        (f"[[key]]\npublic = '{TICKER}'\nname = 'x'\npublish = [1]\n", "must be a list of tables"),
        (f"[[key]]\npublic = '{TICKER}'\nname = 'x'\npublish = ['']\n", "must be a list of tables"),
        (f"[[key]]\npublic = '{TICKER}'\nname = 'x'\npublish = ['S*']\n", "a `*` stands alone"),
        (LIST + LIST, "key 3 = 'rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7': this key is listed twice"),
    ],
)
def test_a_mistake_in_the_list_is_refused_with_its_place(text: str, what: str) -> None:
    with pytest.raises(BadSetting) as refused:
        listed(text)
    assert what in str(refused.value)


def test_a_list_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "allow.toml"
    with pytest.raises(BadSetting, match=r"allow\.toml.*No such file"):
        Rights.load(path)
    path.write_text(LIST, "utf-8")
    assert Rights.load(path) == listed()
    path.write_text("[[key", "utf-8")
    with pytest.raises(BadSetting, match=r"allow\.toml.*not TOML"):
        Rights.load(path)


@given(st.text())
def test_names_of_tables_fold_as_they_do_in_the_schema(name: str) -> None:
    assert fold(name) == fold_of_schema(name)


@pytest.mark.parametrize(
    "text", ["", TICKER[:-1], TICKER + "a", TICKER[:-1] + "ä", TICKER[:-1] + '"', TICKER[:-1] + "\\"]
)
def test_a_key_is_40_characters_of_z85(text: str) -> None:
    assert is_public_key(TICKER)
    assert not is_public_key(text)
