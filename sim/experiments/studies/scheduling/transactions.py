"""Transactions with deadlines over changing objects (Vu and Gopalkrishnan (2009), Table 2).

Transactions read 50 objects each, one by one; bursts of updates arrive; views are computed from base objects. A place
(a processor with its disk) does one operation at a time and then takes the next of what is most urgent, so a
transaction is interrupted between two reads at most. Which version is read, what is kept and what idle time is for are
decisions of the policies `Orad` and `Odrtb`; updates-first and queries-first change objects in place, and keep no
versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Protocol

import numpy as np

from hullcast.broker.warehouse.deciding.policies.orad import urgency
from hullcast.sim.experiments.studies.scheduling.validity import (
    Id,
    Look,
    OdrtbReading,
    OradReading,
    Reader,
    ReadingRule,
    Version,
    Versions,
)
from hullcast.sim.seeds import generator

UPDATES_FIRST, QUERIES_FIRST = "updates-first", "queries-first"
#: The other reading of ODRTB: the interval of a transaction ends now; and so does that of what idle time computes.
ODRTB_NOW, ODRTB_IDLE = "odrtb, now", "odrtb, idle now"
#: A control: ODRTB that takes the widest overlap, but nothing that is older than the transaction.
ODRTB_0 = "odrtb, 0 s"


@dataclass(frozen=True, slots=True)
class Table2:
    """The parameters, with the paper's names for them; times in seconds."""

    arrivals: float = 2.0  # lambda_T, transactions per second
    bursts: float = 1.2  # lambda_B, per second
    version_s: float = 0.002  # t_ver, to look at one version
    cached: float = 0.2  # N_max, as a part of the frequent objects
    objects: int = 6000  # N_BASE; there are a tenth as many views, and half as many frequent objects
    places: int = 1
    whole: bool = False  # views are computed from all parents, not only from those that changed
    transactions: int = 200  # that count (on average), after the time to warm up
    warm_s: float = 60.0

    def load(self, seed: int) -> Workload2:
        """What happens."""
        return drawn(self.objects, self.bursts, self.arrivals, self.warm_s + self.transactions / self.arrivals, seed)


READS, FREQUENT_READS, FREQUENT_UPDATES = 50, 0.7, 0.5  # N_op, p_frequent, p_uf
BURST, BURST_RATE, FAN_OUT, SLACK = (1, 12), 33.0, (0, 4), (1.3, 3.0)  # [BS], lambda_U, [F_o], [S]
IO_S, CPU_S = 0.005, 0.001  # t_IO, t_CPU
OPERATION_S = IO_S + CPU_S


# -- what happens, the same for all policies -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Workload2:
    """Base objects are numbered from 0, views follow."""

    objects: int
    parents: list[tuple[int, ...]]  # of each view
    updates: list[tuple[float, int]]  # when, and of which object
    asked: list[tuple[float, float, list[int]]]  # transactions: arrival, deadline, what they read


