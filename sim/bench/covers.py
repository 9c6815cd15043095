"""`hullcast bench covers`: what remembering few boxes saves, and how many needless messages they let through.

Subscriptions of Table 5.1 are split over gateways, at random or by content (each gateway has those around its part of
the domain). A root routes real messages to them: rectangles of a range MIN, and places of a range SUM over the same
updates. Exact routing, which knows every point, says which of them are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from hullcast.network.routing.router import BUDGET, Router
from hullcast.network.wire.arrays import Floats
from hullcast.network.wire.columns import Columns
from hullcast.network.wire.errors import UsageError
from hullcast.network.wire.frames import Form, Install
from hullcast.sim.bench.engine.subjects import engine_of
from hullcast.sim.bench.frame.benchmark import Benchmark, BenchOption, BenchSection, Shown, Tick
from hullcast.sim.bench.frame.timing import Subject, measured_in_turns
from hullcast.sim.output.text import plain_table
from hullcast.sim.seeds import generator
from hullcast.sim.traces.table51 import RANGE_MIN, Changes, RangeColumns, Workload

CHANNEL = 1
SPLITS = ("random", "content")
FORMS: dict[Form, str] = {"rectangles": "MIN", "places": "SUM"}


@dataclass(frozen=True, slots=True)
class CoverSettings:
    """Sizes. `singly` is the budget that is measured once more with subscriptions that come one by one."""

    rows: int = 10_000
    subscriptions: int = 100_000
    gateways: int = 4
    budgets: tuple[int, ...] = (1, 8, 32, 64, 128, 256, 512)
    singly: int = BUDGET
    updates: int = 10_000
    batch: int = 1_000
    rounds: int = 7
    seed: int = 0


QUICK_COVERS = CoverSettings(subscriptions=20_000, budgets=(1, 16, 64, 128, 256), updates=5_000, rounds=3)


@dataclass(frozen=True, slots=True)
class CoverLine:
    """One way of routing. Shares are of all pairs of a message and a gateway."""

    form: str
    split: str
    way: str  # exact, a number of boxes, or everything
    singly: bool  # subscriptions came one by one
    boxes: float  # a gateway
    bytes: float  # a gateway
    needed: float
    sent: float
    needless: float  # of the pairs that are not needed, those sent
    ns: float  # a message and gateway


@dataclass(frozen=True, slots=True)
class CoverLines:
    """All of them."""

    subscriptions: int
    gateways: int
    rounds: int
    lines: tuple[CoverLine, ...]


def measure_covers(settings: CoverSettings, tick: Tick) -> CoverLines:
    """All lines: by form, split and way."""
    if settings.subscriptions < settings.gateways:
        raise UsageError(f"{settings.subscriptions} subscriptions are too few for {settings.gateways} gateways")
    load = Workload(settings.rows, root=settings.seed)
    changes = load.changes(settings.updates)
    ranges = load.ranges(settings.subscriptions)
    lines: list[CoverLine] = []
    for form in FORMS:
        batches = list(_messages(form, load, changes, settings.batch))
        for split in SPLITS:
            lines += _compare(form, split, batches, _gateways(ranges, split, settings), settings, tick)
    return CoverLines(settings.subscriptions, settings.gateways, settings.rounds, tuple(lines))


def cover_tables(found: CoverLines) -> Iterator[Shown]:
    """What covers save and let through."""
    for form, split in dict.fromkeys((line.form, line.split) for line in found.lines):
        title = f"{form}, {found.subscriptions:,} subscriptions over {found.gateways} gateways by {split}"
        table = plain_table(title, "\nboxes allowed", "\nused", "bytes a\ngateway", "\nsent", "\nneedless", "\nns")
        for line in (line for line in found.lines if (line.form, line.split) == (form, split)):
            way = f"{line.way}{', one by one' if line.singly else ''}"
            shares = (f"{line.sent:.1%}", f"{line.needless:.1%}")
            boxes = f"{line.boxes:,.0f}" if line.boxes else ""
            table.add_row(way, boxes, f"{line.bytes:,.0f}", *shares, f"{line.ns:,.0f}")
        yield table
    yield (
        "exact: every point is known, so what it sends is what is needed. sent: of all pairs of a message and a "
        "gateway. needless: of the pairs not needed, those sent. ns: a message and gateway, median of "
        f"{found.rounds} rounds. One by one: subscriptions came singly, not all at once."
    )


def _compare(
    form: Form,
    split: str,
    batches: Sequence[Columns],
    gateways: Sequence[Floats],
    settings: CoverSettings,
    tick: Tick,
) -> Iterable[CoverLine]:
    makers: dict[tuple[str, bool], Callable[[], Router]] = {
        ("exact", False): lambda: _root(form, gateways, Router(), exact=True),
        **{
            (f"{budget}", False): lambda budget=budget: _root(form, gateways, Router(budget))  # type: ignore[misc]
            for budget in settings.budgets
        },
        (f"{settings.singly}", True): lambda: _root(form, gateways, Router(settings.singly), singly=True),
        ("everything", False): lambda: _root(form, gateways, Router(1, everything=True)),
    }
    routers: dict[tuple[str, bool], Router] = {}
    for key, make in makers.items():
        tick(f"{FORMS[form]}, split {split}: {key[0]}")
        routers[key] = make()
    subjects = {str(key): _routing(router, batches, settings.rounds) for key, router in routers.items()}
    runs = measured_in_turns(subjects, settings.rounds, tick, f"{FORMS[form]}, split {split}")
    needed = runs[str(("exact", False))][0].messages
    for key, router in routers.items():
        run = runs[str(key)][0]
        pairs = run.updates * len(gateways)
        held = router.statistics().held
        yield CoverLine(
            FORMS[form],
            split,
            *key,
            sum(one.boxes for one in held) / len(gateways),
            sum(one.bytes for one in held) / len(gateways),
            needed / pairs,
            run.messages / pairs,
            (run.messages - needed) / max(1, pairs - needed),
            median(1e9 * each.seconds / each.updates / len(gateways) for each in runs[str(key)]),
        )


def _routing(router: Router, batches: Sequence[Columns], rounds: int) -> Subject:
    """All messages routed once a round; what it counts as messages are pairs sent."""

    def apply(columns: Columns) -> tuple[int, int]:
        n = len(columns["seq"])
        return n, sum(n if rows is None else len(rows) for _, rows in router.route(CHANNEL, columns))

    return Subject([batches] * (rounds + 1), apply)


def _root(
    form: Form, gateways: Sequence[Floats], router: Router, *, exact: bool = False, singly: bool = False
) -> Router:
    for peer, points in enumerate(gateways):
        router.join(peer, exact)
        for group, some in enumerate(np.array_split(points, len(points)) if singly else [points]):
            router.install(peer, Install(group, CHANNEL, form, False, some))
    return router


def _gateways(ranges: RangeColumns, split: str, settings: CoverSettings) -> list[Floats]:
    """The points of each gateway's subscriptions."""
    points = np.column_stack((ranges.low, ranges.high))
    random = generator(settings.seed, "covers", split, len(points))
    order = random.permutation(len(points)) if split == "random" else np.argsort(points.sum(axis=1))
    parts = np.array_split(order, settings.gateways)
    return [points[random.permutation(part)] for part in parts]


