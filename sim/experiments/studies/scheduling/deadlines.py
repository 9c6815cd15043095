"""Queries with deadlines over changing data: ORAD against ODRTB (Vu and Gopalkrishnan (2009))."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from hullcast.sim.experiments.studies.scheduling.baselines import TOLERANCE_S
from hullcast.sim.experiments.studies.scheduling.transactions import (
    BURST,
    FAN_OUT,
    ODRTB_0,
    ODRTB_IDLE,
    ODRTB_NOW,
    OPERATION_S,
    QUERIES_FIRST,
    READS,
    SLACK,
    UPDATES_FIRST,
    Simulation,
    Table2,
)
from hullcast.sim.experiments.study import GridPoint, Sweep
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor, number

CITED = "Vu and Gopalkrishnan (2009)"
WORDS: Mapping[str, str] = {
    CITED: "N. H. Vu, V. Gopalkrishnan, On Scheduling Data Loading and View Maintenance in Soft Real-time Data "
    "Warehouses, 2009; Table 2 is its table of parameters",
    "transaction": "a query that reads 50 objects one by one, and is of no use after its deadline",
    "miss rate": "the part of all transactions that did not end before their deadline",
    "success rate": "the part that ended before their deadline, and read the latest version of every object",
    "looks per read": "versions of an object that were looked at to find the one to read",
    "place": "a processor with its disk: it does one operation at a time",
    "odrtb": "ODRTB whose transactions have open intervals, as ORAD's: the current version overlaps most",
    ODRTB_NOW: "the other reading of the paper: intervals of transactions end now, so what was right for long overlaps "
    "most",
    ODRTB_IDLE: "the same for what idle time computes: views as of a moment that has passed",
    ODRTB_0: "a control, not of the paper: ODRTB whose transactions read nothing that ended before they began",
    "whole": "a view is computed by reading all its parents (20 on average), not only those that changed",
}

ORAD, ODRTB = "orad", "odrtb"
COMPARED = (ORAD, ODRTB, ODRTB_NOW)
POLICIES = (*COMPARED, UPDATES_FIRST, QUERIES_FIRST, ODRTB_0)
#: The paper says neither how many operations run at a time nor how views are computed: (places, whole).
Setting = tuple[int, bool]
SETTINGS: Mapping[Setting, str] = {
    (1, False): "1 place", (4, False): "4 places", (4, True): "4 places (whole)", (1, True): "1 place (whole)"
}  # fmt: skip
ARRIVALS, QUICK_ARRIVALS = (0.5, 1.0, 2.0, 3.5, 5.0), (1.0, 2.0, 5.0)
VERSION_S, QUICK_VERSION_S = (0.0005, 0.001, 0.002, 0.0035, 0.005), (0.0005, 0.002, 0.005)
CACHED, QUICK_CACHED = (0.2, 0.3, 0.4, 0.5, 0.6), (0.2, 0.6)
BURSTS, QUICK_BURSTS = (0.3, 1.2, 4.8), (1.2, 4.8)
DEFAULT = asdict(Table2())
FEW, OBJECTS = 60, Table2().objects
UPDATES = Table2().bursts * fmean(BURST)  # per second

# Limits, where the paper's words leave room.
CLOSE = 0.005  # half a percentage point more still counts as no more
MISSES = 0.02  # "still less than 2 %"
VERSIONS = 2.0  # "less than two versions"
TIMES_VERSIONS = (1.75, 3.5)  # "about two to three times"
ONE_LOOK, THREE_LOOKS = 1.25, (2.75, 4.25)  # "only one scan", "three to four times"


# -- what is measured ------------------------------------------------------------------------------------------


def points(quick: bool) -> list[dict[str, Any]]:
    """One parameter at a time is not as in Table 2; the rate of bursts, and the number of objects, by arrivals."""
    size = {"transactions": 60, "warm_s": 30.0} if quick else {}
    arrivals, version_s, bursts, cached = (
        (QUICK_ARRIVALS, QUICK_VERSION_S, QUICK_BURSTS, QUICK_CACHED)
        if quick
        else (ARRIVALS, VERSION_S, BURSTS, CACHED)
    )
    found: list[dict[str, Any]] = []
    for places, whole in list(SETTINGS)[: 3 if quick else 4]:
        setting = {**DEFAULT, **size, "places": places, "whole": whole}
        found += [{**setting, "policy": policy, "arrivals": x} for policy in POLICIES for x in arrivals]
        found += [{**setting, "policy": policy, "version_s": x} for policy in POLICIES for x in version_s]
        for policy in COMPARED:
            found += [{**setting, "policy": policy, "bursts": x, "arrivals": y} for x in bursts for y in arrivals]
            found += [{**setting, "policy": policy, "objects": FEW, "arrivals": x} for x in arrivals]
        found += [{**setting, "policy": ORAD, "cached": x} for x in cached]
        found += [{**setting, "policy": ODRTB_IDLE}]
    return [point for place, point in enumerate(found) if point not in found[:place]]


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """One run; all policies have the same workload of a seed."""
    setting = Table2(**{name: point[name] for name in DEFAULT})
    tally = Simulation(point["policy"], setting, setting.load(seed)).run()
    ended = max(1, tally.transactions)
    return {
        "miss": tally.missed / ended,
        "success": tally.fresh / ended,
        "recent": tally.recent / ended,
        "consistent": tally.consistent / max(1, ended - tally.missed),
        "versions": fmean(tally.versions),
        "looks": tally.looked / max(1, tally.reads),
        "updates on demand": tally.updates_on_demand / ended,
        "views on demand": tally.views_on_demand / ended,
    }


# -- what is found ---------------------------------------------------------------------------------------------


def _settings(found: Sweep) -> dict[Setting, str]:
    """Those that were measured; a quick run leaves out the last, in which nothing is ever idle."""
    there = {(row["places"], row["whole"]) for row in found.rows}
    return {setting: told for setting, told in SETTINGS.items() if setting in there}


def _point(policy: str, setting: Setting, other: Mapping[str, float]) -> dict[str, Any]:
    """As in Table 2 but for what is given."""
    varied = {name: DEFAULT[name] for name in ("arrivals", "bursts", "version_s", "cached", "objects")}
    return {"policy": policy, "places": setting[0], "whole": setting[1], **varied, **other}


def _default(found: Sweep, metric: str, policy: str, setting: Setting, **other: float) -> float:
    """The middle of the draws of a metric there."""
    return found.middle(metric, **_point(policy, setting, other))


def _curve(
    found: Sweep, parameter: str, metric: str, policy: str, setting: Setting, **other: float
) -> list[tuple[float, list[float]]]:
    """The same over one parameter, all draws."""
    fixed = _point(policy, setting, other)
    del fixed[parameter]
    return found.along(parameter, metric, **fixed)


def _values(found: Sweep, parameter: str, metric: str, policy: str, setting: Setting, **other: float) -> list[float]:
    """The middle of the draws at each value of a parameter."""
    return [median(values) for _, values in _curve(found, parameter, metric, policy, setting, **other)]


def sections(found: Sweep, folder: Path) -> list[Section]:
    """One for each of the paper's figures, and one for what it says without."""
    run = (
        f"Table 2, some {found.rows[0]['transactions']} transactions after {found.rows[0]['warm_s']:.0f} s to warm up. "
        "Places and the way views are computed are ours, because the paper says neither."
    )
    bursts = [rate for rate in sorted(found.all_of("bursts")) if rate != DEFAULT["bursts"]]
    rates: list[_Row] = [("miss", "miss rate", {}), ("success", "success rate", {})]

    def drawn(parameter: str, told: str, rows: Sequence[_Row] = rates, name: str = "", **more: Any) -> Path:
        return _picture(found, folder / f"deadlines-{name or parameter}.png", parameter, told, rows, **more)

    return [
        Section(
            "deadlines-arrivals", "Deadlines: by arrival rate", run + " Transactions per second are varied.",
            "the more arrive, the more deadlines are missed; ORAD always misses fewer than ODRTB, and more "
            "transactions meet their deadline with fresh data. Transactions-first misses few but reads old data, on "
            "demand is best.",
            _judged(found, _by_arrivals) + _lost(found, ("miss", "Figure 4(a)"), ("success", "Figure 4(b)")),
            pictures={"Miss and success rate by arrival rate": drawn("arrivals", "transactions/s", policies=POLICIES)},
            figures=[_table(found)], notes=[_floor(found), _readings(found)], cited=CITED,
            items=("Figure 4(a)", "Figure 4(b)", "Table 2"),
        ),
        Section(
            "deadlines-versions", "Deadlines: by what it costs to look at a version",
            run + " From 10 to 100 % of the cost of a read.",
            "ORAD always misses fewer deadlines than ODRTB, and suffers less from dear versions.",
            _judged(found, _by_cost) + _lost(found, ("miss", "Figure 3(a)")),
            pictures={"Miss and success rate by version cost": drawn(
                "version_s", "version cost [ms]", policies=POLICIES, scale=1000)},
            notes=[_why_cost(found)], cited=CITED, items=("Figure 3(a)",),
        ),
        Section(
            "deadlines-cache", "Deadlines: by the size of the cache of what is read often",
            run + " The cache holds from 20 to 60 % of the frequent objects.",
            "the larger the cache, the fewer deadlines are missed, and even with the smallest fewer than 2 %.",
            _judged(found, _by_cache),
            pictures={"Miss and success rate of ORAD by cache size": drawn(
                "cached", "size of the cache [share of the frequent objects]", policies=(ORAD,))},
            notes=[_why_cache(found)], cited=CITED, items=("Figure 3(b)",),
        ),
        Section(
            "deadlines-bursts", "Deadlines: by how many updates come",
            run + " For each rate of bursts, transactions per second are varied.",
            "for each rate of bursts and of transactions ORAD misses fewer deadlines, and more transactions succeed.",
            _judged(found, _by_bursts),
            pictures={"Miss and success rate by arrival rate, for each rate of bursts": drawn(
                "arrivals", "transactions/s",
                [(metric, f"{told}, {rate:g} bursts/s", {"bursts": rate})
                 for metric, told, _ in rates for rate in bursts], "bursts")},
            cited=CITED, items=("Section 5, update bursts",),
        ),
        Section(
            "deadlines-memory", "Deadlines: versions kept, and looked at",
            run + f" Below: the same updates on {FEW} objects.",
            "ORAD keeps fewer than two versions of an object, ODRTB two to three times as many; ORAD looks at one "
            "version per read, ODRTB at three to four.",
            _judged(found, _memory) + _lost(found, ("versions", "Figure 4(c)")),
            pictures={"Versions per object and looks per read by arrival rate": drawn(
                "arrivals", "transactions/s",
                [("versions", f"versions, {OBJECTS:,} objects", {}), *(
                    (metric, f"{metric}, {FEW} objects", {"objects": FEW}) for metric in ("versions", "looks"))],
                "memory")},
            figures=[_objects(found)], notes=[_why_memory(), _why_few(found)], cited=CITED, items=("Figure 4(c)",),
        ),
    ]  # fmt: skip


