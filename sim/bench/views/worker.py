"""Processes of `bench views`: clients that change tables, query the view, and check it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import monotonic, perf_counter
from typing import Any

from hullcast.sim.bench.frame.worker import Batch, main
from hullcast.sim.bench.views.workload import OFFERS, SUPPLIERS, OfferChanges, first_rows
from hullcast.sim.bench.warehouse.worker import WarehouseBenchWorker
from hullcast.sim.seeds import generator

#: Time between two batches of changes.
_PERIOD_S = 0.01
#: A nap, and how much later one must wake up to be told of.
_NAP_S, _LATE_S = 0.002, 0.005


class ViewWorker(WarehouseBenchWorker):
    """One client; it does one thing for a while at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._source: OfferChanges | None = None

    async def fill_offers(self, suppliers: int, seed: int) -> dict[str, Any]:
        """Publish the rows that the tables of the four-way join begin with."""
        for table, columns in first_rows(suppliers, seed).items():
            await self._fill(table, columns)
        self._source = OfferChanges(suppliers, seed, "live")
        return {}

    # -- what goes on until `end` ----------------------------------------------------------------------------

    async def change(self, rate: float, offers_share: float) -> dict[str, Any]:
        """Change so many rows a second, after `fill_offers`."""
        return self._begin(lambda: self._change(rate, offers_share), "change")

    async def _change(self, rate: float, offers_share: float) -> dict[str, Any]:
        assert self._source is not None, "fill_offers comes first"
        source, began, owed = self._source, monotonic(), dict.fromkeys((OFFERS, SUPPLIERS), 0.0)

        def due_now() -> Iterator[Batch]:
            for table, share in ((OFFERS, offers_share), (SUPPLIERS, 1 - offers_share)):
                owed[table] += rate * share * _PERIOD_S
                count, owed[table] = int(owed[table]), owed[table] % 1
                if count:
                    yield table, source.of(table, count)

        late_s = await self._publish_paced(_PERIOD_S, due_now)
        return {"seconds": monotonic() - began, "late_s": max(late_s)}

    async def ask_view(self, view: str, rate: float, seed: str) -> dict[str, Any]:
        """Ask for all of a view at random times, so often a second, whether or not the last answer is there."""
        return self._begin(lambda: self._ask_view(view, rate, seed), "ask_view")

    async def _ask_view(self, view: str, rate: float, seed: str) -> dict[str, Any]:
        """Gives of each answer when it was asked for, how long it took, and how long the view took to be ready."""
        draw, due, asked = generator(0, "bench/views/ask", seed), monotonic(), list[tuple[float, float, float]]()

        async def ask() -> None:
            started = monotonic()
            answer = await self.client.query(f"SELECT * FROM {view}")
            assert answer.worth is not None, "each answer of a server says what it is worth"
            refresh_s = answer.worth.tables[view].refresh_s
            assert refresh_s is not None, "it is a view"
            asked.append((started, monotonic() - started, refresh_s))

        async with asyncio.TaskGroup() as tasks:
            while await self._wait(due := due + float(draw.exponential(1 / rate))):
                tasks.create_task(ask(), name="ask")
        return {"asked": asked, "answers": len(asked)}

    async def nap(self) -> dict[str, Any]:
        """Sleep for short times, and note when one became long: then the machine had no time for this process."""
        return self._begin(self._nap, "nap")

    async def _nap(self) -> dict[str, Any]:
        late: list[tuple[float, float]] = []
        while not self._stop.is_set():
            started = monotonic()
            await asyncio.sleep(_NAP_S)
            ended = monotonic()
            if ended - started > _NAP_S + _LATE_S:
                late.append((started, ended))
        return {"late": late}

    # -- what is over when it is answered ----------------------------------------------------------------------

    async def compare(self, view: str, select: str, count: int) -> dict[str, Any]:
        """Ask for a view, and for its SELECT over the tables as they are now, in turns."""
        by_view: list[float] = []
        by_select: list[float] = []
        for _ in range(count):
            for sql, times in ((f"SELECT * FROM {view}", by_view), (select, by_select)):
                started = perf_counter()
                await self.client.query(sql, freshness=1.0)
                times.append(1e3 * (perf_counter() - started))
        return {"view_ms": by_view, "select_ms": by_select}


if __name__ == "__main__":
    main(ViewWorker)
