"""The traces that experiments replay: each made once in a run, as a step of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.data import NetworkFile, Prices
from hullcast.sim.experiments.steps import file_mark
from hullcast.sim.experiments.traffic.replays import Replays
from hullcast.sim.experiments.traffic.settings import FigureSettings, NetworkSettings
from hullcast.sim.overlay.placement import choose_brokers
from hullcast.sim.spark.storage import Place
from hullcast.sim.topology.files import read_topology
from hullcast.sim.traces.fundamentals import RECO_CELL, read_fundamentals
from hullcast.sim.traces.market import market, market_columns
from hullcast.sim.traces.synthetic import table51_trace
from hullcast.sim.traces.table51 import Mix
from hullcast.sim.traces.trace import read_info, write_columns
from hullcast.sim.traces.yahoo import check_input, yahoo_trace

#: RECO is published to 0.1; the share of ignorable updates in Xie (2007) needs two decimals.
FINER = 0.01


@dataclass(frozen=True, slots=True)
class Input:
    """A trace, and what there is to say about it."""

    name: str  # in names of steps
    workload: str  # in charts and tables
    trace: Place
    domain: tuple[float, float]
    stocks: int
    about: str
    note: str = ""


def check_prices(prices: Prices) -> None:
    """UsageError if files cannot be read: better said before than after an hour."""
    check_input(prices.files, prices.fundamentals, prices.reading)


def check_topology(file: NetworkFile, network: NetworkSettings) -> None:
    """The same of a network: it must have a node for each broker."""
    topology = read_topology(file.path, root=network.seed, columns=file.columns)
    choose_brokers(topology, network.brokers, root=network.seed)


def spreads(prices: Prices) -> dict[str, float | None]:
    """Names of the workloads made of prices, and to which step RECO is spread in each: one as published, and one with
    a finer RECO if that is published by tenths only."""
    stocks = read_fundamentals(prices.fundamentals, prices.reading)
    reco = stocks.reco[[problem is None for problem in stocks.problems]]
    by_tenths = bool(np.allclose(reco, np.round(reco / RECO_CELL) * RECO_CELL, atol=1e-9))
    return {"real-0.1": None, "real-0.01": FINER} if by_tenths else {"real": None}


def table_trace(replays: Replays, name: str, rows: int, events: int, mix: Mix) -> Place:
    """A trace of Table 5.1's workload."""

    def make(path: Place) -> None:
        table51_trace(path, rows=rows, updates=events, mix=mix, root=replays.settings.seed)

    settings = {"rows": rows, "events": events, "mix": asdict(mix)}
    return replays.run.step(f"trace-{name}", settings, make, what=f"trace {name}")


def market_step(replays: Replays, stocks: int, days: int, what: str = "trace market") -> Place:
    """A trace of the calibrated market. It is made in memory: there is nothing dirty in it for the ETL to find."""

    def make(path: Place) -> None:
        info, events = market_columns(market(stocks, days, root=replays.settings.seed))
        write_columns(path, info, events)

    return replays.run.step("trace-market", {"stocks": stocks, "days": days}, make, what=what)


def market_trace(replays: Replays, settings: FigureSettings) -> Input:
    """The market calibrated to the figures of Xie (2007)."""
    path = market_step(replays, settings.stocks, settings.days)
    about = f"Calibrated market: two prices a day of {settings.stocks:,} synthetic stocks on {settings.days} days."
    return Input("market", "calibrated market", path, read_info(path).domain, settings.stocks, about)


def real_traces(replays: Replays, settings: FigureSettings, prices: Prices) -> list[Input]:
    """Real prices, EPS and recommendations: as published, and with RECO spread inside its cell to two decimals."""
    found = []
    if not prices.is_local:
        assert replays.run.spark is not None  # by which they are reached
    workloads = spreads(prices)
    for name, spread in workloads.items():
        step = {
            "days": prices.days or settings.days,
            "first": str(prices.first),
            "spread": spread,
            "files": [file_mark(prices.files), file_mark(prices.fundamentals)],
            "reading": asdict(prices.reading),
        }

        def make(path: Place, spread: float | None = spread) -> None:
            info = yahoo_trace(
                replays.run.spark,
                prices.files,
                prices.fundamentals,
                path,
                reading=prices.reading,
                first=prices.first,
                days=prices.days or settings.days,
                spread=spread,
                root=replays.settings.seed,
            )
            if not info.events:
                raise UsageError(
                    f"{prices.files}: every price was refused ({', '.join(info.refused)}); `hullcast sim trace yahoo` "
                    "shows which and why"
                )

        path = replays.run.step(f"trace-{name}", step, make, what=f"trace {name}")
        info = read_info(path)
        if spread is not None:
            grid = f"spread inside its cell and rounded to {spread}"
        else:
            grid = "as published" if len(workloads) == 1 else "on the file's grid of 0.1"
        days = [str(info.notes.get(f"{end} day")) for end in ("first", "last")]
        about = (
            f"{prices.label[0].upper() + prices.label[1:] if prices.name else prices.label} from {days[0]} to "
            f"{days[1]}, RECO {grid}: {info.notes.get('distinct RECO', 0):,} distinct RECO; "
            f"{sum(info.refused.values()):,} prices refused."
        )
        workload = prices.label if len(workloads) == 1 else f"{prices.label}, RECO to {spread or 0.1:g}"
        stocks = int(info.notes.get("stocks", 0))
        found.append(Input(name, workload, path, info.domain, stocks, about, _caveat(prices, spread, days)))
    return found


def _caveat(prices: Prices, spread: float | None, days: Sequence[str]) -> str:
    if spread is not None:
        return (
            f"RECO to {spread} is not in the data: it is drawn inside the published cell, because the share of "
            "ignorable updates in Xie (2007) implies two decimals."
        )
    years = " to ".join(dict.fromkeys(day[:4] for day in days))
    if prices.dated:
        return f"Prices are of {years}, EPS and RECO of {prices.dated}: the real workload mixes two dates."
    return f"EPS and RECO are those of {prices.fundamentals.name}, taken as constant while prices change ({years})."