#: What a row of a picture shows: a metric, its name, and what is not as in Table 2.
_Row = tuple[str, str, Mapping[str, float]]


def _picture(
    found: Sweep, path: Path, parameter: str, told: str, rows: Sequence[_Row],
    policies: Sequence[str] = COMPARED, scale: float = 1,
) -> Path:  # fmt: skip
    """A column for each setting; `scale` takes the parameter to the unit of the axis."""

    def curve(metric: str, policy: str, setting: Setting, other: Mapping[str, float]) -> BandCurve:
        points = _curve(found, parameter, metric, policy, setting, **other)
        return BandCurve(policy, [(scale * x, values) for x, values in points], thin=policy == ODRTB_0)

    panels = [
        [
            Panel(
                title if place == 0 else "",
                [curve(metric, policy, setting, other) for policy in policies],
                y_label=label if setting == (1, False) else "",
            )
            for setting, title in _settings(found).items()
        ]
        for place, (metric, label, other) in enumerate(rows)
    ]
    words = " and ".join(dict.fromkeys(label.partition(",")[0] for _, label, _ in rows))
    return draw_panels(panels, path, title=f"{words.capitalize()} by {told}", x_label=told, y_log=False)


# -- claims ----------------------------------------------------------------------------------------------------


def _points(value: float) -> str:
    return f"{100 * value:+.1f} points"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _lost(found: Sweep, *curves: tuple[str, str]) -> list[Claim]:
    """A curve each that the paper draws: its values cannot be compared, whatever the words about it say."""
    return [
        Claim(
            subject, f"{metric} at Table 2: {', '.join(COMPARED)}",
            ", ".join((number if metric == "versions" else _share)(_default(found, metric, policy, setting))
                      for policy in COMPARED),
            holds=False, incomparable="the text that we have of the paper is without its pictures", item=item,
            paper="a curve",
        )
        for metric, item in curves for setting, subject in _settings(found).items()
    ]  # fmt: skip