def _messages(form: Form, load: Workload, changes: Changes, batch: int) -> Iterable[Columns]:
    """What the server sends for these updates, as it travels."""
    if form == "places":  # a row that changes y has the same x before and after
        for some in changes.batches(batch):
            there = np.ones(len(some), np.bool_)
            yield {
                "seq": np.arange(len(some)),
                "old.there": there,
                "old.0": some.x,
                "new.there": there,
                "new.0": some.x,
            }
        return
    engine = engine_of(load.rows)
    channel = engine.open_channel(RANGE_MIN)
    names = {"il": "INNER_L", "ir": "INNER_R", "ol": "OUTER_L", "or": "OUTER_R"}
    for some in changes.batches(batch):
        messages = engine.upsert("POINTS", some.columns()).messages[channel]
        columns = messages.columns
        yield {"seq": messages.seqs, **{short: columns[name] for short, name in names.items()}}


COVERS = Benchmark(
    name="covers",
    about="routing state and needless messages of the network",
    description="Splits the subscriptions of Table 5.1 over gateways, at random and by content, and routes real "
    "messages to them: by every point, by covers of several sizes, and without pruning.",
    full=CoverSettings(),
    quick=QUICK_COVERS,
    quick_about="fewer subscriptions, sizes and rounds: some seconds",
    options=(
        BenchOption("subscriptions", "subscriptions in total"),
        BenchOption("gateways", "gateways below the root"),
        BenchOption("budgets", "boxes that a cover may have (`cover_budget`)", many=True),
    ),
    sections=(
        BenchSection("covers", "boxes, bytes and needless messages by the way of routing", measure_covers, cover_tables,
                     steps=lambda s: len(FORMS) * len(SPLITS) * (len(s.budgets) + 3 + s.rounds + 1)),
    ),
)  # fmt: skip
