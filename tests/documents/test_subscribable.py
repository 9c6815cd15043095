"""A server takes every subscription that README.md and SQL.md show."""

from __future__ import annotations

import re

import hullcast
from tests.support.documents import text_of

CREATED = (
    "CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, SECTOR TEXT, RISK REAL, PER REAL)",
    "CREATE TABLE SUPPLY (ID INTEGER PRIMARY KEY, PRODUCT TEXT, QUANTITY REAL)",
    "CREATE TABLE DEMAND (ID INTEGER PRIMARY KEY, PRODUCT TEXT, QUANTITY REAL)",
    "CREATE TABLE T (K INTEGER PRIMARY KEY, X REAL, Y REAL, Z REAL, A REAL, B REAL, C TEXT)",
    "CREATE TABLE R (K INTEGER PRIMARY KEY, A REAL, B REAL)",
    "CREATE TABLE S (K INTEGER PRIMARY KEY, B REAL, C REAL)",
    "CREATE STREAM TRADES (TS TIMESTAMP, SYMBOL TEXT, PRICE REAL)",
    "CREATE STREAM QUOTES (TS TIMESTAMP, SYMBOL TEXT, BID REAL)",
)


async def test_what_the_pages_show_can_be_subscribed_to() -> None:
    shown = [
        sql
        for page in ("README.md", "SQL.md")
        for sql in re.findall(r"^\| `(SELECT [^`]* FROM [^`]*)`", text_of(page), re.MULTILINE)
    ]
    assert len(shown) > 14
    async with hullcast.testing.cluster() as endpoint, hullcast.connect(endpoint) as hc:
        for statement in CREATED:
            await hc.execute(statement)
        for sql in shown:
            await hc.explain(sql, *("IBM" if "SYMBOL = ?" in sql else 1 for _ in range(sql.count("?"))))