def _judged(found: Sweep, judge: Callable[[Sweep, Setting], list[Claim]]) -> list[Claim]:
    """Each statement for every setting, and in every draw."""
    return found.judged(
        lambda draw: [
            replace(claim, subject=subject)
            for setting, subject in _settings(draw).items()
            for claim in judge(draw, setting)
        ]
    )


def _compared(
    found: Sweep, setting: Setting, parameter: str, told: str, items: Mapping[str, str],
    others: Iterable[Mapping[str, float]] = ({},),
) -> list[Claim]:  # fmt: skip
    """ORAD beside both readings of ODRTB where it compares worst; `items`: by metric."""
    claims = []
    for metric, item in items.items():
        sign, word = (1, "fewer deadlines missed") if metric == "miss" else (-1, "more successes")
        because = _TOLERANT if metric == "miss" and setting[1] else "the two differ by few transactions"
        ours, *theirs = (
            [x for other in others for x in _values(found, parameter, metric, policy, setting, **other)]
            for policy in COMPARED
        )
        for policy, values in zip(COMPARED[1:], theirs, strict=True):
            more = [sign * (mine - other) for mine, other in zip(ours, values, strict=True)]
            told_so = f"{word} than by {policy} at every {told} (where it compares worst; 0.5 points allowed)"
            holds = max(more) <= CLOSE and fmean(more) < 0
            claims.append(Claim.of("", told_so, sign * max(more), holds, because, _points, item=item,
                                   paper=word.partition(" ")[0]))  # fmt: skip
    return claims


