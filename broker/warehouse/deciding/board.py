"""The board of the warehouse: what waits, what runs, how far each table is loaded. Pure.

Drivers change it (live, or `sim/experiments/studies/scheduling/simulated.py` by a simulated clock), policies
read it. Whatever must not get lost is here, never in a policy: a policy can be exchanged at any moment.

    released       updates of a table are acknowledged: they wait in `Feed.pending`
    asked          a question waits in `Board.waiting`
    begun, ended   a load or an answer has a place

A file is its table as of `Feed.loaded`, a sequence number. It stays valid until the table's next update: the interval
from `Feed.version` to `Feed.valid_until`. Several files show the tables of one moment if their intervals have a
sequence number in common. A question that needs that gets it by a *hold*: its tables are loaded through one sequence
number, and no further until its reader has begun to read all of them.

A view is a feed whose updates are those of the tables it reads (`ViewFeed`). It is loaded when a question reads it, and
in parts, table by table, to keep a promise; never because a policy has nothing better to do. Between two parts it is
the answer to its SELECT at no sequence number, and nobody may read it.

Loads go to a sequence number that once was the `horizon`: no release lies across it (unless very many wait, and were
made one).

Of feeds we speak as Bateni et al. (2009) do. A release covers the time since the one before (`since`, `at`], its
length. A load takes all that is pending as one batch; its flow time is from the beginning of the time it covers to its
end, and stretch is flow time by length.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Releases that wait for one table; beyond, a new one is added to the one before.
MOST_PENDING = 4096
#: The same for one table of a view: there may be many views, and each is looked at whenever something happens.
MOST_BEHIND = 64
#: Updates that nobody waits for wait for others: so many times as long as a load would take, at most so many seconds.
GATHERED, MOST_GATHERED_S = 50, 0.1


class Release(NamedTuple):
    """Updates `first` to `through` of one table (not all between them are its own), acknowledged at `at`."""

    first: int
    through: int
    rows: int
    at: float
    since: float

    @property
    def length(self) -> float:
        return self.at - self.since


@dataclass(eq=False, slots=True)
class Load:
    """Bring a table's file to a sequence number. `question`: the one it is done for, if it is on demand.

    Of a view, `only` are the tables whose changes are propagated; none: all, and it is exact then.
    """

    table: str
    through: int
    question: Question | None = None
    batch: tuple[Release, ...] = ()  # set when it begins
    only: tuple[str, ...] = ()


@dataclass(eq=False, slots=True)
class Answer:
    question: Question


Task = Load | Answer


@dataclass(eq=False, slots=True)
class Question:
    """A one-time query. `seq`: all up to there was acknowledged when it was asked."""

    number: int
    owner: str
    tables: tuple[str, ...]
    arrived: float
    deadline: float = inf  # a moment
    priority: int = 0
    freshness: float = 1.0
    consistent: bool = False
    expected_s: float = 0.0
    seq: int = 0
    target: int | None = None  # the sequence number that its tables are held at, once that is decided
    held_at: float = 0.0  # when that was
    began: float | None = None
    pinned: bool = False  # it reads: what is loaded from now on it does not see

    @property
    def needs_all(self) -> bool:
        """Whether everything acknowledged before must be loaded."""
        return self.freshness >= 1.0

    @property
    def needs_common(self) -> bool:
        """Whether its tables must be of one moment."""
        return len(self.tables) > 1 and (self.consistent or self.needs_all)


class LoadCost:
    """What loads take: fixed + per row, fitted to those seen; early ones are forgotten."""

    #: How much a load counts after one more.
    MEMORY = 0.9

    def __init__(self, fixed_s: float = 0.002, row_s: float = 1e-5) -> None:
        self._guess = (fixed_s, row_s)
        self._sums = [0.0] * 5  # 1, rows, rows^2, seconds, rows * seconds

    def learn(self, rows: int, took_s: float) -> None:
        seen = (1.0, rows, rows * rows, took_s, rows * took_s)
        self._sums = [self.MEMORY * kept + new for kept, new in zip(self._sums, seen, strict=True)]

    def of(self, rows: int) -> float:
        fixed_s, row_s = self.fitted
        return fixed_s + row_s * rows

    @property
    def fitted(self) -> tuple[float, float]:
        """Seconds per load, and per row; neither is negative."""
        n, x, xx, y, xy = self._sums
        if not n:
            return self._guess
        spread = n * xx - x * x
        row_s = max(0.0, (n * xy - x * y) / spread) if spread > 1e-9 * n * xx else min(self._guess[1], y / max(x, 1.0))
        fixed_s = (y - row_s * x) / n
        return (fixed_s, row_s) if fixed_s >= 0 else (0.0, y / max(x, 1e-9))


@dataclass(eq=False, slots=True)
class Feed:
    #: Whether it is loaded on a place of its own: that is none of a policy's business.
    APART: ClassVar[bool] = False

    name: str
    began: float = 0.0  # what was released up to then is in the file
    loaded: int = 0  # the file is the table as of this sequence number
    version: int = 0  # the last update in it
    period_s: float | None = None  # as declared
    weight: float = 1.0
    pending: deque[Release] = field(default_factory=deque)
    loading: Load | None = None
    cost: LoadCost = field(default_factory=LoadCost)

    released_at: float = field(init=False)  # the last release

    # what it amounted to
    loads: int = 0
    loaded_rows: int = 0
    stretch: float = 0.0  # the largest

    def __post_init__(self) -> None:
        self.released_at = self.began

    @property
    def pending_rows(self) -> int:
        return sum(release.rows for release in self.pending)

    @property
    def is_exact(self) -> bool:
        """Whether its file is right for any sequence number."""
        return True

    def lag(self, now: float) -> float:
        """Seconds since the oldest update that is not applied was acknowledged; 0 if there is none."""
        return now - self.pending[0].at if self.pending else 0.0

    def begin(self, load: Load) -> None:
        """A load begins: what it applies."""
        load.batch = tuple(release for release in self.pending if release.through <= load.through)
        self.loading = load

    def apply(self, load: Load, now: float) -> None:
        self.loaded = max(self.loaded, load.through)
        for _ in load.batch:
            self.pending.popleft()
        if self.pending and self.pending[0].first <= load.through:  # a part of it
            self.version = load.through
        elif load.batch:
            self.version = load.batch[-1].through
        if load.batch:
            self._count(load)
            stretches = ((now - each.since) / each.length for each in load.batch if each.length)
            self.stretch = max(self.stretch, *stretches, 0.0)

    def _count(self, load: Load) -> None:
        self.loads += 1
        self.loaded_rows += sum(release.rows for release in load.batch)

    def came(self, release: Release) -> None:
        self.released_at = release.at


@dataclass(eq=False, slots=True)
class ViewFeed(Feed):
    """A view in the warehouse. `behind`: by table that it reads, updates that are not propagated yet.

    V1  `pending` has the releases of `behind`, in the order of their first updates.
    V2  If it is exact, its file is the answer to its SELECT as of `loaded`; else `pending` begins at or before that.
    """

    APART: ClassVar[bool] = True

    behind: dict[str, deque[Release]] = field(default_factory=dict)
    _rows: dict[str, int] = field(default_factory=dict)  # of these releases

    @property
    def is_exact(self) -> bool:
        """Whether all tables are propagated up to one sequence number."""
        return not self.pending or self.pending[0].first > self.loaded

    def behind_rows(self) -> dict[str, int]:
        return {table: self._rows.get(table, 0) for table in self.behind}

    def put(self, table: str, release: Release) -> None:
        releases = self.behind[table]
        self._rows[table] = self._rows.get(table, 0) + release.rows
        last = releases[-1] if releases else release
        if len(releases) < MOST_BEHIND or (self.loading is not None and last.through <= self.loading.through):
            releases.append(release)  # the last one is being propagated: how much of a sum would be left is not known
            self.pending.append(release)  # V1: releases of several tables overlap only where one message told of them
            if len(self.pending) > 1 and self.pending[-2].first > release.first:
                self._merge()
        else:
            more = Release(last.first, release.through, last.rows + release.rows, release.at, last.since)
            at = next(at for at in range(len(self.pending) - 1, -1, -1) if self.pending[at] is last)  # near the end
            releases[-1] = self.pending[at] = more

    def take(self, tables: Iterable[str], through: int) -> None:
        """Updates of tables were propagated, up to a sequence number."""
        for table in tables:
            releases = self.behind[table]
            while releases and releases[0].through <= through:
                releases.popleft()
            if releases and releases[0].first <= through:  # a part of many that were made one: how much is not known
                releases[0] = releases[0]._replace(first=through + 1)
            self._rows[table] = sum(release.rows for release in releases)
        self._merge()

    def begin(self, load: Load) -> None:
        """What a load propagates: if no other table has changes, it makes the view exact."""
        others = [table for table in self.behind if table not in load.only] if load.only else []
        if not any(self.behind[table] for table in others):
            load.only = ()
        releases = (each for table in load.only or self.behind for each in self.behind[table])
        load.batch = tuple(sorted(release for release in releases if release.through <= load.through))
        self.loading = load

    def apply(self, load: Load, now: float) -> None:
        self.loaded = self.version = max(self.loaded, load.through)
        self.take(load.only or self.behind, load.through)
        self._count(load)

    def _merge(self) -> None:
        self.pending = deque(sorted(each for releases in self.behind.values() for each in releases))

    def check(self) -> None:
        for table, releases in self.behind.items():
            assert self._rows.get(table, 0) == sum(release.rows for release in releases), table
        assert list(self.pending) == sorted(each for releases in self.behind.values() for each in releases)


class Board:
    """All of it. `horizon`: releases are known up to this sequence number."""

    def __init__(self, places: int = 1) -> None:
        self.places = places
        self.horizon = 0
        self.feeds: dict[str, Feed] = {}
        self.waiting: list[Question] = []  # in order of arrival
        self.running: list[Task] = []
        self._held: dict[str, list[Question]] = {}  # tables that are not loaded beyond a question's target
        self._gathering: set[str] = set()  # tables whose updates wait for others

    # -- what happens --------------------------------------------------------------------------------------

    def add(self, feed: Feed) -> None:
        self.feeds[feed.name] = feed

    def remove(self, table: str) -> None:
        del self.feeds[table]

    def advance(self, seq: int) -> None:
        """All releases up to a sequence number are known."""
        self.horizon = max(self.horizon, seq)

    def release(self, table: str, first: int, through: int, rows: int, at: float) -> Release:
        feed = self.feeds[table]
        release = Release(first, through, rows, at, feed.released_at)
        feed.came(release)
        last = feed.pending[-1] if feed.pending else release
        if len(feed.pending) < MOST_PENDING or (feed.loading is not None and last.through <= feed.loading.through):
            feed.pending.append(release)  # the last one is being loaded: what is added to it would be taken as loaded
        else:
            feed.pending[-1] = Release(last.first, through, last.rows + rows, at, last.since)
        self.advance(through)
        return release

    def release_for(self, view: ViewFeed, table: str, first: int, through: int, rows: int, at: float) -> None:
        """Updates of a table that a view reads were acknowledged."""
        view.put(table, Release(first, through, rows, at, view.released_at))
        view.released_at = at
        self.advance(through)

    def note(self, question: Question) -> None:
        """A question has come: all that is known by now was acknowledged before it."""
        question.seq = self.horizon

    def wait(self, question: Question) -> None:
        """A question waits here from now on, for the first time or again."""
        question.began = question.target = None
        insort(self.waiting, question, key=lambda each: each.arrived)

    def ask(self, question: Question) -> None:
        """A question has come, and waits here from now on."""
        self.note(question)
        self.wait(question)

    def narrow(self, question: Question, tables: tuple[str, ...], now: float) -> None:
        """A question that has begun reads no more than these of its tables."""
        held = any(question in held for held in self._held.values())
        self._let_go(question)
        question.tables = tables
        if held and question.needs_common:
            self._hold(question, question.target, now)

    def withdraw(self, question: Question) -> None:
        """A question needs no answer any more; its task, if it has begun, is ended by `end`."""
        if question in self.waiting:
            self.waiting.remove(question)
        self._let_go(question)

    def begin(self, task: Task, now: float) -> None:
        """A place begins with a task that a policy chose."""
        self.running.append(task)
        if isinstance(task, Answer):
            task.question.began, task.question.pinned = now, False
            self.waiting.remove(task.question)
            if task.question.needs_common and task.question.target is None:
                self._hold(task.question, self.common(task.question.tables), now)
        else:
            if task.question is not None:
                self.aim(task.question, now)
            feed = self.feeds[task.table]
            assert feed.loading is None, "one load of a table at a time"
            assert task.through <= self.reach(feed), "not beyond a hold"
            feed.begin(task)

    def pinned(self, question: Question) -> None:
        """A question has begun to read all its tables: they may change."""
        question.pinned = True
        self._let_go(question)

    def let_go(self, question: Question) -> None:
        """A question that waits holds its tables no longer; it is given another moment later."""
        self._let_go(question)
        question.target = None

    def end(self, task: Task, now: float, *, done: bool = True) -> None:
        """A task is over. A load that was not done (its worker died) leaves everything as it was."""
        self.running.remove(task)
        if isinstance(task, Answer):
            self._let_go(task.question)
            return
        feed = self.feeds.get(task.table)
        if feed is None or feed.loading is not task:  # dropped meanwhile
            return
        feed.loading = None
        if done:
            feed.apply(task, now)

    def found(self, table: str, current: int, last: int, now: float) -> None:
        """A file is the table as of `current`, with `last` as its last update: a load was done that nobody told of."""
        feed = self.feeds[table]
        if current > feed.loaded:
            batch = tuple(release for release in feed.pending if release.through <= current)
            feed.apply(Load(table, current, batch=batch), now)
            feed.version = last

    def left(self, feed: Feed, release: Release | None) -> None:
        """What is left of a table's first pending release, of which a part was loaded; None: no update."""
        if release is None:
            feed.pending.popleft()
        else:
            feed.pending[0] = release

    def gather(self, now: float) -> float:
        """Let updates that nobody waits for wait for others, to be loaded together: a load of a few rows costs as much
        as one of hundreds, and whoever publishes must share the processor with it. Returns until when the first waits.

        Tables that a question waits for do not, nor those with a declared period. Live drivers call this before they
        ask a policy; a simulated one need not: there a place costs nobody anything.
        """
        asked = {table for question in self.waiting for table in question.tables}
        self._gathering, until = set(), inf
        for feed in self.waiting_feeds():
            if feed.period_s is not None or feed.name in asked:
                continue
            since = feed.pending[0].at
            if now - since < MOST_GATHERED_S:
                waits_s = min(MOST_GATHERED_S, GATHERED * feed.cost.of(feed.pending_rows))
                if now - since < waits_s:
                    self._gathering.add(feed.name)
                    until = min(until, since + waits_s)
        return until

    # -- what policies ask ---------------------------------------------------------------------------------

    def is_awaited(self, table: str) -> bool:
        """Whether a question waits for a table, or is about to read it."""
        begun = [task.question for task in self.running if isinstance(task, Answer) and not task.question.pinned]
        return any(table in question.tables for question in (*self.waiting, *begun))

    def waiting_feeds(self) -> list[Feed]:
        """Tables with updates that are not being loaded; views are none of a policy's business."""
        return [feed for feed in self.feeds.values() if feed.pending and feed.loading is None and not feed.APART]

    def loadable(self) -> list[Feed]:
        """Tables with updates that a load could apply now."""
        return [
            feed
            for feed in self.waiting_feeds()
            if feed.name not in self._gathering and feed.pending[0].through <= self.reach(feed)
        ]

    def reach(self, feed: Feed) -> int:
        """How far a load of a table may go now."""
        held = self._held.get(feed.name)
        if held is None:  # nearly always, and asked for every table before each load
            return self.horizon
        targets = (question.target for question in held)
        return min((target for target in targets if target is not None), default=self.horizon)

    def load(self, feed: Feed, question: Question | None = None) -> Load:
        return Load(feed.name, self.reach(feed), question)

    def valid_until(self, feed: Feed) -> int:
        """The last sequence number for which a table's file is right; -1: for none, a view that is not exact."""
        if not feed.is_exact:
            return -1
        return max(feed.loaded, feed.pending[0].first - 1 if feed.pending else self.horizon)

    def common(self, tables: Iterable[str]) -> int | None:
        """The last sequence number of which all these files are the tables; None if there is none."""
        feeds = [self.feeds[table] for table in tables]
        latest = min((self.valid_until(feed) for feed in feeds), default=self.horizon)
        return latest if all(feed.version <= latest for feed in feeds) else None

    def ready(self, question: Question) -> bool:
        least = self._least(question)
        if any(self.valid_until(self.feeds[table]) < least for table in question.tables):
            return False
        return not question.needs_common or self.common(question.tables) is not None

    def missing(self, question: Question, *, apart: bool = False) -> list[Load]:
        """Loads that must still begin before a question can run, as far as they can begin now: of tables, or of what
        is loaded apart.

        A question that needs one moment for several tables is given that moment when the first of them begins.
        """
        if self.ready(question):
            return []
        least = self._moment(question) if question.needs_common else self._least(question)
        loads = []
        for table in question.tables:
            feed = self.feeds[table]
            if feed.APART is apart and feed.loading is None and self.valid_until(feed) < least:
                through = min(least if question.needs_common else self.horizon, self.reach(feed))
                if through > feed.loaded or (through == feed.loaded and self.valid_until(feed) < 0):
                    loads.append(Load(table, through, question))
        return loads

    def _least(self, question: Question) -> int:
        """The sequence number for which all its tables must be right, at least."""
        if question.target is not None:
            return question.target
        return question.seq if question.needs_all else 0

    def _moment(self, question: Question) -> int:
        """The sequence number that a question's tables would be brought to: with everything if it must be, else as
        little as possible."""
        if question.target is not None:
            return question.target
        if question.needs_all:
            return self.horizon
        feeds = [self.feeds[table] for table in question.tables]
        return max(max(feed.loaded, feed.loading.through if feed.loading else 0) for feed in feeds)

    def aim(self, question: Question, now: float) -> None:
        """Decide the moment of a question that needs one, and hold its tables there."""
        if question.target is None and question.needs_common:
            self._hold(question, self._moment(question), now)

    def aim_again(self, table: str) -> None:
        """A table cannot be loaded through what questions that wait have aimed at, only further: they begin anew."""
        for question in [one for one in self._held.get(table, ()) if one.began is None]:
            self.let_go(question)

    def _hold(self, question: Question, target: int | None, now: float) -> None:
        """Load a question's tables no further until it has begun to read all of them."""
        question.target, question.held_at = target, now
        for table in question.tables:
            self._held.setdefault(table, []).append(question)

    def _let_go(self, question: Question) -> None:
        for table in question.tables:
            held = self._held.get(table)
            if held and question in held:
                held.remove(question)
                if not held:
                    del self._held[table]
