"""Tables 5.2 and 5.3 of Xie (2007), measured: S-CN and S-UN by rows and by subscriptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.sim.bench.engine.baselines import ceiling_subject, per_subscriber_rate, requery_us
from hullcast.sim.bench.engine.subjects import engine_subject, kernel_subject
from hullcast.sim.bench.frame.timing import Spread, measured_in_turns, messages_per_update, ratio, us
from hullcast.sim.traces.table51 import SPIKES, Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.sim.bench.engine.benchmark import EngineSettings
    from hullcast.sim.bench.frame.timing import Run, Subject

#: Figures of Xie (2007): messages per non-ignorable update, (S-CN, unicast).
TABLE_5_2 = {
    20_000: (2.10, 726.0),
    40_000: (2.15, 671.0),
    60_000: (2.18, 678.0),
    80_000: (2.20, 655.0),
    100_000: (2.22, 654.0),
}
TABLE_5_3 = {
    200_000: (2.08, 303.0),
    400_000: (2.08, 616.0),
    600_000: (2.08, 909.0),
    800_000: (2.08, 1218.0),
    1_000_000: (2.08, 1441.0),
}
#: What it says of Figures 5.6 and 5.7: S-CN +20 % from 10k to 100k rows; S-UN costs 2.5 to 3.5 times as much.
THESIS_GROWTH = 1.2
THESIS_UNICAST = (2.5, 3.5)

#: Of the subscriptions' number around a random x, over the ranges of Table 5.1: deviation / mean (computed once).
COVER_VARIATION = 0.88

#: Electric's own figures for filters it cannot index (its documentation): shapes to changes a second.
ELECTRIC = {10: 1_400.0, 100: 140.0}


@dataclass(frozen=True, slots=True)
class UpdateCost:
    """One line of a table: messages and microseconds per update."""

    rows: int
    subscriptions: int
    messages: float  # S-CN
    told: float  # S-UN
    kernel_us: float | None
    ceiling_us: float | None
    engine_us: float
    unicast_us: float
    unicast_ratio: Spread  # S-UN / S-CN as served
    growth: Spread  # S-CN as served / the same at the first line
    kernel_growth: Spread | None
    thesis: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class RatePoint:
    """Updates a second against the number of subscriptions, when each one is evaluated by itself."""

    subscriptions: int
    per_subscriber: float
    electric: float | None


@dataclass(frozen=True, slots=True)
class Requery:
    """Recomputing every answer, from a sample."""

    rows: int
    subscriptions: int
    scan_us: float
    search_us: float
    round_s: float  # all subscriptions once, the faster way


@dataclass(frozen=True, slots=True)
class RowsSection:
    """By the number of rows."""

    lines: tuple[UpdateCost, ...]
    requery: tuple[Requery, ...]


@dataclass(frozen=True, slots=True)
class SubscriptionsSection:
    """By the number of subscriptions."""

    lines: tuple[UpdateCost, ...]
    curve: tuple[RatePoint, ...]


def by_rows(settings: EngineSettings, tick: Callable[[str], None]) -> RowsSection:
    """Table 5.2 and Figure 5.6."""
    subjects: dict[str, Subject] = {}
    requery = []
    for n in settings.rows:
        tick(f"{n:,} rows: filling tables, {settings.subscriptions:,} subscriptions")
        load = Workload(n, root=settings.seed)
        ranges = load.ranges(settings.subscriptions)
        changes = load.changes((settings.rounds + 1) * settings.updates)
        few = changes.slice(0, (settings.rounds + 1) * settings.unicast_updates)
        subjects[f"ceiling {n}"] = ceiling_subject(load.rows, changes, settings.updates)
        subjects[f"kernel {n}"] = kernel_subject(load.rows, changes, settings.updates, settings.batch)
        subjects[f"engine {n}"] = engine_subject(load.rows, changes, settings.updates, settings.batch)
        subjects[f"unicast {n}"] = engine_subject(load.rows, few, settings.unicast_updates, settings.batch, ranges)
        samples = min(settings.requeries, settings.subscriptions)
        scan, search = requery_us(load.rows, ranges, samples)
        requery.append(
            Requery(n, settings.subscriptions, scan, search, min(scan, search) * 1e-6 * settings.subscriptions)
        )
    runs = measured_in_turns(_by_kind(subjects), settings.rounds, tick, "by rows")
    first = settings.rows[0]
    for n in settings.rows:
        same = [[run.messages for run in runs[f"{tree} {n}"]] for tree in ("kernel", "ceiling")]
        assert same[0] == same[1], "two trees, the same messages"
    lines = [_line(runs, n, first, n, settings.subscriptions, TABLE_5_2.get(n)) for n in settings.rows]
    return RowsSection(tuple(lines), tuple(requery))


def by_subscriptions(settings: EngineSettings, tick: Callable[[str], None]) -> SubscriptionsSection:
    """Table 5.3 and Figure 5.7; and the curve of evaluating every subscription by itself."""
    load = Workload(settings.fewest_rows, root=settings.seed)
    changes = load.changes((settings.rounds + 1) * settings.updates)
    few = changes.slice(0, (settings.rounds + 1) * settings.unicast_updates)
    subjects: dict[str, Subject] = {}
    for n in settings.sweep:
        tick(f"{n:,} subscriptions")
        subjects[f"engine {n}"] = engine_subject(load.rows, changes, settings.updates, settings.batch)
        subjects[f"unicast {n}"] = engine_subject(
            load.rows, few, settings.unicast_updates, settings.batch, load.ranges(n)
        )
    runs = measured_in_turns(_by_kind(subjects), settings.rounds, tick, "by subscriptions")
    first = settings.sweep[0]
    known = TABLE_5_3 if settings.fewest_rows == 10_000 else {}
    lines = tuple(_line(runs, n, first, settings.fewest_rows, n, known.get(n)) for n in settings.sweep)
    curve = []
    for n in settings.curve:
        tick(f"every one of {n:,} subscriptions by itself")
        rate = per_subscriber_rate(load.ranges(n), changes, settings.curve_seconds)
        curve.append(RatePoint(n, rate, ELECTRIC.get(n)))
    return SubscriptionsSection(lines, tuple(curve))


def _line(
    runs: dict[str, list[Run]], n: int, first: int, rows: int, subscriptions: int, thesis: tuple[float, float] | None
) -> UpdateCost:
    """The line of size `n`, beside that of the first size; kernel and ceiling where they were measured."""
    engine, unicast = runs[f"engine {n}"], runs[f"unicast {n}"]
    kernel, ceiling = runs.get(f"kernel {n}"), runs.get(f"ceiling {n}")
    return UpdateCost(
        rows,
        subscriptions,
        messages_per_update(engine),
        messages_per_update(unicast),
        us(kernel) if kernel else None,
        us(ceiling) if ceiling else None,
        us(engine),
        us(unicast),
        ratio(unicast, engine),
        ratio(engine, runs[f"engine {first}"]),
        ratio(kernel, runs[f"kernel {first}"]) if kernel else None,
        thesis,
    )


def _by_kind(subjects: dict[str, Subject]) -> dict[str, Subject]:
    """S-UN last in every round: it sweeps the processor's caches, which would slow down the next subject."""
    return dict(sorted(subjects.items(), key=lambda item: item[0].startswith("unicast")))


def chance(settings: EngineSettings) -> float:
    """Relative deviation of S-UN's messages: nearly all come from spikes, of which a run has few."""
    spikes = settings.rounds * settings.unicast_updates * SPIKES / (1 + SPIKES)
    return float(((1 + COVER_VARIATION**2) / max(1.0, spikes)) ** 0.5)