#: As the control shows (`ODRTB_0`).
_TOLERANT = (
    f"ODRTB may read what was right {TOLERANCE_S:.0f} s before, and so has fewer views to compute on demand (without "
    "these seconds, 'odrtb, 0 s' in the table of arrival rates, it misses about as many as ORAD)"
)


def _steady(
    found: Sweep, setting: Setting, parameter: str, metric: str, policies: Iterable[str], statement: str, item: str,
    sign: int = 1,
) -> Claim:  # fmt: skip
    """More at each step (sign -1: less), with what `CLOSE` allows, for each policy; from first to last where least."""
    curves = [[sign * x for x in _values(found, parameter, metric, policy, setting)] for policy in policies]
    whole = min(curve[-1] - curve[0] for curve in curves)
    holds = whole > 0 and all(b - a >= -CLOSE for curve in curves for a, b in pairwise(curve))
    return Claim.of("", f"{statement} (last less first; a step back of 0.5 points is allowed)", sign * whole, holds,
                    "it differs less than the draws do", _points, item=item,
                    paper="more" if sign > 0 else "less")  # fmt: skip


def _by_arrivals(found: Sweep, setting: Setting) -> list[Claim]:
    def beyond(metric: str, policy: str) -> float:
        """A policy less ORAD, of means."""
        theirs, ours = (fmean(_values(found, "arrivals", metric, each, setting)) for each in (policy, ORAD))
        return theirs - ours

    quick, stale = beyond("miss", QUERIES_FIRST), beyond("success", QUERIES_FIRST)
    late = beyond("success", UPDATES_FIRST)
    idle = _default(found, "miss", ORAD, setting) - _default(found, "miss", ODRTB_IDLE, setting)
    return [
        *_compared(found, setting, "arrivals", "arrival rate", {"miss": "Figure 4(a)", "success": "Figure 4(b)"}),
        Claim.of("", f"fewer deadlines missed at Table 2 than by {ODRTB_IDLE}", idle, idle < 0,
                 "the two differ by few transactions", _points, item="Figure 4(a)", paper="fewer"),
        _steady(found, setting, "arrivals", "miss", (ORAD, ODRTB), "both miss more with more arrivals", "Figure 4(a)"),
        _steady(found, setting, "arrivals", "success", (ORAD, ODRTB), "both succeed less with more arrivals",
                "Figure 4(b)", -1),
        Claim.of("", "queries-first misses no more than ORAD (mean)", quick, quick <= CLOSE, "it misses more", _points,
                 item="Section 2.2", paper="performs decently"),
        Claim.of("", "queries-first succeeds less than ORAD (mean)", stale, stale < 0,
                 "idle time is enough to apply nearly all updates, so that what it reads is fresh", _points,
                 item="Section 2.2", paper="too stale"),
        Claim.of("", "updates-first succeeds less than ORAD (mean)", late, late < 0, "it succeeds as often", _points,
                 item="Section 2.2", paper="on demand is best"),
    ]  # fmt: skip


