"""Tables 5.2 and 5.3, Figures 5.6 and 5.7: messages that the server sends, and the time that it takes.

What is measured is what `hullcast bench engine` measures (sim/bench/engine/tables.py). Time is that of this machine,
and other work on it disturbs: the sections say so, and a statement about time is judged only where rounds agree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hullcast.sim.bench.engine.benchmark import EngineSettings
from hullcast.sim.bench.engine.figures import draw_rows, draw_subscriptions
from hullcast.sim.bench.engine.tables import (
    THESIS_GROWTH,
    THESIS_UNICAST,
    RatePoint,
    Requery,
    RowsSection,
    SubscriptionsSection,
    UpdateCost,
    by_rows,
    by_subscriptions,
    chance,
)
from hullcast.sim.bench.frame.machine import machine
from hullcast.sim.bench.frame.timing import Spread
from hullcast.sim.experiments.run import ExperimentRun
from hullcast.sim.experiments.steps import write_rows
from hullcast.sim.experiments.traffic.judging import CITED, FLAT, LINEAR, grew
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor, growth, number, short, span, times
from hullcast.sim.spark.storage import Place

#: Of a table of Xie (2007): S-CN may differ by so much, S-UN by so many deviations of chance (spikes are rare).
NEAR, DEVIATIONS = 1.05, 3.0
#: S-UN's time for each subscription may change by so much where it is called linear.
LINEAR_TIME = (0.5, 1.25)
#: "Slightly increase", and "increases only by 20 %", as factors.
SLIGHTLY, FIFTH = (1.0, 1.1), (1.1, 1.3)
#: Rounds whose quartiles differ by more say nothing.
NOISE = 1.3


@dataclass(frozen=True, slots=True)
class OnMachine:
    """What was measured, and where."""

    machine: dict[str, Any]
    rows: RowsSection | None = None
    subscriptions: SubscriptionsSection | None = None

    @property
    def words(self) -> str:
        """Which machine it was, and what to think of times."""
        here = self.machine
        return (
            f"Measured on {here['cpu']}, {here['cores']} cores, load average {here['load'][0]} at the start, Python "
            f"{here['python']}, numba {here['numba']}, {here['date'][:10]}. Times are those of this machine, and other "
            "work on it disturbs them; compare ratios."
        )


def server_sections(run: ExperimentRun, settings: EngineSettings, asked: Sequence[str]) -> dict[str, Section]:
    """The sections asked for among 5.2, 5.3, 5.6 and 5.7; each pair of a table and a figure is measured once."""
    found: dict[str, Section] = {}
    folder = run.folder.folder
    if {"5.2", "5.6"} & set(asked):
        ticks = len(settings.rows) + settings.rounds + 1
        rows = _measured(run, "server-rows", settings, ticks, lambda tick: {"rows": by_rows(settings, tick)})
        assert rows.rows is not None
        found |= {"5.2": messages_by_rows(rows.rows, settings, folder), "5.6": time_by_rows(rows, folder)}
    if {"5.3", "5.7"} & set(asked):
        ticks = len(settings.sweep) + settings.rounds + 1 + len(settings.curve)
        subs = _measured(
            run,
            "server-subscriptions",
            settings,
            ticks,
            lambda tick: {"subscriptions": by_subscriptions(settings, tick)},
        )
        assert subs.subscriptions is not None
        found["5.3"] = messages_by_subscriptions(subs.subscriptions, settings, folder)
        found["5.7"] = time_by_subscriptions(subs, folder)
    return {name: section for name, section in found.items() if name in asked}


def _measured(
    run: ExperimentRun, name: str, settings: EngineSettings, ticks: int, measure: Callable[[Callable[[str], None]], Any]
) -> OnMachine:
    """What a step measured. Spark ends first: even an idle JVM takes some time."""

    def make(path: Place) -> None:
        run.stop_spark()
        here, done = machine(), 0

        def tick(what: str) -> None:
            nonlocal done
            run.progress.tasks(done, ticks)
            done += 1

        told = {"machine": here, **{part: asdict(section) for part, section in measure(tick).items()}}
        (path / "measured.json").write_bytes(json.dumps(told, indent=1).encode())

    place = run.step(name, {"engine": asdict(settings)}, make, what=name.replace("-", ", by "))
    return _read(json.loads((place / "measured.json").read_bytes()))


def _read(told: dict[str, Any]) -> OnMachine:
    """What `asdict` made plain, as it was."""

    def line(plain: dict[str, Any]) -> UpdateCost:
        spreads = {name: Spread(**value) for name, value in plain.items() if isinstance(value, dict)}
        thesis = tuple(plain["thesis"]) if plain["thesis"] else None
        return UpdateCost(**{**plain, **spreads, "thesis": thesis})

    rows = subscriptions = None
    if "rows" in told:
        requeries = tuple(Requery(**plain) for plain in told["rows"]["requery"])
        rows = RowsSection(tuple(map(line, told["rows"]["lines"])), requeries)
    if "subscriptions" in told:
        points = tuple(RatePoint(**plain) for plain in told["subscriptions"]["curve"])
        subscriptions = SubscriptionsSection(tuple(map(line, told["subscriptions"]["lines"])), points)
    return OnMachine(told["machine"], rows, subscriptions)


def _table(lines: Sequence[UpdateCost], path: Path) -> Path:
    write_rows(map(asdict, lines), path)
    return path


# -- messages --------------------------------------------------------------------------------------------------


def messages_by_rows(section: RowsSection, settings: EngineSettings, folder: Path) -> Section:
    """Table 5.2."""
    lines = section.lines
    small = [line.messages for line in lines if line.rows <= 100_000]
    grows = times(small[-1], small[0])
    return Section(
        "5.2",
        "Table 5.2: messages by the number of rows",
        f"{settings.subscriptions:,} subscriptions of Table 5.1, {settings.rounds * settings.updates:,} updates (S-UN: "
        f"{settings.rounds * settings.unicast_updates:,}), none ignorable, {_SPIKES}",
        "S-CN sends 2.1 messages per update, slightly more with more rows; S-UN sends hundreds, more than 300 times as "
        "many with 10,000 rows.",
        [
            *_as_published(lines, lambda line: line.rows, settings, 500_000, settings.subscriptions),
            Claim("", f"S-CN's number grows slightly up to 100k rows (by up to {SLIGHTLY[1]}x)", grew(grows),
                  SLIGHTLY[0] < grows <= SLIGHTLY[1], "where a changed y is drawn anew, a row's hull has two points on "
                  "average, however many rows there are", paper="2.10 to 2.22, 1.06x"),
        ],
        [_table(lines, folder / "table_5_2.parquet")],
        figures=[_messages("rows", lines, lambda line: line.rows)],
        cited=CITED,
        items=("Table 5.2",),
    )  # fmt: skip


def messages_by_subscriptions(section: SubscriptionsSection, settings: EngineSettings, folder: Path) -> Section:
    """Table 5.3."""
    lines = section.lines
    grows = growth([line.messages for line in lines])
    each = [line.told / line.subscriptions for line in lines]
    return Section(
        "5.3",
        "Table 5.3: messages by the number of subscriptions",
        f"{settings.fewest_rows:,} rows, {settings.rounds * settings.updates:,} updates (S-UN: "
        f"{settings.rounds * settings.unicast_updates:,}), none ignorable, {_SPIKES}",
        "S-CN sends 2.08 messages per update, whatever the number of subscriptions; S-UN's messages grow linearly.",
        [
            *_as_published(lines, lambda line: line.subscriptions, settings, 10_000, settings.fewest_rows),
            Claim("", "S-CN's number does not depend on the subscriptions", grew(grows), grows <= 1.0001, "it varies",
                  construction="S-CN describes whose answers change, and knows no subscription", paper="2.08"),
            Claim("", f"S-UN's number is linear (per subscription it varies by at most {LINEAR}x)", grew(growth(each)),
                  growth(each) <= LINEAR, "subscriptions drawn later are affected more or less often", paper="linear"),
        ],
        [_table(lines, folder / "table_5_3.parquet")],
        figures=[_messages("subscriptions", lines, lambda line: line.subscriptions)],
        cited=CITED,
        items=("Table 5.3",),
    )  # fmt: skip


_SPIKES = "0.5 % spikes; a changed y is drawn anew, which gives the published numbers of messages."


def _as_published(
    lines: Sequence[UpdateCost], size: Callable[[UpdateCost], int], settings: EngineSettings, needed: int, there: int
) -> list[Claim]:
    """That both numbers are those of the table, at the sizes that it has."""
    known = [(line, line.thesis) for line in lines if line.thesis is not None]
    unknown = "" if known else "no size of the table was measured"
    if needed != there:
        unknown = f"the table has {needed:,}, and this run {there:,} of the other"
    ours = [times(line.messages, theirs[0]) for line, theirs in known] or [1.0]
    told = [times(line.told, theirs[1]) for line, theirs in known] or [1.0]
    luck = DEVIATIONS * chance(settings)
    return [
        Claim("", f"S-CN sends as many as in the table (within {NEAR - 1:.0%})", f"{_share(ours)} of them",
              all(1 / NEAR <= ratio <= NEAR for ratio in ours), "theirs grow with the rows, and ours do not",
              unknown="" if known else unknown, paper=_listed(theirs[0] for _, theirs in known)),
        Claim("", f"S-UN sends as many as in the table (within {luck:.0%}, {DEVIATIONS:.0f} deviations of chance)",
              f"{_share(told)} of them", all(abs(ratio - 1) <= luck for ratio in told),
              "more or fewer subscriptions are affected", unknown=unknown,
              paper=_listed(theirs[1] for _, theirs in known)),
    ]  # fmt: skip


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _share(ratios: Sequence[float]) -> str:
    ends = [f"{min(ratios):.0%}", f"{max(ratios):.0%}"]
    return " to ".join(dict.fromkeys(ends))


def _messages(first: str, lines: Sequence[UpdateCost], size: Callable[[UpdateCost], int]) -> list[list[str]]:
    rows = [[first, "S-CN", "Xie (2007)", "S-UN", "Xie (2007)"]]
    for line in lines:
        theirs = (f"{line.thesis[0]:.2f}", f"{line.thesis[1]:,.0f}") if line.thesis else ("", "")
        rows.append([f"{size(line):,}", f"{line.messages:.2f}", theirs[0], f"{line.told:,.0f}", theirs[1]])
    return rows


# -- time ------------------------------------------------------------------------------------------------------


def time_by_rows(measured: OnMachine, folder: Path) -> Section:
    """Figure 5.6."""
    assert measured.rows is not None
    lines, picture = measured.rows.lines, folder / "fig_5_6.png"
    draw_rows(measured.rows, picture)
    small = [line for line in lines if line.rows <= 100_000]
    first, last = small[0], small[-1]
    low, high = THESIS_UNICAST
    ends = f"{short(first.rows)} to {short(last.rows)} rows"
    dearer = [line.unicast_ratio.median for line in small]
    return Section(
        "5.6",
        "Figure 5.6: time by the number of rows",
        f"The updates of Table 5.2, with {first.subscriptions:,} subscriptions. {measured.words}",
        f"S-CN's time grows by 20 % from 10k to 100k rows. S-UN takes {high} times as long with 10k rows, and {low} "
        "times with 100k.",
        [
            Claim("", f"S-CN's time grows by about a fifth from {ends} ({FIFTH[0]}x to {FIFTH[1]}x)",
                  grew(last.growth.median), FIFTH[0] <= last.growth.median <= FIFTH[1],
                  f"it grows by {'more' if last.growth.median > FIFTH[1] else 'less'} here",
                  unknown=_noisy(last.growth), paper=f"{THESIS_GROWTH}x"),
            Claim("", f"S-UN takes {low} to {high} times as long as S-CN", _factors(dearer),
                  low <= min(dearer) and max(dearer) <= high, f"S-CN takes {number(first.engine_us)} us for an update "
                  f"here, and S-UN changes {first.told:,.0f} answers besides",
                  unknown=_noisy(*(line.unicast_ratio for line in small)), paper=f"{high}x, then {low}x"),
            Claim("", "the gap narrows with more rows", f"{factor(dearer[0])}, then {factor(dearer[-1])}",
                  dearer[-1] < dearer[0], "S-UN's part that does not shrink with the number of rows is larger here",
                  unknown=_noisy(first.unicast_ratio, last.unicast_ratio), paper=f"{high}x, then {low}x"),
        ],
        pictures={"Microseconds per update by the number of rows, S-CN and S-UN": picture},
        figures=[_times("rows", lines, lambda line: line.rows)],
        cited=CITED,
        items=("Figure 5.6",),
    )  # fmt: skip


def time_by_subscriptions(measured: OnMachine, folder: Path) -> Section:
    """Figure 5.7."""
    assert measured.subscriptions is not None
    lines, picture = measured.subscriptions.lines, folder / "fig_5_7.png"
    draw_subscriptions(measured.subscriptions, picture)
    first, last = lines[0], lines[-1]
    more = last.subscriptions / first.subscriptions
    slower = times(last.unicast_us, first.unicast_us) / more
    low, high = LINEAR_TIME
    return Section(
        "5.7",
        "Figure 5.7: time by the number of subscriptions",
        f"The updates of Table 5.3, with {first.rows:,} rows. {measured.words}",
        "S-CN's time does not depend on the number of subscriptions, S-UN's is linear.",
        [
            Claim("", f"S-CN's time does not depend on the subscriptions (at most {FLAT}x)",
                  span([line.growth.median for line in lines]) + "x of the first",
                  growth([line.growth.median for line in lines]) <= FLAT, "its rounds differ from size to size",
                  construction="S-CN knows no subscription: what it varies by is noise of this machine",
                  unknown=_noisy(*(line.growth for line in lines)), paper="constant"),
            Claim("", f"S-UN's time is linear ({more:.0f}x the subscriptions: {low * more:.1f}x to {high * more:.1f}x)",
                  factor(slower * more), low <= slower <= high, _not_linear(slower),
                  unknown=_noisy(first.unicast_ratio, last.unicast_ratio), paper="linear"),
        ],
        pictures={"Microseconds per update by the number of subscriptions, S-CN and S-UN": picture},
        figures=[_times("subscriptions", lines, lambda line: line.subscriptions)],
        cited=CITED,
        items=("Figure 5.7",),
    )  # fmt: skip


def _not_linear(slower: float) -> str:
    """Why S-UN's time does not grow as the subscriptions do."""
    if slower < 1:
        return "a part of it does not depend on subscriptions"
    return "each affected subscription takes longer the more there are; what makes it slower is not known"


def _noisy(*ratios: Spread) -> str:
    """Why these cannot be judged, if so."""
    worst = max(times(ratio.q3, ratio.q1) for ratio in ratios)
    return f"quartiles of the rounds differ by {worst:.2f}x: other work disturbs" if worst > NOISE else ""


def _factors(ratios: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys((factor(min(ratios)), factor(max(ratios)))))


def _times(first: str, lines: Sequence[UpdateCost], size: Callable[[UpdateCost], int]) -> list[list[str]]:
    rows = [[first, "S-CN, us", "growth (quartiles)", "S-UN, us", "S-UN / S-CN (quartiles)"]]
    for line in lines:
        grown, dearer = line.growth, line.unicast_ratio
        rows.append(
            [
                f"{size(line):,}",
                number(line.engine_us),
                f"{grew(grown.median)} ({grew(grown.q1)} to {grew(grown.q3)})",
                number(line.unicast_us),
                f"{factor(dearer.median)} ({factor(dearer.q1)} to {factor(dearer.q3)})",
            ]
        )
    return rows
