"""`hullcast bench joins`: many standing joins, plan by plan (Xie (2007), 4.6), and over a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from textwrap import fill

from rich.table import Table

from hullcast.broker.joins.join_first import JoinFirst
from hullcast.broker.joins.naive import NaivePlan
from hullcast.broker.joins.select_first import SelectFirst
from hullcast.broker.joins.ssi import Hotspot
from hullcast.sim import XIE
from hullcast.sim.bench.frame.benchmark import Benchmark, BenchSection, Shown
from hullcast.sim.bench.joins.figures import (
    draw_bands,
    draw_errors,
    draw_hotspots,
    draw_mixed,
    draw_selects,
    draw_upkeep,
)
from hullcast.sim.bench.joins.live import LiveJoinSection, live
from hullcast.sim.bench.joins.sections import (
    DYNAMIC,
    FULL_JOINS,
    HINDSIGHT,
    QUICK_JOINS,
    SSI,
    BandSection,
    HistogramErrors,
    HotspotSection,
    JoinChart,
    JoinSettings,
    MixedLine,
    UpkeepSection,
    bands,
    histograms,
    hotspots,
    planning,
    selects,
    upkeep,
)
from hullcast.sim.joins.band import BandDataOuter, BandMerge, BandQueryOuter
from hullcast.sim.joins.band_groups import BandGroups
from hullcast.sim.joins.selects import JoinFirstEach
from hullcast.sim.output.claims import Claim
from hullcast.sim.output.goals import Goal, share_under
from hullcast.sim.output.text import factor, number, plain_table, short

#: Goals.
SSI_LOSS = 0.2
OVER_JOIN_FIRST, OVER_MERGE, OVER_OUTER = 20.0, 10.0, 50.0
CHANGES_S = 20_000.0
UPKEEP = 1.2
WORSE_THAN_BEST, OVER_HOTSPOT = 1.05, 1.25
HISTOGRAM_ERROR, EQUAL_ERROR = 0.15, 0.7
LIVE_CPU = 20.0
#: How well a straight line must describe the times for "falls linearly": fixed before anything was measured.
LINEAR = 0.95
#: A cost that varies by less than this over a chart is indifferent; an exponent this far from 1 is not linear.
INDIFFERENT, OFF_LINEAR = 1.5, 0.25


# --- claims and goals ----------------------------------------------------------------------------------------------


def _judged_selects(charts: tuple[JoinChart, ...]) -> list[Goal | Claim]:
    by_queries, by_groups, by_share, by_joining = charts
    ssi, select, naive = (by_queries.curve(name) for name in (SSI, SelectFirst.name, NaivePlan.name))
    joins = [by_queries.curve(name) for name in (JoinFirst.name, JoinFirstEach.name)]
    first, last = (100.0 if 100.0 in ssi.xs else ssi.xs[0]), ssi.xs[-1]
    loss = 1 - 1 / ssi.growth(first, last)
    ahead = min(ssi.times(last, other) for other in joins)
    span = f"{short(first)} to {short(last)} queries"
    rate = 1e6 / ssi.at(last)
    slopes = [curve.slope(1_000.0) for curve in (select, naive)]
    ends = (by_queries.taus[ssi.xs.index(first)], by_queries.taus[-1])
    crossing = _crossing(by_groups)
    spreads = [by_groups.curve(name).spread for name in (SelectFirst.name, NaivePlan.name)]
    share_ssi, share_select = by_share.curve(SSI), by_share.curve(SelectFirst.name)
    slope = share_select.slope(0.01)
    join_slope = by_joining.curve(JoinFirst.name).slope()
    immune = {name: by_joining.curve(name).spread for name in (SSI, SelectFirst.name, NaivePlan.name)}
    near = crossing is not None and 125 <= crossing <= 500
    claims = [
        Claim(
            "",
            f"SSI, loss from {span}",
            f"{loss:.0%} (groups: {ends[0]}, {ends[1]})",
            loss < 0.2,
            item="Figure 4.7(i)",
            paper="< 20 %",
        ),
        Claim(
            "",
            f"JoinFirst at {short(last)}, of SSI's rate",
            f"{1 / ahead:.2%}",
            ahead > 20,
            item="Figure 4.7(i)",
            paper="< 5 %",
        ),
        Claim(
            "",
            "SelectFirst and NAIVE fall linearly",
            _exponents(slopes),
            all(map(_is_linear, slopes)),
            item="Figure 4.7(i)",
            paper="exponent 1",
        ),
        Claim(
            "",
            "SelectFirst passes SSI",
            "never" if crossing is None else f"at {crossing:,.0f} groups",
            near,
            item="Figure 4.7(ii)",
            paper="near 250 groups",
        ),
        Claim(
            "",
            "SelectFirst and NAIVE do not care for groups",
            ", ".join(f"x{value:.2f}" for value in spreads),
            max(spreads) < INDIFFERENT,
            item="Figure 4.7(ii)",
            paper="flat",
        ),
        Claim(
            "",
            "SSI does not care for the selectivity",
            _never_dearer(share_ssi.us),
            _no_rise(share_ssi.us),
            item="Figure 4.8(iii)",
            paper="flat",
        ),
        Claim(
            "",
            "SelectFirst falls linearly",
            f"{slope:.2f}",
            _is_linear(slope),
            item="Figure 4.8(iii)",
            paper="exponent 1",
        ),
        Claim(
            "",
            "joining rows: all but JoinFirst immune",
            ", ".join(f"{name} x{value:.2f}" for name, value in immune.items()),
            max(immune.values()) < INDIFFERENT,
            item="Figure 4.8(iv)",
            paper="flat",
        ),
        Claim(
            "",
            "JoinFirst falls linearly",
            f"{join_slope:.2f}",
            _is_linear(join_slope),
            item="Figure 4.8(iv)",
            paper="exponent 1",
        ),
    ]
    goals = [
        Goal(f"SJ-SSI, loss from {span}", f"<= {SSI_LOSS:.0%}", f"{loss:.0%}", (1 - loss) / (1 - SSI_LOSS)),
        Goal(
            f"SJ-SSI / SJ-JoinFirst at {short(last)}",
            f">= {OVER_JOIN_FIRST:.0f}x",
            factor(ahead),
            ahead / OVER_JOIN_FIRST,
        ),
        Goal(
            f"{short(last)} select-joins, {ends[1]} groups",
            f">= {short(CHANGES_S)} changes/s",
            short(rate),
            rate / CHANGES_S,
        ),
    ]
    return [*claims, *goals]


def _exponents(slopes: list[float]) -> str:
    return ", ".join(f"{slope:.2f}" for slope in slopes)


def _is_linear(slope: float) -> bool:
    return abs(slope - 1) <= OFF_LINEAR


def _no_rise(us: tuple[float, ...]) -> bool:
    return max(us) < INDIFFERENT * us[0]


def _never_dearer(us: tuple[float, ...]) -> str:
    return f"x{us[-1] / us[0]:.2f} from first to last"


def _crossing(chart: JoinChart) -> float | None:
    """Where SelectFirst gets cheaper than SSI, between two places by proportion on log axes."""
    ssi, select = chart.curve(SSI), chart.curve(SelectFirst.name)
    gaps = [log(a / b) for a, b in zip(ssi.us, select.us, strict=True)]
    for i in range(1, len(gaps)):
        if gaps[i - 1] <= 0 < gaps[i]:
            part = -gaps[i - 1] / (gaps[i] - gaps[i - 1])
            return exp(log(ssi.xs[i - 1]) + part * (log(ssi.xs[i]) - log(ssi.xs[i - 1])))
    return None


def _judged_hotspots(section: HotspotSection) -> list[Goal | Claim]:
    falls = section.slope_us < 0
    told = f"R2 {section.r_squared:.3f}, {section.slope_us / 10:+.1f} us per 10 %" if falls else "does not fall"
    linear = falls and section.r_squared >= LINEAR
    spread = section.chart.curve(SelectFirst.name).spread
    claims = [
        Claim(
            "", "Hotspot's time falls linearly with the hot share", told, linear, item="Figure 4.9", paper="straight"
        ),
        Claim("", "SelectFirst does not care", f"x{spread:.2f}", spread < INDIFFERENT, item="Figure 4.9", paper="flat"),
    ]
    share = section.r_squared / LINEAR if falls else 0.0
    goal = Goal("time falls linearly with the hot share", f"falls, R2 >= {LINEAR}", told.partition(",")[0], share)
    return [*claims, goal]


def _judged_bands(section: BandSection) -> list[Goal | Claim]:
    names = (BandMerge.name, BandDataOuter.name, BandQueryOuter.name)
    ssi = section.by_queries.curve(BandGroups.name)
    ahead = {name: [ssi.times(x, section.by_queries.curve(name)) for x in ssi.xs] for name in names}
    least = min(min(values) for values in ahead.values())
    growth, span = ssi.growth(ssi.xs[0], ssi.xs[-1]), f"{short(ssi.xs[0])} to {short(ssi.xs[-1])} queries"
    groups = section.by_groups
    by_groups = groups.curve(BandGroups.name)
    most = by_groups.xs[-1]
    others = {name: by_groups.times(most, groups.curve(name)) for name in names[:-1]}
    flat = max(groups.curve(name).spread for name in names[:-1])
    slope = by_groups.slope()
    sixty = section.sixty.curve(BandGroups.name)
    at = sixty.xs[0]
    where = f"at {short(at)} in {section.sixty.taus[0]} groups"
    ratios = {name: sixty.times(at, section.sixty.curve(name)) for name in names}
    aims = (OVER_MERGE, OVER_OUTER, OVER_OUTER)
    claims = [
        Claim(
            "",
            "BJ-SSI ahead of all others",
            f"{factor(least)} or more",
            least >= 10,
            item="Figure 4.10(i)",
            paper="orders of magnitude",
        ),
        Claim(
            "",
            f"BJ-SSI's rate, {span} ({section.by_queries.taus[0]} to {section.by_queries.taus[-1]} groups)",
            f"down to 1/{growth:.1f}",
            growth < 4.5,
            item="Figure 4.10(i)",
            paper="down to 1/3",
        ),
        Claim(
            "",
            f"BJ-SSI ahead even at {most:,.0f} groups",
            ", ".join(f"{factor(value)} {name}" for name, value in others.items()),
            min(others.values()) > 1,
            item="Figure 4.10(ii)",
            paper="ahead",
        ),
        Claim(
            "",
            "BJ-MJ and BJ-DOuter do not care for groups",
            f"x{flat:.2f}",
            flat < INDIFFERENT,
            item="Figure 4.10(ii)",
            paper="flat",
        ),
        Claim(
            "",
            "BJ-SSI falls linearly with groups",
            f"{slope:.2f}",
            _is_linear(slope),
            item="Figure 4.10(ii)",
            paper="exponent 1",
        ),
    ]
    goals = [
        Goal(f"BJ-SSI / {name} {where}", f">= {aim:.0f}x", factor(ratios[name]), ratios[name] / aim)
        for name, aim in zip(names, aims, strict=True)
    ]
    return [*claims, *goals]


def _judged_upkeep(section: UpkeepSection) -> list[Goal | Claim]:
    line = next(line for line in section.lines if line.name == BandGroups.name)
    told = f"{line.batch_ratio:.2f}x ({section.batch:,} to a call), {line.single_ratio:.2f}x (one to a call)"
    worst = max(line.batch_ratio, line.single_ratio)
    claims = [Claim("", "BJ-SSI's upkeep, by BJ-MJ's", told, worst <= 1.25, item="Figure 4.11", paper="1.2x")]
    goals = [
        Goal(f"upkeep, BJ-SSI / BJ-MJ, {how}", f"<= {UPKEEP}x", f"{ratio:.2f}x", UPKEEP / ratio)
        for how, ratio in ((f"{section.batch:,} to a call", line.batch_ratio), ("one to a call", line.single_ratio))
    ]
    return [*claims, *goals]


def _judged_histograms(errors: HistogramErrors) -> list[Goal | Claim]:
    fewest, error, equal = errors.buckets[0], errors.ours[0], errors.equal[0]
    better = all(ours <= equal for ours, equal in zip(errors.ours, errors.equal, strict=True))
    claims = [
        Claim(
            "",
            f"error with {fewest} buckets",
            f"{error:.1%}",
            error < HISTOGRAM_ERROR,
            item="Figure 4.12",
            paper="14.9 %",
        ),
        Claim(
            "",
            f"error of equal width with {fewest}",
            f"{equal:.1%}",
            equal > EQUAL_ERROR,
            item="Figure 4.12",
            paper="> 70 %",
        ),
        Claim(
            "", "better than equal width everywhere", "yes" if better else "no", better, item="Figure 4.12", paper="yes"
        ),
    ]
    goals = [
        Goal(
            f"error, {fewest} buckets", f"< {HISTOGRAM_ERROR:.0%}", f"{error:.1%}", share_under(error, HISTOGRAM_ERROR)
        ),
        Goal(".. where equal width has", f"> {EQUAL_ERROR:.0%}", f"{equal:.1%}", equal / EQUAL_ERROR),
    ]
    return [*claims, *goals]


def _judged_planning(lines: tuple[MixedLine, ...]) -> list[Goal | Claim]:
    claims = []
    for line in lines:
        single = min(us for name, us in line.us.items() if name not in (Hotspot.name, DYNAMIC, HINDSIGHT))
        times = single / line.us[Hotspot.name]
        where = short(line.queries)
        claims += [
            Claim(
                "",
                f"{where}: Hotspot over other single plans",
                factor(times),
                times > 3,
                item="Figure 4.13",
                paper="> 3x",
            ),
            Claim(
                "",
                f"{where}: a plan per row over always Hotspot",
                factor(line.over_hotspot),
                line.over_hotspot > 1,
                item="Figure 4.13",
                paper="more, in places > 1.5x",
            ),
            Claim(
                "",
                f"{where}: the fastest plan was chosen",
                f"{line.right:.0%}",
                line.right >= 0.3,
                item="Figure 4.15",
                paper="30 %",
            ),
        ]
    slowest, least = min(line.over_best for line in lines), min(line.over_hotspot for line in lines)
    goals = [
        Goal(
            "a plan per row / best single plan",
            f">= {1 / WORSE_THAN_BEST:.2f}x",
            factor(slowest),
            slowest * WORSE_THAN_BEST,
        ),
        Goal("a plan per row / always Hotspot", f">= {OVER_HOTSPOT}x", factor(least), least / OVER_HOTSPOT),
    ]
    return [*claims, *goals]


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


# --- tables --------------------------------------------------------------------------------------------------------


def _tables_of_selects(charts: tuple[JoinChart, ...]) -> Iterator[Shown]:
    yield from map(_chart, charts)


def _tables_of_hotspots(section: HotspotSection) -> Iterator[Shown]:
    yield _chart(section.chart)


def _tables_of_bands(section: BandSection) -> Iterator[Shown]:
    yield from map(_chart, (section.by_queries, section.by_groups, section.sixty))


def _chart(chart: JoinChart) -> Table:
    table = plain_table(
        f"Figure {chart.key}: us an arrival; {chart.title}",
        fill(chart.x_label, 18),
        "tau",
        *(curve.name for curve in chart.curves),
    )
    for i, x in enumerate(chart.curves[0].xs):
        place = f"{x:.0%}" if x <= 1 and x * 100 >= 1 else (f"{x:.1%}" if x < 1 else f"{x:,.0f}")
        table.add_row(place, f"{chart.taus[i]:,}", *(number(curve.us[i]) for curve in chart.curves))
    return table


def _tables_of_upkeep(section: UpkeepSection) -> Iterator[Shown]:
    title = f"Figure 4.11: us a subscription that comes or goes, of {section.queries:,}"
    many = f"{section.batch:,} to\na call"
    table = plain_table(title, "\n", many, "by\nBJ-MJ's", "one to\na call", "by\nBJ-MJ's")
    for line in section.lines:
        cells = (number(line.batch_us), f"{line.batch_ratio:.2f}x", number(line.single_us), f"{line.single_ratio:.2f}x")
        table.add_row(line.name, *cells)
    yield table


def _tables_of_histogram(found: HistogramErrors) -> Iterator[Shown]:
    table = plain_table(
        f"Figure 4.12: mean relative error; tau {found.tau}",
        *("buckets", "ours", "equal width", "optimal, of sampled places"),
    )
    for buckets, *errors in zip(found.buckets, found.ours, found.equal, found.optimal, strict=True):
        table.add_row(str(buckets), *(f"{error:.1%}" for error in errors))
    yield table
    yield f"Built in {found.build_ms:.0f} ms; the optimal one in {found.optimal_ms:.0f} ms."


def _tables_of_planning(lines: tuple[MixedLine, ...]) -> Iterator[Shown]:
    for line in lines:
        title = (
            f"Figures 4.13 to 4.16: mixed workload, {line.queries:,} queries and rows, {line.hot_groups:,} hot groups"
        )
        table = plain_table(title, "plan", "us an arrival", "rows/s", "chosen for", "fastest for")
        for name, us in line.us.items():
            shares = (f"{some[name]:.0%}" if name in some else "" for some in (line.shares, line.best_shares))
            table.add_row(name, number(us), short(1e6 / us), *shares)
        yield table
        yield f"Chosen and fastest are the same for {line.right:.0%} of the arrivals."


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


# --- the benchmark -------------------------------------------------------------------------------------------------


def _head(settings: JoinSettings) -> str:
    return (
        f"Xie 2007 is {XIE}, chapter 4. Microseconds of processor time an arriving row, medians of {settings.rounds} "
        "interleaved rounds. Of select-joins, finding the stretches of S that somebody wants is measured; of band "
        "joins, finding the queries that get a row, counted and not listed. Results are not written, as there."
    )


JOINS = Benchmark(
    name="joins",
    about="many standing joins: plans, stabbing groups, hotspots, and a cluster",
    description=f"Reproduces Figures 4.7 to 4.16 of {XIE}: select-joins and band joins by several plans, upkeep, "
    "histograms, and a plan per row; then 100,000 joins over a cluster, beside a server that describes every pair. "
    "Claims are judged, too.",
    full=FULL_JOINS,
    quick=QUICK_JOINS,
    quick_about="fewer sizes and rounds: about a minute",
    head=_head,
    sections=(
        BenchSection(
            "selects",
            "Figures 4.7 and 4.8: select-joins by queries, groups, selectivity and joining rows",
            selects,
            _tables_of_selects,
            _judged_selects,
            {"fig_4_7_4_8": draw_selects},
            lambda settings: 4 * settings.rounds,
        ),
        BenchSection(
            "hotspots",
            "Figure 4.9: time by the share of queries in hot groups",
            hotspots,
            _tables_of_hotspots,
            _judged_hotspots,
            {"fig_4_9": draw_hotspots},
            lambda settings: len(settings.hot_shares),
        ),
        BenchSection(
            "bands",
            "Figure 4.10: band joins by queries and groups",
            bands,
            _tables_of_bands,
            _judged_bands,
            {"fig_4_10": draw_bands},
            lambda settings: 3 * settings.rounds,
        ),
        BenchSection(
            "upkeep",
            "Figure 4.11: a subscription that comes or goes",
            upkeep,
            _tables_of_upkeep,
            _judged_upkeep,
            {"fig_4_11": draw_upkeep},
            lambda settings: 2,
        ),
        BenchSection(
            "histogram",
            "Figure 4.12: error of interval histograms",
            histograms,
            _tables_of_histogram,
            _judged_histograms,
            {"fig_4_12": draw_errors},
            lambda settings: 1,
        ),
        BenchSection(
            "planning",
            "Figures 4.13 to 4.16: a plan per row on a mixed workload",
            planning,
            _tables_of_planning,
            _judged_planning,
            {"fig_4_13": draw_mixed},
            lambda settings: 1 + len(settings.mixed),
        ),
        BenchSection(
            "live",
            "100,000 joins over a cluster of processes, beside a server that describes every pair",
            lambda settings, tick: live(settings.live, tick),
            _tables_of_live,
            _judged_live,
            steps=lambda settings: 2,
        ),
    ),
)
