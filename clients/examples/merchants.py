"""A marketplace: thousands of merchants subscribe to pairs of offer and request that suit them.

Suppliers list what they have, customers what they need. A merchant brings the two together, and each deals in
quantities of its own: wholesalers in large ones, retailers in small ones. MERCHANTS.md says more.

    python -m hullcast.clients.examples.merchants [--url URL] [--seconds S] [--merchants N]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections import Counter
from contextlib import nullcontext
from typing import Any

import hullcast

TABLES = (
    "CREATE TABLE IF NOT EXISTS SUPPLY (OFFER TEXT PRIMARY KEY, PRODUCT TEXT, QUANTITY INTEGER)",
    "CREATE TABLE IF NOT EXISTS DEMAND (REQUEST TEXT PRIMARY KEY, PRODUCT TEXT, QUANTITY INTEGER)",
)
MATCHES = (
    "SELECT s.OFFER, d.REQUEST, s.QUANTITY AS SUPPLIED, d.QUANTITY AS DEMANDED "
    "FROM SUPPLY s JOIN DEMAND d ON s.PRODUCT = d.PRODUCT "
    "WHERE s.QUANTITY BETWEEN ? AND ? AND d.QUANTITY BETWEEN ? AND ?"
)
PRODUCTS = (
    "barley coffee copper corn cotton honey iron oats oil paper rice salt silk sugar tea tin wheat wine wood wool"
)
LISTED = 150  # offers, and as many requests
CHECKED = 20  # merchants whose matches are compared with SQL at the end


class Merchant:
    """A subscriber: which quantities it deals in, and the matches it knows of."""

    def __init__(self, number: int) -> None:
        kind, least = ("wholesaler", 1000) if number % 10 == 0 else ("retailer", 10)
        supply, demand = (round(least * random.uniform(1, 8)) for _ in range(2))
        self.name = f"{kind} {number}"
        self.ranges = supply, supply * 2, demand, demand * 2  # what the four `?` are bound to
        self.matches: dict[tuple[str, str], Any] = {}  # rows, by offer and request

    def begin(self, answer: list[Any]) -> None:
        """Know these matches and no others."""
        self.matches = {(row.OFFER, row.REQUEST): row for row in answer}

    def hear(self, event: hullcast.Event) -> list[tuple[str, Any]]:
        """Act on an event; what happened to which matches. Here a merchant only remembers them; yours would act."""
        if isinstance(event, hullcast.Resync):  # events were lost, for example while we were not connected
            self.begin(event.answer)
            return [("resync", row) for row in event.answer]
        assert isinstance(event, hullcast.Change)
        for row in event.left:  # an offer or request is gone, or no longer of our size: cancel
            del self.matches[row.OFFER, row.REQUEST]
        for row in event.entered:  # a new match: call both sides
            self.matches[row.OFFER, row.REQUEST] = row
        for _, row in event.changed:  # it still suits us, with another quantity: quote again
            self.matches[row.OFFER, row.REQUEST] = row
        news = [("made", row) for row in event.entered] + [("changed", row) for _, row in event.changed]
        return news + [("gone", row) for row in event.left]


class Marketplace:
    """The suppliers and customers: they publish, and need not know who subscribes."""

    def __init__(self, hc: hullcast.Client) -> None:
        self.hc = hc
        self.listed: dict[str, list[dict[str, Any]]] = {"SUPPLY": [], "DEMAND": []}

    async def open(self) -> None:
        """Create the tables, and list the first offers and requests."""
        for create in TABLES:
            await self.hc.execute(create)
        for table, listed in self.listed.items():
            listed += [self.listing(table) for _ in range(LISTED)]
            await self.hc.publish(table, listed)

    async def trade(self) -> int:
        """Two quantities change, something new is listed, and the oldest goes; returns the number of changes."""
        table, listed = random.choice(list(self.listed.items()))
        oldest, rows = listed.pop(0), random.sample(listed, 2)
        for row in rows:
            row["QUANTITY"] = max(1, round(row["QUANTITY"] * random.uniform(0.8, 1.25)))
        listed.append(self.listing(table))
        await self.hc.publish(table, [*rows, listed[-1]])  # on the server's disk when it returns
        await self.hc.delete(table, oldest["OFFER" if table == "SUPPLY" else "REQUEST"])
        return 4

    def listing(self, table: str) -> dict[str, Any]:
        """Something new that a supplier has or a customer needs."""
        product, who = random.choice(PRODUCTS.split()), random.randrange(1_000_000)
        key = {"OFFER": f"{product} from S{who}"} if table == "SUPPLY" else {"REQUEST": f"{product} for C{who}"}
        return {**key, "PRODUCT": product, "QUANTITY": round(10 ** random.uniform(1, 4))}


async def run(url: str | None, seconds: float, count: int) -> bool:
    """Subscribe the merchants, and trade for a while; returns whether SQL agrees with what they heard."""
    timeout = 10 if url else 120  # seconds; a server in this process may have to compile itself first, once
    async with (
        nullcontext(url) if url else hullcast.testing.cluster(nodes=2) as endpoint,  # in this process
        hullcast.connect(endpoint, name="market", timeout=timeout) as publisher,
        hullcast.connect(endpoint, name="merchants", timeout=timeout) as hc,  # one connection for all merchants
    ):
        market, merchants = Marketplace(publisher), [Merchant(number) for number in range(count)]
        await market.open()
        columns = zip(*(merchant.ranges for merchant in merchants), strict=True)  # a column of values for each `?`
        many = await hc.subscribe_many(MATCHES, *columns, overflow="block")  # every event, not only the newest answer
        for merchant, answer in zip(merchants, many.answers, strict=True):
            merchant.begin(answer)
        print(f"{count:,} merchants begin with {sum(map(len, many.answers)):,} matches", flush=True)

        begun = shown = time.monotonic()
        changes, heard = 0, Counter[str]()
        while time.monotonic() < begun + seconds:
            changes += await market.trade()
            await hc.sync()  # now this client has heard of all changes so far
            changed = await many.next_changes(timeout=0)  # which merchants have events; None if nobody has
            for i in [] if changed is None else changed.which.tolist():
                while (event := many[i].take_nowait()) is not None:
                    news = merchants[i].hear(event)
                    heard.update(what for what, _ in news)
                    if news and time.monotonic() > shown + 0.3:  # three lines a second are enough to read
                        shown, (what, row) = time.monotonic(), news[0]
                        text = f"{row.SUPPLIED:,} {row.OFFER}, {row.DEMANDED:,} {row.REQUEST}"
                        print(f"{shown - begun:4.1f} s  {merchants[i].name:15} {what:8} {text}", flush=True)
            await asyncio.sleep(0.1)

        sums = ", ".join(f"{heard[what]:,} {what}" for what in ("made", "changed", "gone"))
        print(f"{changes:,} changes; matches: {sums}")
        some = merchants[:: max(1, count // CHECKED)]
        right = [sorted(await hc.query(MATCHES, *one.ranges)) == sorted(one.matches.values()) for one in some]
        print(f"checked against SQL: the matches of {sum(right)} of {len(some)} merchants are right")
        return all(right)


def main() -> int:
    """The exit code: 0 if SQL agrees, 1 if not, 2 if the server cannot be reached or refuses, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="merchants", description="A marketplace with thousands of subscribers.")
    parser.add_argument("--url", default=os.environ.get("HULLCAST_URL"), help="server or node (default: its own)")
    parser.add_argument("--seconds", type=float, default=10, metavar="S", help="end after S seconds (default 10)")
    parser.add_argument("--merchants", type=int, default=2000, metavar="N", help="how many (default 2000)")
    arguments = parser.parse_args()
    try:
        return 0 if asyncio.run(run(arguments.url, arguments.seconds, arguments.merchants)) else 1
    except hullcast.HullcastError as error:
        print(f"merchants: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