def _by_cost(found: Sweep, setting: Setting) -> list[Claim]:
    item = "Figure 3(a)"
    curves = (_values(found, "version_s", "miss", policy, setting) for policy in (ORAD, ODRTB))
    ours, theirs = (curve[-1] - curve[0] for curve in curves)
    return [
        *_compared(found, setting, "version_s", "version cost", {"miss": item}),
        _steady(found, setting, "version_s", "miss", (ORAD, ODRTB), "both miss more the dearer versions are", item),
        Claim.of("", "the miss rate grows less than ODRTB's from the least to the greatest cost", ours - theirs,
                 ours < theirs, _TOLERANT if setting == (4, True) else "there is one version of nearly every object",
                 _points, item=item, paper="scales better"),
    ]  # fmt: skip


def _by_cache(found: Sweep, setting: Setting) -> list[Claim]:
    item, least = "Figure 3(b)", _values(found, "cached", "miss", ORAD, setting)[0]
    return [
        Claim.of("", "fewer than 2 % missed with the smallest cache", least, least < MISSES,
                 "reads alone take longer than 2 % of the deadlines allow, and there is waiting besides", _share,
                 item=item, paper="< 2 %"),
        _steady(found, setting, "cached", "miss", (ORAD,), "fewer missed the larger the cache is", item, -1),
    ]  # fmt: skip


def _by_bursts(found: Sweep, setting: Setting) -> list[Claim]:
    items = dict.fromkeys(("miss", "success"), "Section 5, update bursts")
    others = [{"bursts": rate} for rate in found.all_of("bursts")]
    return _compared(found, setting, "arrivals", "rate of bursts and of arrivals", items, others)