@lru_cache(maxsize=4)
def drawn(objects: int, bursts: float, arrivals: float, until: float, seed: int) -> Workload2:
    """A workload of Table 2 that goes on so long."""
    chance = generator(seed, "deadlines", objects, bursts, arrivals, until)
    views = objects // 10
    above: list[list[int]] = [[] for _ in range(views)]
    for base, fan_out in enumerate(chance.integers(FAN_OUT[0], FAN_OUT[1] + 1, objects)):
        for view in chance.choice(views, min(fan_out, views), replace=False):
            above[view].append(base)
    above = [mine or [int(chance.integers(objects))] for mine in above]
    mixed = chance.permutation(objects + views)
    frequent, rare = np.sort(mixed[: objects // 2]), np.sort(mixed[objects // 2 :])
    updates = _updates(chance, bursts, until, frequent[frequent < objects], rare[rare < objects])
    asked = []
    for arrived in _poisson(chance, arrivals, until):
        often = chance.random(READS) < FREQUENT_READS
        reads = np.where(often, chance.choice(frequent, READS), chance.choice(rare, READS))
        asked.append((arrived, arrived + chance.uniform(*SLACK) * READS * OPERATION_S, reads.tolist()))
    return Workload2(objects, [tuple(mine) for mine in above], updates, asked)


def _poisson(chance: np.random.Generator, rate: float, until: float) -> list[float]:
    gaps = chance.exponential(1 / rate, int(until * rate * 2) + 50)
    times = np.cumsum(gaps)
    return list(times[times < until].tolist())


def _updates(
    chance: np.random.Generator, bursts: float, until: float, frequent: np.ndarray, rare: np.ndarray
) -> list[tuple[float, int]]:
    found: list[tuple[float, int]] = []
    for begins in _poisson(chance, bursts, until):
        size = int(chance.integers(BURST[0], BURST[1] + 1))
        times = begins + np.cumsum(chance.exponential(1 / BURST_RATE, size))
        often = chance.random(size) < FREQUENT_UPDATES
        changed = np.where(often, chance.choice(frequent, size), chance.choice(rare, size))
        found += zip(times.tolist(), changed.tolist(), strict=True)
    return sorted(found)


# -- how each policy reads -------------------------------------------------------------------------------------


class ReadingPolicy(ReadingRule, Protocol):
    """What the simulation asks of `OradReading` and `OdrtbReading`."""

    def committed(self, objects: Iterable[int]) -> None: ...

    def first_of(self, objects: Iterable[int]) -> int: ...


class InPlace:
    """No versions: a reader gets what is applied, whatever it has read before."""

    def committed(self, objects: Iterable[int]) -> None: ...

    def first_of(self, objects: Iterable[int]) -> int:
        return next(iter(objects))

    def earliest(self, start: float) -> float:
        return -inf

    def choose(self, versions: Sequence[Version], reader: Reader[Id]) -> Look:
        last = len(versions) - 1
        while not versions[last].applied:
            last -= 1
        return Look(versions[last], 1)

    def horizon(self, readers: Iterable[Reader[Id]], now: float) -> float:
        return -inf  # versions serve here only to tell afterwards what was read


def reading_policy(name: str, cached: int) -> ReadingPolicy:
    """By the name of a policy."""
    made: dict[str, Callable[[], ReadingPolicy]] = {
        OradReading.name: lambda: OradReading(cached),
        OdrtbReading.name: OdrtbReading,
        ODRTB_NOW: OdrtbReading,
        ODRTB_IDLE: OdrtbReading,
        ODRTB_0: lambda: OdrtbReading(tolerance_s=0.0),
    }
    return made.get(name, InPlace)()


# -- the simulation --------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Activity:
    """A transaction, an update or the computation of a view: operations one by one, each says what it takes. What an
    operation brings about (`result`) is there when it ends, not only when the job goes on."""

    deadline: float
    operations: Iterator[float]
    key: tuple[tuple[float, float, float], int] = ((0.0, 0.0, 0.0), 0)
    result: Callable[[], object] | None = None
    counted: bool = False
    reader: Reader[int] | None = None
    object_id: int = -1  # what is done in idle time
    fresh: bool = True  # it read the latest versions only
    recent: bool = True  # it read only what was right at its start, or later

    def __lt__(self, other: Activity) -> bool:
        return self.key < other.key


@dataclass(slots=True)
class DeadlineTally:
    """What is counted."""

    transactions: int = 0
    missed: int = 0
    fresh: int = 0
    recent: int = 0
    consistent: int = 0
    reads: int = 0
    looked: int = 0
    updates_on_demand: int = 0
    views_on_demand: int = 0
    versions: list[float] = field(default_factory=list)


class Simulation:
    """One run. Events: (time, order, place or -1, job or None); at -1 something arrives."""

    def __init__(self, policy: str, setting: Table2, load: Workload2) -> None:
        self.now = 0.0
        self.tally = DeadlineTally()
        self._setting, self._load = setting, load
        self._rule = reading_policy(policy, max(1, round(setting.cached * load.objects / 2)))
        self._in_place = isinstance(self._rule, InPlace)
        self._updates_first = policy == UPDATES_FIRST
        self._until_now, self._idle_until_now = policy in (ODRTB_NOW, ODRTB_IDLE), policy == ODRTB_IDLE
        self.store: Versions[int] = Versions(self._rule)
        for base in range(load.objects):
            self.store.add(base, -1.0)
        for view, parents in enumerate(load.parents, load.objects):
            self.store.add(view, -1.0, parents)
        self._ready: list[Activity] = []  # transactions that have no place: a heap
        self._paused: list[Activity] = []  # work of idle time that was interrupted
        self._in_work: set[int] = set()  # objects that idle time is busy with
        self._free = list(range(setting.places))
        self._events: list[tuple[float, int, int, Activity | None]] = []
        self._order = count()

    def run(self) -> DeadlineTally:
        """Let everything happen, until the last transaction has ended."""
        updates, asked = iter(self._load.updates), iter(self._load.asked)
        update, ask = next(updates, None), next(asked, None)
        left = len(self._load.asked)
        self._prune()
        while left:
            coming = min(update[0] if update else inf, ask[0] if ask else inf)
            if self._events and self._events[0][0] <= coming:
                self.now, _, place, job = heappop(self._events)
                assert job is not None
                left -= self._done(place, job)
            elif update is not None and update[0] == coming:
                self.now = coming
                self.store.arrive(update[1], coming)
                update = next(updates, None)
            else:
                assert ask is not None
                self.now = coming
                self._arrive(*ask)
                ask = next(asked, None)
            left -= self._fill()
        return self.tally

    def _arrive(self, arrived: float, deadline: float, reads: list[int]) -> None:
        job = Activity(deadline, iter(()), counted=arrived >= self._setting.warm_s)
        job.key = urgency(0, deadline, arrived, arrived), next(self._order)
        job.operations = self._transaction(job, reads)
        heappush(self._ready, job)

    def _done(self, place: int, job: Activity) -> int:
        """An operation is over: whether a transaction ended with it."""
        self._free.append(place)
        if self.now >= job.deadline:
            return self._abort(job)
        if job.result is not None:
            job.result()
            job.result = None
        if job.object_id >= 0:
            self._paused.append(job)
        else:
            heappush(self._ready, job)
        return 0

    def _fill(self) -> int:
        """Give free places their next operations; how many transactions ended."""
        ended = 0
        while self._free:
            job = (self._idle() or self._urgent()) if self._updates_first else (self._urgent() or self._idle())
            if job is None:
                break
            if self.now >= job.deadline:
                ended += self._abort(job)
                continue
            took_s = next(job.operations, None)
            if took_s is not None:
                until = min(self.now + took_s, job.deadline)
                heappush(self._events, (until, next(self._order), self._free.pop(), job))
            elif job.object_id < 0:
                ended += self._commit(job)
            else:
                self._in_work.discard(job.object_id)
        return ended

    def _urgent(self) -> Activity | None:
        return heappop(self._ready) if self._ready else None

    def _idle(self) -> Activity | None:
        """Updates first, then views; what was interrupted goes on, unless it is outdated by now."""
        while self._paused:
            job = self._paused.pop()
            if job.reader is None or job.reader.ends == inf or self._in_place:
                return job
            self.store.end(job.reader)
            self._in_work.discard(job.object_id)
        for waiting, operations in ((self.store.unapplied, self._apply), (self.store.outdated, self._refresh)):
            left = [each for each in waiting if each not in self._in_work] if self._in_work else waiting
            if left:
                chosen = self._rule.first_of(left)
                self._in_work.add(chosen)
                job = Activity(inf, iter(()), object_id=chosen)
                job.operations = operations(job)
                return job
        return None

    # -- what is done, operation by operation --------------------------------------------------------------

    def _transaction(self, job: Activity, reads: list[int]) -> Iterator[float]:
        reader = job.reader = self.store.begin(self.now)
        self._prune()
        for object_id in reads:
            reader.until = self.now if self._until_now else inf
            look = self.store.read(reader, object_id)
            if job.counted:
                self.tally.reads += 1
                self.tally.looked += look.looked
            version = look.version
            if version is None:
                yield look.looked * self._setting.version_s
                yield from self._compute(job, reader, object_id)
                version = reader.reads[object_id]
                self.tally.views_on_demand += job.counted
            elif not version.applied:
                self.tally.updates_on_demand += job.counted
                job.result = partial(self.store.applied, object_id, version)
                yield OPERATION_S
            job.fresh &= version.ends == inf
            job.recent &= version.ends > reader.start
            yield OPERATION_S + look.looked * self._setting.version_s

    def _compute(self, job: Activity, reader: Reader[int], view: int) -> Iterator[float]:
        """Read the parents (those that did not change are known from the version before), write the view."""
        parents = self.store.parents[view]
        changed = parents if self._setting.whole else self.store.changed(reader, view)
        for parent in set(parents).difference(changed):
            self.store.read(reader, parent)
        for parent in changed:
            look = self.store.read(reader, parent)
            version = look.version
            assert version is not None
            if not version.applied:
                job.result = partial(self.store.applied, parent, version)
                yield OPERATION_S
            yield OPERATION_S + look.looked * self._setting.version_s
        job.result = partial(self.store.compute, reader, view)
        yield OPERATION_S

    def _apply(self, job: Activity) -> Iterator[float]:
        job.result = partial(self.store.applied, job.object_id, self.store.unapplied[job.object_id])
        yield OPERATION_S

    def _refresh(self, job: Activity) -> Iterator[float]:
        job.reader = self.store.begin(self.now)
        job.reader.until = self.now if self._idle_until_now else inf
        yield from self._compute(job, job.reader, job.object_id)
        self.store.end(job.reader)
        job.reader = None

    # -- how it ends ---------------------------------------------------------------------------------------

    def _commit(self, job: Activity) -> int:
        reader = job.reader
        assert reader is not None
        self._rule.committed(reader.reads)
        tally = self.tally
        if job.counted:
            tally.transactions += 1
            tally.fresh += job.fresh
            tally.recent += job.recent
            tally.consistent += reader.consistent
        self.store.end(reader)
        self._prune()
        return 1

    def _abort(self, job: Activity) -> int:
        if job.reader is not None:
            self.store.end(job.reader)
            self._prune()
        self.tally.transactions += job.counted
        self.tally.missed += job.counted
        return 1

    def _prune(self) -> None:
        self.store.prune(self.now)
        held = len(self.store) + len(self.store.unapplied) if self._in_place else self.store.held
        self.tally.versions.append(held / len(self.store))
