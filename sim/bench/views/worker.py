"""Processes of `bench views`: clients that change tables, query the view, and check it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import monotonic

from hullcast.sim.bench.frame.worker import Batch, Told, goes_on, main
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

    async def fill_offers(self, suppliers: int, seed: int) -> None:
        """Publish the rows that the tables of the four-way join begin with."""
        for table, columns in first_rows(suppliers, seed).items():
            await self._fill(table, columns)
        self._source = OfferChanges(suppliers, seed, "live")

    # -- what goes on until `end` ----------------------------------------------------------------------------

    @goes_on
    async def change(self, rate: float, offers_share: float) -> Told:
        """Change so many rows a second, after `fill_offers`."""
        assert self._source is not None, "fill_offers comes first"
        source, owed = self._source, dict.fromkeys((OFFERS, SUPPLIERS), 0.0)

        def due_now() -> Iterator[Batch]:
            for table, share in ((OFFERS, offers_share), (SUPPLIERS, 1 - offers_share)):
                owed[table] += rate * share * _PERIOD_S
                count, owed[table] = int(owed[table]), owed[table] % 1
                if count:
                    yield table, source.of(table, count)

        await self._publish_paced(_PERIOD_S, due_now)
        return {}

    @goes_on
    async def ask_view(self, view: str, rate: float, seed: str) -> Told:
        """Ask for all of a view at random times, so often a second, whether or not the last answer is there. Gives of
        each answer when it was asked for, how long it took, and how long the view took to be ready."""
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

    @goes_on
    async def nap(self) -> Told:
        """Sleep for short times, and note when one became long: then the machine had no time for this process."""
        late: list[tuple[float, float]] = []
        while not self._stop.is_set():
            started = monotonic()
            await asyncio.sleep(_NAP_S)
            ended = monotonic()
            if ended - started > _NAP_S + _LATE_S:
                late.append((started, ended))
        return {"late": late}

    # -- what is over when it is answered ----------------------------------------------------------------------

    async def compare(self, view: str, select: str, count: int) -> Told:
        """Ask for a view, and for its SELECT over the tables as they are now, in turns."""
        sqls = (f"SELECT * FROM {view}", select)
        return await self._compare(tuple(self.client.query(sql, freshness=1.0) for sql in sqls) for _ in range(count))


if __name__ == "__main__":
    main(ViewWorker)
