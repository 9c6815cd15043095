"""`hullcast bench joins`: many standing joins, plan by plan (Xie (2007), 4.6), and over a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

from hullcast.sim import XIE
from hullcast.sim.bench.frame.benchmark import Benchmark, BenchSection, Shown
from hullcast.sim.bench.frame.charts import Bars, draw_bars
from hullcast.sim.bench.joins.charts import JoinChart, draw, table
from hullcast.sim.bench.joins.judging import Aim, Found, Stated, judge, percent, place, share
from hullcast.sim.bench.joins.live import LiveJoinSection, live
from hullcast.sim.bench.joins.planning import DYNAMIC, OPT, Planning, planning
from hullcast.sim.bench.joins.sections import (
    COUNTED,
    FULL_JOINS,
    OURS,
    QUICK_JOINS,
    JoinSettings,
    bands,
    coverage,
    histograms,
    hotspots,
    selects,
    upkeep,
)
from hullcast.sim.joins.band import BandDataOuter, BandMerge, BandQueryOuter
from hullcast.sim.joins.band_groups import BandGroups
from hullcast.sim.joins.band_sequences import BandSequences
from hullcast.sim.joins.routing import PLANS
from hullcast.sim.output.claims import Claim
from hullcast.sim.output.goals import Goal
from hullcast.sim.output.text import factor, number, plain_table, short

SSI, SELECT, JOIN, NAIVE, HOT = "SSI", "SelectFirst", "JoinFirst", "NAIVE", "Hotspot"
BJ, ONE, MJ, D, Q = (kind.name for kind in (BandSequences, BandGroups, BandMerge, BandDataOuter, BandQueryOuter))
LIVE_CPU = 20.0
#: How well a straight line must describe the times for "falls linearly".
LINEAR = 0.95
#: An exponent that is linear, and one of a curve that hardly rises; a ratio that is flat; more than the same, and less,
#: by more than noise.
LINEARLY, HARDLY, FLAT, MORE, LESS = (0.75, 1.25), (-0.25, 0.25), (1 / 1.5, 1.5), (1.05, inf), (0.0, 0.95)
#: The statements and goals of a section.
Rows: TypeAlias = tuple[Stated | Aim | Claim, ...]
LISTED = "each affected query is listed, and a tenth of all passes the selection, however many there are"


# --- what the source says, and what we aim at ----------------------------------------------------------------------
#
# The bounds were fixed before anything was measured, but for those of statements that give no number.


def _slope(figure: str, name: str, least: float = 0.0) -> Callable[[Found], list[float]]:
    return lambda found: found(figure, name).slopes(least)


def _spread(figure: str, name: str) -> Callable[[Found], list[float]]:
    return lambda found: found(figure, name).spreads


def _growth(figure: str, name: str, least: float = 0.0, most: float = inf) -> Callable[[Found], list[float]]:
    return lambda found: found(figure, name).growth(least, most)


def _times(figure: str, name: str, other: str, at: int = -1) -> Callable[[Found], list[float]]:
    return lambda found: found(figure, name).times(found(figure, other), at)


def _everywhere(figure: str, name: str, others: Iterable[str], best: Any = min) -> Callable[[Found], list[float]]:
    """How many times as much as `name` the others cost: the least of all places and of all others, in each round."""

    def values(found: Found) -> list[float]:
        mine = found(figure, name)
        ratios = [mine.times(found(figure, other), at) for at in range(len(mine.xs)) for other in others]
        return [best(each) for each in zip(*ratios, strict=True)]

    return values


def _crossing(figure: str, name: str, other: str) -> Callable[[Found], list[float]]:
    return lambda found: found(figure, name).passes(found(figure, other))


def _at(figure: str, name: str, at: int = 0) -> Callable[[Found], list[float]]:
    return lambda found: list(found(figure, name).rounds[at])


def _mean(figure: str, name: str) -> Callable[[Found], list[float]]:
    return lambda found: [sum(each) / len(each) for each in zip(*found(figure, name).rounds, strict=True)]


def _gain(figure: str, name: str) -> Callable[[Found], list[float]]:
    def values(found: Found) -> list[float]:
        first, *_, last = found(figure, name).rounds
        return [b - a for a, b in zip(first, last, strict=True)]

    return values


COVERAGE: Rows = (
    Stated("4.2", "the 500 largest groups hold, at beta 1", "about 70 %", _at("4.2", "beta 1.0", 3), (65, 75),
              percent, construction="arithmetic: H(500) / H(5000)"),
    Stated("4.2", "they hold more with a larger beta", "more", lambda found: [
        found("4.2", "beta 1.2").rounds[3][0] - found("4.2", "beta 1.0").rounds[3][0]
    ], (1, 100), percent, construction="arithmetic"),
)  # fmt: skip
SELECTS: Rows = (
    Stated("4.7(i)", "SSI, loss from 100 queries to the most", "< 20 %",
              lambda found: [1 - 1 / times for times in found("4.7(i)", SSI).growth(100)], (-0.1, 0.2), share, LISTED),
    Stated("4.7(i)", ".. if they are counted instead of listed", "< 20 %",
              lambda found: [1 - 1 / times for times in found("4.7(i)", SSI + COUNTED).growth(100)], (-0.1, 0.2), share,
              "more of the index of a group lies across the edges of what is asked for, the larger it is"),
    Stated("4.7(i)", "JoinFirst at the most queries, of SSI's rate", "< 5 %", _times("4.7(i)", JOIN, SSI),
              (0, 0.05), share),
    *(Stated("4.7(i)", f"{name} falls linearly", "exponent 1", _slope("4.7(i)", name, 1_000), LINEARLY,
                number) for name in (SELECT, NAIVE)),
    Stated("4.7(i)", "SelectFirst is behind SSI", "ahead only for few queries",
              _crossing("4.7(i)", SELECT, SSI), (1, 30_000), place),
    Stated("4.7(ii)", "SelectFirst is ahead of SSI, by groups", "from 250 on",
              _crossing("4.7(ii)", SSI, SELECT), (125, 500), place,
              "a look into the index of a group costs more, by the look-up of a query that passes, than it did there"),
    *(Stated("4.7(ii)", f"{name} does not care for groups", "flat", _spread("4.7(ii)", name), FLAT)
      for name in (SELECT, NAIVE)),
    Stated("4.7(ii)", "JoinFirst, the last cost by the first", "less for less clustered queries",
              _growth("4.7(ii)", JOIN), LESS),
    Stated("4.7(ii)", "SSI's cost by NAIVE's, if all ranges are disjoint", "the same",
              _times("4.7(ii), disjoint", NAIVE, SSI), (0.5, 2.0),
              because="a look into the index of a group costs more than a look at a query"),
    Stated("4.8(iii)", "SSI does not care for the selectivity", "flat", _spread("4.8(iii)", SSI), FLAT,
              because="each affected query is listed, and more are where more pass"),
    Stated("4.8(iii)", "SelectFirst falls linearly", "exponent 1", _slope("4.8(iii)", SELECT, 0.01), LINEARLY,
              number),
    *(Stated("4.8(iv)", f"{name} does not care for joining rows", "flat", _spread("4.8(iv)", name), FLAT,
                because=why) for name, why in (
        (SSI, "where few rows join, fewer queries are affected, and each is listed"), (SELECT, "see SSI"),
        (NAIVE, "all joining rows are listed first"))),
    Stated("4.8(iv)", "JoinFirst falls linearly", "exponent 1", _slope("4.8(iv)", JOIN), LINEARLY, number),
    Aim("SJ-SSI keeps of its rate, from 100 queries", 0.8, lambda found: [
        1 / times for times in found("4.7(i)", SSI).growth(100)
    ], form=share),
    Aim("SJ-SSI / SJ-JoinFirst at the most queries", 20.0, _times("4.7(i)", SSI, JOIN)),
    Aim("ours at the most queries, changes/s", 20_000.0, lambda found: [
        1e6 / us for us in found("4.7(i)", OURS).rounds[-1]
    ], form=short),
    Aim("ours keeps of its rate, from 100 queries", 0.8, lambda found: [
        1 / times for times in found("4.7(i)", OURS).growth(100)
    ], form=share),
)  # fmt: skip
HOTSPOTS: Rows = (
    Stated("4.9", "Hotspot's time falls with the hot share", "linearly", lambda found: [
        r_squared if slope < 0 else -1.0 for slope, r_squared in found("4.9", HOT).straight()
    ], (LINEAR, 1), lambda value: f"R2 {value:.3f}" if value >= 0 else "rises"),
    Stated("4.9", "SelectFirst does not care", "flat", _spread("4.9", SELECT), FLAT),
    Aim("ours by the hot share: falls, R2", LINEAR, lambda found: [
        r_squared if slope < 0 else 0.0 for slope, r_squared in found("4.9", OURS).straight()
    ], form=number),
)  # fmt: skip
BANDS: Rows = (
    Stated("4.10(i)", "BJ-SSI ahead of all others, at least", "orders of magnitude",
              _everywhere("4.10(i)", BJ, (MJ, D, Q)), (10, inf),
              because="of 50 queries BJ-Q needs 50 look-ups, and BJ-SSI two for each of 10 groups"),
    Stated("4.10(i)", "BJ-SSI's cost, the most queries by the fewest", "3x", _growth("4.10(i)", BJ), (2, 4.5),
              because="each group costs a look-up, and there are 4 to 7 times as many groups"),
    Stated("4.10(i)", "BJ-MJ is stable for few queries", "stable", _growth("4.10(i)", MJ, most=5_000), FLAT,
              because="to pass a range takes twenty times as long as to pass a row"),
    Claim("", "BJ-Q's rate beyond 1,000 queries", "see the table", False, item="Figure 4.10(i)",
          paper="below 100 a second", incomparable="it is a rate on another machine"),
    Stated("4.10(i)", "BJ-D is not very sensitive to queries", "exponent near 0", _slope("4.10(i)", D), HARDLY,
              number),
    Stated("4.10(ii)", "BJ-SSI ahead at the most groups", "ahead", _everywhere("4.10(ii)", BJ, (MJ, D)), MORE,
              because="three look-ups for each of so many groups take longer than one pass"),
    *(Stated("4.10(ii)", f"{name} does not care for groups", "flat", _spread("4.10(ii)", name), FLAT,
                because="with more groups ranges are shorter, and a row is in fewer") for name in (MJ, D)),
    Stated("4.10(ii)", "BJ-SSI falls linearly with groups", "exponent 1", _slope("4.10(ii)", BJ), LINEARLY,
              number),
    *(Aim(f"ours / {name}, in about 60 groups", least, _times("4.10, goals", ONE, name))
      for name, least in ((MJ, 10.0), (D, 50.0), (Q, 50.0))),
)  # fmt: skip
UPKEEP: Rows = (
    *(Stated("4.11", f"BJ-SSI's upkeep by BJ-MJ's, {how}", "1.2x", _times("4.11", MJ, BJ, at), (1, 1.4),
                because="a range is in two sequences, and in the trees of the partition")
      for at, how in enumerate(("one to a call", "1,000 to a call"))),
    Stated("4.11", "BJ-Q's upkeep", "0", lambda found: [0.0], (0, 0), number,
              construction="it has no index of queries"),
    *(Aim(f"upkeep, ours / BJ-MJ, {how}", 1.2, _times("4.11", MJ, ONE, at), at_least=False)
      for at, how in enumerate(("one to a call", "1,000 to a call"))),
)  # fmt: skip
HISTOGRAM: Rows = (
    Stated("4.12", "stabbing groups", "18", _at("4.12, groups", "groups"), (17, 19), number,
              construction="neither reading of Normal(1000, 2000) gives 18; the deviation is set to"),
    Stated("4.12", "error of SSI-HIST with the fewest buckets", "14.9 %", _at("4.12", "SSI-HIST"), (12, 18),
              percent, "the error of a group is relative to its own count, so centres are near its smallest counts, "
              "and the sum is far too low"),
    Stated("4.12", "error of EQW-HIST with the fewest", "> 70 %", _at("4.12", "EQW-HIST"), (70, 140), percent,
              "it depends on the few intervals at the edges, and so on the seed"),
    Stated("4.12", "SSI-HIST better than EQW-HIST, at least", "all the time",
              _everywhere("4.12", "SSI-HIST", ["EQW-HIST"]), MORE, because="see its error"),
    Stated("4.12", "OPTIMAL better than SSI-HIST, at least", "consistently",
              _everywhere("4.12", "OPTIMAL", ["SSI-HIST"]), MORE),
    Stated("4.12", "ours better than EQW-HIST, at least", "(SSI-HIST: all the time)",
              _everywhere("4.12", "ours", ["EQW-HIST"]), MORE,
              construction="ours may choose the places of equal width, too"),
    Stated("4.12", "SSI-HIST is built in, seconds", "within one minute",
              lambda found: [us / 1e6 for us in found("4.12, building", "SSI-HIST").rounds[0]], (0, 60), number),
    Aim("ours, error with the fewest buckets", 15.0, _at("4.12", "ours"), at_least=False, form=percent),
)  # fmt: skip
OTHERS = PLANS[:3]
ROOT = "the models take a look into an index as the root of its size; where more queries pass it costs much more"
PLANNING: Rows = (
    Claim("", "the coefficients", "see the table", False, item="Table 4.2", paper="0.08 to 70",
          incomparable="the source gives no unit, and another machine has other coefficients"),
    Stated("4.13", "Hotspot ahead of the other plans, at least", "> 3x", _everywhere("4.13", HOT, OTHERS),
              (3, inf)),
    Stated("4.13", "Hotspot's rate, of OPT's, at the smallest size", "< 50 %", _times("4.13", HOT, OPT, 0),
              (0, 0.5), share, "rows for which another plan is cheaper cost little by any plan"),
    Stated("4.13", "DYNAMIC ahead of Hotspot, at least", "everywhere", _everywhere("4.13", DYNAMIC, [HOT]),
              MORE, because=ROOT),
    Stated("4.13", "DYNAMIC ahead of Hotspot, at most", "in places > 1.5x",
              _everywhere("4.13", DYNAMIC, [HOT], max), (1.5, inf), because=ROOT),
    Stated("4.13", "OPT ahead of DYNAMIC, at least", "everywhere", _everywhere("4.13", OPT, [DYNAMIC]),
              (1, inf), construction="OPT takes the cheapest plan for each row"),
    *(Stated("4.14", f"rows that DYNAMIC gives to {plan}", paper, _mean("4.14", plan), within, percent)
      for plan, paper, within in zip((HOT, SELECT, *PLANS[:2]), ("> 70 %", "25 %", "5 %", "none"),
                                     ((70, 90), (15, 35), (1, 10), (0, 1)), strict=True)),
    Stated("4.15", "choices that are OPT's", "30 %", _mean("4.15", "consistent with OPT"), (20, 40), percent),
    Stated("4.16", "JoinFirst-E's share, more joining rows less fewer", "it loses",
              _gain("4.16", "JoinFirst-E"), (-100, -1), percent),
    Stated("4.16", "SelectFirst's share, the same", "it wins", _gain("4.16", SELECT), (1, 100), percent),
    *(Stated("4.17", f"{name}: cost, the most joining rows by the fewest", "all suffer", _growth("4.17", name),
                MORE) for name in (*PLANS, DYNAMIC)),
    Stated("4.18", "SelectFirst's share where the fewest pass", "most", _at("4.18", SELECT), (50, 100), percent),
    Stated("4.18", "SelectFirst's share, the most less the fewest", "it loses", _gain("4.18", SELECT),
              (-100, -1), percent),
    Stated("4.19", "DYNAMIC: cost where the most pass by the fewest", "it rises", _growth("4.19", DYNAMIC),
              MORE),
    Stated("4.20", "choices that are OPT's, by joining rows", "35 %", _mean("4.20", "consistent with OPT"),
              (25, 45), percent),
    Stated("4.21", "choices that are OPT's, by selectivity", "65 %", _mean("4.21", "consistent with OPT"),
              (55, 75), percent),
    Aim("ours, a plan per row / best single plan", 1 / 1.05, lambda found: min(
        ([min(each) for each in zip(*(found("4.13, ours", OURS).times(found("4.13, ours", plan), at) for plan in PLANS),
                                    strict=True)] for at in range(len(found("4.13, ours", OURS).xs))), key=sum)),
    Aim("ours, a plan per row / always Hotspot", 1.25, _everywhere("4.13, ours", OURS, [HOT])),
)  # fmt: skip


def _judged_planning(found: Planning) -> Iterator[Goal | Claim]:
    yield from judge(PLANNING, found.charts)
    apart = sum(one.value - one.half > 0 for one in found.coefficients)
    told, wanted = f"{apart} of {len(found.coefficients)}", len(found.coefficients)
    why = "terms that hardly differ between rows cannot be told apart"
    words = "coefficients above 0 by their intervals"
    yield Claim("", words, told, apart == wanted, why, item="Table 4.2", paper="all")


def _judged_live(section: LiveJoinSection) -> list[Goal | Claim]:
    ours, probe = section.ranges, section.probe
    less = probe.server_us / max(ours.server_us, 1e-9)
    count = section.settings.merchants
    right = all(line.checked == count and not line.wrong for line in (ours, probe))
    told = f"all {short(count)}, twice" if right else f"{ours.wrong:,} and {probe.wrong:,} wrong"
    return [
        Goal(
            "live: server CPU a change, every pair / wanted ones", f">= {LIVE_CPU:.0f}x", factor(less), less / LIVE_CPU
        ),
        Goal.fact("live: every answer right", "all", told, right),
    ]


# --- tables and pictures -------------------------------------------------------------------------------------------


def _tables_of_planning(found: Planning) -> Iterator[Shown]:
    shown = plain_table("Table 4.2: coefficients with 95 % intervals", "plan", "", "ours, us", "Xie 2007")
    for one in found.coefficients:
        ends = f"{one.value - one.half:.3g} .. {one.value + one.half:.3g}"
        shown.add_row(one.plan, one.name, f"{one.value:.3g} [{ends}]", one.theirs)
    yield shown
    yield from map(table, found.charts)


def _tables_of_live(section: LiveJoinSection) -> Iterator[Shown]:
    settings, ours, probe = section.settings, section.ranges, section.probe
    title = f"live: {settings.merchants:,} joins in {settings.clients} client processes; per change"
    table = plain_table(title, "", "wanted pairs", "every pair", "every/wanted")
    rows: tuple[tuple[str, float, float], ...] = (
        ("changes/s, as fast as acknowledged", ours.changes_s, probe.changes_s),
        ("server CPU us", ours.server_us, probe.server_us),
        ("nodes' CPU us", ours.nodes_us, probe.nodes_us),
        ("both together", ours.server_us + ours.nodes_us, probe.server_us + probe.nodes_us),
        ("clients' CPU us", ours.clients_us, probe.clients_us),
        ("messages that left the server", ours.server_messages, probe.server_messages),
        ("bytes that left the server", ours.server_bytes, probe.server_bytes),
        ("bytes to clients", ours.client_bytes, probe.client_bytes),
        ("new answers taken", ours.told, probe.told),
        ("installing all, s", ours.install_s, probe.install_s),
    )
    for name, a, b in rows:
        table.add_row(name, number(a), number(b), factor(b / a) if a else "")
    yield table
    yield (
        f"{settings.rows:,} rows a table, a row meets {settings.meeting:,} of the other; {ours.changes:,} and "
        f"{probe.changes:,} changes in batches of {settings.batch}. Answers compared afterwards, each time: "
        f"{ours.checked:,} with NumPy, {ours.checked_by_sql} of them with SQLite too; wrong: {ours.wrong} and "
        f"{probe.wrong}. Pairs in all answers: {ours.pairs:,}."
    )


def _draw_upkeep(found: tuple[JoinChart, ...], path: Path) -> Path:
    """Figure 4.11."""
    (chart,) = found
    panels = [
        Bars(f"us a change, {short(size)} to a call", [curve.medians[at] for curve in chart.curves])
        for at, size in enumerate(chart.curves[0].xs)
    ]
    return draw_bars(path, "Xie (2007), Figure 4.11: upkeep", [curve.name for curve in chart.curves], panels)


def _draw_nth(at: int, found: tuple[JoinChart, ...] | Planning, path: Path) -> Path:
    return draw((found.charts if isinstance(found, Planning) else found)[at], path)


def _pictures(*names: str, first: int = 0) -> dict[str, Callable[[Any, Path], Path]]:
    """By figure: the charts of a section, in this order."""
    return {f"fig_4_{name}": partial(_draw_nth, at) for at, name in enumerate(names, first)}


# --- the benchmark -------------------------------------------------------------------------------------------------


def _head(settings: JoinSettings) -> str:
    return (
        f"Xie 2007 is {XIE}, chapter 4. Microseconds of processor time an arriving row, medians of {settings.rounds} "
        "interleaved rounds; of claims and goals the quartiles, too. Plans name the affected queries; ours finds the "
        "stretches of S that somebody wants. Of band joins affected queries are counted, not listed; BJ-SSI finds "
        "where they begin. Results are not written, as there."
    )


def _section(
    name: str, about: str, run: Any, rows: Rows, pictures: dict[str, Any],
    steps: Callable[[JoinSettings], int] = lambda settings: 1,
) -> BenchSection[JoinSettings, tuple[JoinChart, ...]]:  # fmt: skip
    """A section that finds charts."""
    return BenchSection(
        name, about, run, lambda found: map(table, found), lambda found: judge(rows, found), pictures, steps
    )


JOINS = Benchmark(
    name="joins",
    about="many standing joins: plans, stabbing groups, hotspots, and a cluster",
    description=f"Reproduces Table 4.2 and Figures 4.2 and 4.7 to 4.21 of {XIE}: select-joins and band joins by "
    "several plans, upkeep, histograms, and a plan per row; then 100,000 joins over a cluster, beside a server that "
    "describes every pair. Claims are judged, too.",
    full=FULL_JOINS,
    quick=QUICK_JOINS,
    quick_about="fewer sizes and rounds: a few minutes",
    head=_head,
    sections=(
        _section("coverage", "Figure 4.2: what the largest groups cover", coverage, COVERAGE, _pictures("2")),
        _section("selects", "Figures 4.7 and 4.8: select-joins by queries, groups, selectivity and joining rows",
                 selects, SELECTS, {**_pictures("7_i", "7_ii"), **_pictures("8_iii", "8_iv", first=3)},
                 lambda settings: 5 * settings.rounds),
        _section("hotspots", "Figure 4.9: time by the share of queries in hot groups", hotspots, HOTSPOTS,
                 _pictures("9"), lambda settings: len(settings.hot_shares)),
        _section("bands", "Figure 4.10: band joins by queries and groups", bands, BANDS, _pictures("10_i", "10_ii"),
                 lambda settings: 3 * settings.rounds),
        _section("upkeep", "Figure 4.11: a subscription that comes or goes", upkeep, UPKEEP,
                 {"fig_4_11": _draw_upkeep}),
        _section("histogram", "Figure 4.12: error of interval histograms", histograms, HISTOGRAM, _pictures("12")),
        BenchSection("planning", "Table 4.2, Figures 4.13 to 4.21: a plan per row on a mixed workload", planning,
                     _tables_of_planning, _judged_planning,
                     _pictures("13", "14", "15", "17", "16", "20", "19", "18", "21", "13_ours"),
                     lambda settings: 2 + len(settings.mixed)),
        BenchSection("live", "100,000 joins over a cluster of processes, beside a server that describes every pair",
                     lambda settings, tick: live(settings.live, tick), _tables_of_live, _judged_live,
                     steps=lambda settings: 2),
    ),
)  # fmt: skip
