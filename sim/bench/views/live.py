"""Live sections of `bench views`: promises under load, a view beside its SELECT, the push path.

Real processes on this machine: servers on disk, and clients. What is compared takes turns in one run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np

from hullcast.network.wire.errors import PromiseTooShort
from hullcast.sim.bench.frame.benchmark import Tick
from hullcast.sim.bench.frame.push import PushSection
from hullcast.sim.bench.frame.stage import PATIENCE_S, BenchStage, staged
from hullcast.sim.bench.frame.timing import MeasurementFailed, SideBySide, p50_and_p99
from hullcast.sim.bench.views.workload import CREATE_TABLES, OFFERS_EACH, SELECT, create_view
from hullcast.sim.bench.warehouse.live import LiveWarehouseSettings, push_loaded

CLIENTS = "hullcast.sim.bench.views.worker"
VIEW = "CHEAPEST"
#: Cores that server and warehouse are to use under the load; how often and from where on the rate is searched.
BUSY_CORES, CALIBRATIONS, FIRST_RATE = 0.5, 3, 1_000.0
#: Which part of the changes is of offers.
OFFERS_SHARE = 0.9
#: What is promised when the server refuses what we ask for: so much more than the shortest it can promise.
ABOVE_SHORTEST, ATTEMPTS = 1.25, 5


@dataclass(frozen=True, slots=True)
class LiveViewSettings:
    """Sizes of the live sections."""

    suppliers: int = 1_000
    response_time_s: float = 0.05
    calibrate_s: float = 3.0
    live_s: float = 150.0
    questions_s: float = 20.0
    compared: int = 100
    push: LiveWarehouseSettings = field(default_factory=lambda: LiveWarehouseSettings(rows_s=5_000.0, keys=20_000))
    push_questions_s: float = 20.0
    seed: int = 0


# -- promises ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LiveViewSection:
    """A view under load. Refreshes `within` and `beyond` the promise are as the server counts them, `late` those that
    replies say were beyond it; `reasons` are of these."""

    offers: int
    asked_promise_s: float
    promise_s: float  # what was promised: longer if the server refused
    changes_s: float
    server_cores: float
    warehouse_cores: float
    machine_cores: float
    answers: int
    within: int
    beyond: int
    late: int
    asked_share: float  # of refreshes that, as replies say, were within what was asked for, whatever is promised
    reasons: dict[str, int]
    refresh_p50_ms: float
    refresh_p99_ms: float
    refresh_max_ms: float
    reply_p50_ms: float
    reply_p99_ms: float
    propagations: int
    spent_us: float  # by the warehouse's own clock, a change
    idle: SideBySide  # `SELECT * FROM view` beside its SELECT over the tables, while nothing is pending
    busy: SideBySide  # the same under the load
    right: bool  # whether the view was its SELECT in the end

    @property
    def within_share(self) -> float:
        """As the server counts."""
        return self.within / max(1, self.within + self.beyond)

    @property
    def reply_share(self) -> float:
        """As replies say."""
        return 1 - self.late / max(1, self.answers)


async def live(settings: LiveViewSettings, tick: Tick) -> LiveViewSection:
    """A view whose tables change so fast that server and warehouse use about half a core, and is asked for."""
    async with staged(["loader", "asker", "napper"], CLIENTS) as stage:
        tick("live, filling tables")
        loader, asker = stage.workers["loader"], stage.workers["asker"]
        for create in CREATE_TABLES.values():
            await stage.control.execute(create)
        await loader.ask("fill_offers", suppliers=settings.suppliers, seed=settings.seed)
        promise_s = await _create(stage, settings.response_time_s)
        tick("live, the view beside its SELECT")
        await asker.ask("compare", view=VIEW, select=SELECT, count=3)  # so that files of tables are there
        idle = await asker.ask("compare", view=VIEW, select=SELECT, count=settings.compared)
        tick("live, searching for the rate")
        rate = await _calibrated(stage, settings)
        tick("live, promises under load")
        await loader.ask("change", rate=rate, offers_share=OFFERS_SHARE)
        await asyncio.sleep(1.0)
        before, used_before = await _facts(stage), stage.use()
        await stage.workers["napper"].ask("nap")
        await asker.ask("ask_view", view=VIEW, rate=settings.questions_s, seed=f"{settings.seed}")
        await asyncio.sleep(settings.live_s)
        asked = (await asker.ask("end"))["asked"]
        naps = (await stage.workers["napper"].ask("end"))["late"]
        used = stage.use().since(used_before)
        await asyncio.sleep(1.0)  # until the server has counted the last ones
        after = await _facts(stage)
        tick("live, the view beside its SELECT, under load")
        busy = await asker.ask("compare", view=VIEW, select=SELECT, count=settings.compared)
        await loader.ask("end")
        right = await _is_right(stage)
    if not asked:
        raise MeasurementFailed(f"nobody asked for the view in {settings.live_s:g} s")
    grown = {name: after[name] - before[name] for name in _COUNTED}
    refresh_s, reply_s = [one[2] for one in asked], [one[1] for one in asked]
    late = [one for one in asked if one[2] > promise_s]
    refresh_ms, reply_ms = p50_and_p99([1e3 * s for s in refresh_s]), p50_and_p99([1e3 * s for s in reply_s])
    return LiveViewSection(
        settings.suppliers * OFFERS_EACH,
        settings.response_time_s,
        promise_s,
        grown["changes"] / (used.seconds + 1.0),
        used.server_s / used.seconds,
        used.below_s / used.seconds,
        used.machine_s / used.seconds,
        len(asked),
        grown["within"],
        grown["beyond"],
        len(late),
        float(np.mean(np.array(refresh_s) <= settings.response_time_s)),
        reasons(late, naps, promise_s),
        *refresh_ms,
        1e3 * max(refresh_s),
        *reply_ms,
        grown["propagations"],
        1e6 * grown["spent_s"] / max(1, grown["changes"]),
        SideBySide.of(**idle),
        SideBySide.of(**busy),
        right,
    )


_COUNTED = ("within", "beyond", "changes", "propagations", "spent_s")
#: Why a refresh was late, as far as others can see.
MACHINE, BEHIND, UNKNOWN = "the machine had no time", "behind another late one", "not explained"


def reasons(late: Sequence[Sequence[float]], naps: Sequence[Sequence[float]], promise_s: float) -> dict[str, int]:
    """How many of the late refreshes have which reason. `late`: asked at, reply and refresh in seconds; `naps`: from
    and until when a process that only sleeps was not woken up."""
    found = dict.fromkeys((MACHINE, BEHIND, UNKNOWN), 0)
    until = -np.inf
    for at, _, refresh_s in sorted(late, key=lambda one: one[0]):
        end, excess = at + refresh_s, refresh_s - promise_s
        lost = sum(max(0.0, min(end, woken) - max(at, asleep)) for asleep, woken in naps)
        found[MACHINE if lost >= excess else BEHIND if at < until else UNKNOWN] += 1
        until = max(until, end)
    return found


async def _create(stage: BenchStage, wanted_s: float) -> float:
    """Create the view; what it promises, in seconds: more than asked for if the server refuses that."""
    for _ in range(ATTEMPTS):
        try:
            await stage.control.execute(create_view(VIEW, wanted_s), timeout=PATIENCE_S)
        except PromiseTooShort as refused:
            wanted_s = ceil(1e3 * max(wanted_s, refused.shortest_s * ABOVE_SHORTEST)) / 1e3
        else:
            return wanted_s
    raise MeasurementFailed(f"the server refused {ATTEMPTS} promises, the last of {wanted_s:g} s")


async def _calibrated(stage: BenchStage, settings: LiveViewSettings) -> float:
    """Changes a second at which server and warehouse use about `BUSY_CORES`, with questions."""
    loader, asker, rate = stage.workers["loader"], stage.workers["asker"], FIRST_RATE
    for number in range(CALIBRATIONS):
        await loader.ask("change", rate=rate, offers_share=OFFERS_SHARE)
        await asker.ask("ask_view", view=VIEW, rate=settings.questions_s, seed=f"calibrating {number}")
        before = stage.use()
        await asyncio.sleep(settings.calibrate_s)
        used = stage.use().since(before)
        cores = (used.server_s + used.below_s) / used.seconds
        await asker.ask("end")
        await loader.ask("end")
        rate *= min(4.0, max(0.25, BUSY_CORES / max(cores, 1e-3)))
    return rate


async def _facts(stage: BenchStage) -> dict[str, Any]:
    facts: dict[str, Any] = (await stage.control.status())["queries"]["views"][VIEW]
    return facts


async def _is_right(stage: BenchStage) -> bool:
    rows = [await stage.control.query(sql, timeout=PATIENCE_S) for sql in (f"SELECT * FROM {VIEW}", SELECT)]
    by_view, by_select = (sorted(tuple(row) for row in some) for some in rows)
    return by_view == by_select


# -- the push path -----------------------------------------------------------------------------------------

PUSH_VIEW = (
    "SELECT a.GRP, MIN(b.V) AS LOWEST, COUNT(*) AS N FROM FEED0 a JOIN FEED1 b ON a.ID = b.ID "
    "JOIN FEED2 c ON b.ID = c.ID JOIN FEED3 d ON c.ID = d.ID GROUP BY a.GRP"
)


async def push_with_views(settings: LiveViewSettings, tick: Tick) -> PushSection:
    """At a server with a view over all that is loaded, of which somebody asks; beside one without views."""

    async def create(stage: BenchStage) -> None:
        sql = f"CREATE VIEW {VIEW} AS {PUSH_VIEW} WITH (response_time = '1s')"
        await stage.control.execute(sql, timeout=PATIENCE_S)

    beside = {"what": "ask_view", "view": VIEW, "rate": settings.push_questions_s, "seed": f"{settings.seed}"}
    return await push_loaded(settings.push, tick, create, beside, CLIENTS)