def kept(seconds: float, objects: int = OBJECTS, *, views: bool = False) -> float:
    """How many versions each object has on average if those of so many seconds are kept, at the rates of Table 2;
    `views`: and each view is computed anew after every update of its parents."""
    return 1 + UPDATES * (1 + views * fmean(FAN_OUT)) * seconds / (objects + objects // 10)


def _memory(found: Sweep, setting: Setting) -> list[Claim]:
    claims, latest = [], SLACK[1] * READS * OPERATION_S
    few = f"what came in {TOLERANCE_S:.0f} s makes {kept(TOLERANCE_S):.3f} versions of an object (see below)"
    given = f"what comes in {latest:.1f} s, the latest deadline, makes {kept(latest, views=True):.3f} versions"
    unknown = "how often the paper's objects changed is not known"
    for objects, construction, because in ((OBJECTS, given, few), (FEW, "", unknown)):
        orad, odrtb = (
            [_values(found, "arrivals", metric, policy, setting, objects=objects) for metric in ("versions", "looks")]
            for policy in (ORAD, ODRTB)
        )
        most, ratio = max(orad[0]), fmean(odrtb[0]) / fmean(orad[0])
        one, several = fmean(orad[1]), fmean(odrtb[1])
        at = f"{objects:,} objects: "
        claims += [
            Claim.of("", at + "ORAD keeps fewer than 2 versions per object (most)", most, most < VERSIONS,
                     "it keeps more", construction=construction, item="Figure 4(c)", paper="< 2"),
            Claim.of("", at + "ODRTB keeps 2 to 3 times as many (1.75 to 3.5 times)", ratio,
                     TIMES_VERSIONS[0] <= ratio <= TIMES_VERSIONS[1], because, factor, item="Figure 4(c)",
                     paper="2x to 3x"),
            Claim.of("", at + "ORAD looks at about 1 version per read (at most 1.25)", one, one <= ONE_LOOK,
                     "it looks at more", construction=construction, item="Section 5, looks", paper="1"),
            Claim.of("", at + "ODRTB looks at 3 to 4 versions per read (2.75 to 4.25)", several,
                     THREE_LOOKS[0] <= several <= THREE_LOOKS[1], because, item="Section 5, looks", paper="3 to 4"),
        ]  # fmt: skip
    return claims


# -- paragraphs and tables -------------------------------------------------------------------------------------


def _table(found: Sweep) -> list[list[str]]:
    """All metrics at Table 2."""
    rows = [["Table 2, medians", "policy", "miss", "success", "recent", "consistent", "views on demand"]]
    for setting, told in _settings(found).items():
        for policy in (*POLICIES, ODRTB_IDLE):
            cells = [_share(_default(found, metric, policy, setting)) for metric in rows[0][2:6]]
            if _default(found, "miss", policy, setting) == 1:
                cells[-1] = "none met"
            rows.append([told, policy, *cells, number(_default(found, "views on demand", policy, setting))])
    return rows


def _floor(found: Sweep) -> str:
    def listed(policy: str) -> str:
        return ", ".join(
            f"{_share(_default(found, 'miss', policy, setting))} ({told})" for setting, told in _settings(found).items()
        )

    return (
        "Queries-first does nothing but read while a transaction waits, so hardly any policy can miss fewer at these "
        f"costs: {listed(QUERIES_FIRST)}. *recent*: met its deadline, and read only what was right at its start or "
        "later; *consistent*: of those that met it, the part whose reads were all right at one moment (ORAD and ODRTB "
        "promise that). *odrtb, 0 s* is a control: ODRTB that takes the widest overlap still, but neither reads nor "
        f"keeps what ended before. It misses {listed(ODRTB_0)}, ORAD {listed(ORAD)}: where they agree and ODRTB does "
        "not, what decides is how old versions may be. That ODRTB's transactions may read 10 s back is how we "
        "understand the paper, which says only that ODRTB keeps versions for so long and that they may be slightly "
        "stale."
    )


def _readings(found: Sweep) -> str:
    def listed(metric: str) -> str:
        return "; ".join(
            f"{policy} " + ", ".join(_share(_default(found, metric, policy, setting)) for setting in _settings(found))
            for policy in (*COMPARED, ODRTB_IDLE)
        )

    return (
        "Where the interval of ODRTB's transactions ends, the paper does not say, so both readings are here: open, "
        f"and *{ODRTB_NOW}*. With *{ODRTB_IDLE}* views are computed in idle time, too, as of what was right for long; "
        "such a view is outdated when it is done, and idle time computes it once more. At Table 2 "
        f"({', '.join(_settings(found).values())}): miss rates {listed('miss')}; success rates {listed('success')}."
    )


def _why_cost(found: Sweep) -> str:
    ours, theirs = (_values(found, "version_s", "miss", policy, (4, False)) for policy in (ORAD, ODRTB))
    dear = max(found.all_of("version_s"))
    return (
        f"With 4 places ORAD misses {_share(ours[0])} with cheap versions and {_share(ours[-1])} with dear ones, ODRTB "
        f"{_share(theirs[0])} and {_share(theirs[-1])}. A read costs {1000 * OPERATION_S:g} ms and one look at least, "
        f"and deadlines count the {1000 * OPERATION_S:g} ms only: at {1000 * dear:g} ms a look, slack below "
        f"{1 + dear / OPERATION_S:.2f} is not enough for anybody."
    )


def _why_cache(found: Sweep) -> str:
    look = DEFAULT["version_s"]
    alone = (1 + look / OPERATION_S - SLACK[0]) / (SLACK[1] - SLACK[0])
    demand = ", ".join(
        f"{number(_default(found, 'updates on demand', ORAD, setting))} ({told})"
        for setting, told in _settings(found).items()
    )
    return (
        f"{READS} reads with one look each take {1000 * READS * (OPERATION_S + look):.0f} ms; {_share(alone)} of the "
        "deadlines are nearer than that, so on average fewer cannot be missed. Updates on demand per transaction at "
        f"Table 2: {demand}."
    )


def _objects(found: Sweep) -> list[list[str]]:
    rows = [["Table 2, medians", "base objects", "policy", "versions", "looks", "miss", "success"]]
    for setting, told in _settings(found).items():
        for objects in (FEW, OBJECTS):
            for policy in COMPARED:
                at = {name: _default(found, name, policy, setting, objects=objects) for name in rows[0][3:]}
                cells = [number(at["versions"]), number(at["looks"]), _share(at["miss"]), _share(at["success"])]
                rows.append([told, f"{objects:,}", policy, *cells])
    return rows


def _why_memory() -> str:
    every = OBJECTS + OBJECTS // 10
    alone, all_s = every / UPDATES, every / UPDATES / (1 + fmean(FAN_OUT))
    return (
        f"What Table 2 allows: {DEFAULT['bursts']:g} bursts/s of {fmean(BURST):g} updates are {UPDATES:.1f} updates/s. "
        f"Times {TOLERANCE_S:.0f} s, on {every:,} objects, that makes {kept(TOLERANCE_S):.3f} versions of each, or "
        f"{kept(TOLERANCE_S, views=True):.3f} if every view is computed anew after every update. For two of each, "
        f"versions would have to be kept for {alone:,.0f} s ({all_s:,.0f} s with those of views), or there would have "
        f"to be {UPDATES * TOLERANCE_S:.0f} objects."
    )


def _why_few(found: Sweep) -> str:
    versions, looks = (_default(found, metric, ODRTB, (4, False), objects=FEW) for metric in ("versions", "looks"))
    missed = "; ".join(
        " against ".join(_share(_default(found, "miss", policy, setting, objects=FEW)) for policy in (ORAD, ODRTB))
        + f" ({told})"
        for setting, told in _settings(found).items()
    )
    return (
        f"With the same updates on {FEW} objects, {OBJECTS // FEW} times as many each, and 4 places, ODRTB keeps "
        f"{number(versions)} versions and looks at {number(looks)} per read. Each look costs time: ORAD's miss rate "
        f"against ODRTB's is {missed}."
    )
