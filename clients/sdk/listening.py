"""The listeners of one channel in this process: who they are, their answers, and what messages do to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from hullcast.clients.sdk.backlog import CollectionBacklog, ScalarBacklog
from hullcast.clients.sdk.contents import Contents
from hullcast.clients.sdk.decoding import entries, value_of
from hullcast.clients.sdk.mailbox import GAPS, Attention, Mailbox
from hullcast.network.answers.aggregate import COUNT, EXACT_SUM, ROWS, STATE, AggregateAnswers, answers_of
from hullcast.network.answers.audience import Audience
from hullcast.network.answers.events import Change, Resync
from hullcast.network.answers.extremum import ExtremumAnswers, heard
from hullcast.network.answers.named import row_type
from hullcast.network.answers.newest import replace_newest
from hullcast.network.answers.rows import ENTER, LEAVE, RowAnswers, deliver
from hullcast.network.matching.duality import NO_PARTITIONS, around_points
from hullcast.network.matching.index import PointIndex

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.clients.sdk.policy import Policy
    from hullcast.network.wire.bodies import ChannelSpec
    from hullcast.network.wire.columns import Columns

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Listening:
    """What the client holds of a channel, for all its subscriptions there. Pure: called with what came in.

    A single value (MIN, MAX, COUNT, SUM, AVG) lives in arrays and is right as soon as `hear` returns. A set or rows are
    Python objects, made when first touched by an event or a look.
    """

    def __init__(self, spec: ChannelSpec, coordinates: int, attention: Attention) -> None:
        self.spec = spec
        self.channels: set[int] = set()  # the server's numbers for it: one, or none while it is not known there
        self.mailbox = Mailbox(self._opened, attention)
        self._attention = attention
        self.audience = Audience(coordinates, 1)
        self.audience.outbox = self.mailbox
        self.suspects: set[int] = set()  # listeners whose sum must come anew from the server
        self.asked: set[int] = set()  # those for which it has been asked
        self._extremum = ExtremumAnswers()
        self._aggregate = AggregateAnswers(spec.function)
        self._rows = RowAnswers()
        self._contents = Contents(spec)
        self._parted: Ints = np.empty(0, np.int64)  # listeners that no message reaches until they are moved
        self._styles: dict[int, tuple[Policy, tuple[str, ...]]] = {}  # of collections: how each one is kept and shown

    @property
    def is_scalar(self) -> bool:
        """Whether answers are single values."""
        return self.spec.kind not in ("DISTINCT", "SELECT", "JOIN")

    # --- who listens ---------------------------------------------------------------------------------------

    def admit(
        self, group: int, points: Floats, snapshot: Columns, policy: Policy, names: tuple[str, ...], seq: int
    ) -> Ints:
        """Take in the listeners of a group with their first answers as of `seq`; returns their numbers."""
        ids = self.audience.admit(points)
        self.mailbox.seqs[ids] = seq
        self.mailbox.groups[ids] = group
        if not self.is_scalar:
            self.mailbox.queue(ids)
            self._styles.update(dict.fromkeys(ids.tolist(), (policy, names)))
        elif policy.queues:
            self.mailbox.queue(ids)
            self.mailbox.backlogs.update((listener, ScalarBacklog(policy)) for listener in ids.tolist())
        self._start(ids, snapshot)
        self._tell(ids)
        return ids

    def _tell(self, ids: Ints) -> None:
        """Whoever these listeners are for has seen the answers there are now."""
        if self.is_scalar:
            self.mailbox.told[ids], self.mailbox.told_rests[ids] = self._numbers(ids)

    def _start(self, ids: Ints, snapshot: Columns) -> None:
        here = ids >= 0
        if not self.is_scalar:
            self._contents.put(ids, snapshot)
        elif self.spec.kind in ("MIN", "MAX"):
            self._extremum.start(ids[here], cast("Floats", snapshot["best"])[here])
        else:
            self._aggregate.start(ids[here], _states(snapshot)[here])

    def part(self, ids: Ints) -> None:
        """Let no message reach these listeners until they are moved. They keep their answers and what waits."""
        ids = ids[~np.isin(ids, self._parted)]
        self.audience.index.delete(ids)
        self._parted = np.concatenate((self._parted, ids))

    def move(self, ids: Ints, points: Floats) -> None:
        """The same listeners, found by other points: a server that began anew numbers partitions anew."""
        index = self.audience.index
        if len(self._parted):
            self._rejoin(ids, points)
        elif not np.array_equal(index.points_of(ids), points):
            index.delete(ids)
            index.insert(ids, points)

    def _rejoin(self, ids: Ints, points: Floats) -> None:
        parted = np.isin(ids, self._parted)
        self._parted = self._parted[~np.isin(self._parted, ids)]
        self.audience.index.delete(ids[~parted])
        self.audience.index.insert(ids, points)

    def dismiss(self, ids: Ints) -> None:
        """Forget listeners."""
        if len(self._parted):  # an audience dismisses only those whom messages reach
            self._rejoin(ids, np.zeros((len(ids), self.audience.index.dimensions)))
        self.audience.dismiss(ids)
        self._contents.forget(ids)
        self._believe(ids)
        for listener in ids.tolist():
            self._styles.pop(listener, None)

    # --- what happens ----------------------------------------------------------------------------------------

    def hear(self, columns: Columns) -> int:
        """Take messages, in order; returns how many events they made."""
        told = 0
        if len(self.audience):
            if self.spec.form == "rectangles":
                told = self._hear_rectangles(columns)
            else:
                self._hear_places(columns)
        return told + self.mailbox.flush()

    def hear_alone(self, ids: Ints, points: Floats, columns: Columns) -> None:
        """Messages that only these have not heard yet."""
        everybody = self.audience.index
        if len(ids) == len(everybody):
            self.hear(columns)
            return
        alone = PointIndex(everybody.dimensions)
        alone.insert(ids, points)
        self.audience.index = alone
        try:
            self.hear(columns)
        finally:
            self.audience.index = everybody

    def _hear_rectangles(self, columns: Columns) -> int:
        """Returns how many events it made beside those in the mailbox."""
        seqs = cast("Ints", columns["seq"])
        sides = [cast("Floats", columns[name]) for name in ("il", "ir", "ol", "or")]
        partitions = cast("Floats", columns["part"]) if self.spec.partitioned else NO_PARTITIONS
        if self.spec.kind != "DISTINCT" and self.mailbox.only_newest:
            return self._hear_newest(seqs, sides, partitions, cast("Floats", columns["best"]))
        pairs = heard(self.audience, sides[0], sides[1], sides[2], sides[3], partitions)
        if self.spec.kind == "DISTINCT":
            how = np.where(cast("npt.NDArray[np.bool_]", columns["appears"]), ENTER, LEAVE)
            for what, who in pairs:
                deliver(self.audience, who, what, how[what], seqs, self._items(columns))
        else:
            best = cast("Floats", columns["best"])
            for what, who in pairs:
                self._extremum.hear(self.audience, what, who, seqs, best)
        return 0

    def _hear_newest(self, seqs: Ints, sides: list[Floats], partitions: Floats, best: Floats) -> int:
        """MIN and MAX where all want the newest answer only: written at once, and no event is listed."""
        tree, mailbox = self.audience.index.arrays, self.mailbox
        cells = (self._extremum.values, mailbox.seqs, mailbox.fresh)
        told, news = replace_newest(tree, sides[0], sides[1], sides[2], sides[3], partitions, seqs, best, *cells)
        mailbox.notice(news)
        mailbox.waken(news)  # whoever waits has nothing to take, and is news as soon as there is something
        return told

    def _hear_places(self, columns: Columns) -> None:
        seqs = cast("Ints", columns["seq"])
        old, new = self._boxes("old", columns), self._boxes("new", columns)
        if self.is_scalar:
            old_y, new_y = cast("Floats", columns["old.y"]), cast("Floats", columns["new.y"])
            self._aggregate.hear(self.audience, old, new, seqs, old_y, new_y, self._doubt)
        else:
            altered = cast("npt.NDArray[np.bool_]", columns["altered"])
            self._rows.hear(self.audience, old, new, seqs, altered, self._items(columns))

    def _boxes(self, side: str, columns: Columns) -> tuple[Floats, Floats]:
        places = [cast("Floats", columns[f"{side}.{i}"]) for i in range(self.spec.dimensions)]
        uppers = places
        if f"{side}.up" in columns:
            uppers = [*places[:-1], cast("Floats", columns[f"{side}.up"])]
        partitions = cast("Floats", columns[f"{side}.part"]) if self.spec.partitioned else None
        return around_points(places, partitions, cast("npt.NDArray[np.bool_]", columns[f"{side}.there"]), uppers)

    def _items(self, columns: Columns) -> Callable[[Ints], list[tuple[Any, Any]]]:
        return lambda rows: entries(self.spec, columns, rows)

    def _doubt(self, ids: Ints) -> Floats:
        """Sums whose lost bits could show: the rows are not here, so the server is asked, and events wait till then."""
        for listener in ids.tolist():
            if listener not in self.asked:
                self.suspects.add(listener)
            self.mailbox.held.setdefault(listener, 0)
        self._attention.doubted.add(self)
        return self._aggregate.state[ids]

    def doubted(self) -> dict[int, Ints]:
        """The listeners whose sums must come anew and were not asked for yet, by the number of their group."""
        ids = np.array(sorted(self.suspects), np.int64)
        groups = self.mailbox.groups[ids]
        order = np.argsort(groups, kind="stable")
        numbers, starts = np.unique(groups[order], return_index=True)
        return dict(zip(numbers.tolist(), np.split(ids[order], starts[1:]), strict=True))

    def ask(self, ids: Ints) -> None:
        """The server has been asked for these sums."""
        self.suspects.difference_update(ids.tolist())
        self.asked.update(ids.tolist())

    def ask_again(self) -> None:
        """What the server was asked for will not come."""
        self.suspects |= self.asked
        self.asked.clear()

    def _believe(self, ids: Ints) -> None:
        """These sums are right again, or nobody's."""
        if self.suspects or self.asked:
            self.suspects.difference_update(ids.tolist())
            self.asked.difference_update(ids.tolist())
            if not (self.suspects or self.asked):
                self._attention.doubted.discard(self)

    def restart(self, ids: Ints, snapshot: Columns, seq: int, reason: str) -> None:
        """Answers anew, as of `seq`, after events were missed: each listener's next event is a Resync.

        `ids` may hold -1 for members that left; the snapshot has them all.
        """
        mailbox = self.mailbox
        self._start(ids, snapshot)
        ids = ids[ids >= 0]
        mailbox.seqs[ids] = seq
        mailbox.fresh[ids] += 1
        mailbox.gaps[ids] = GAPS.index(reason)
        for listener in ids[mailbox.queued[ids]].tolist():
            lost = mailbox.held.get(listener, 0)
            backlog = mailbox.backlogs.get(listener)
            if isinstance(backlog, ScalarBacklog):
                backlog.resync(seq, *self.numbers(listener), lost, reason)
            else:
                contents = self._contents.take(listener)
                if backlog is None:
                    backlog = mailbox.backlogs[listener] = self._backlog(listener, {})
                backlog.resync(seq, contents, lost, reason)
            mailbox.trim(listener, backlog)
            mailbox.measure(listener, backlog)
        self._release(ids)
        mailbox.notice(ids)
        mailbox.waken(ids)

    def renew(self, ids: Ints, snapshot: Columns, seq: int, *, only_if_other: bool) -> None:
        """Answers anew after a break: a Resync for each listener, or only for those whose answer is another one."""
        other = self._other_than(ids, snapshot) if only_if_other else ids >= 0
        self.restart(np.where(other, ids, -1), snapshot, seq, "gap")
        if self.is_scalar:  # the same answer, perhaps of more exact sums
            self._start(np.where(other, -1, ids), snapshot)

    def _other_than(self, ids: Ints, snapshot: Columns) -> npt.NDArray[np.bool_]:
        """Who has another answer than the snapshot says; not those who left (-1)."""
        here = np.flatnonzero(ids >= 0)
        other = np.zeros(len(ids), np.bool_)
        if not self.is_scalar:
            fresh = Contents(self.spec)
            fresh.put(ids, snapshot)
            other[here] = [self._holds_other(listener, fresh) for listener in ids[here].tolist()]
        elif self.spec.kind in ("MIN", "MAX"):
            other[here] = self._extremum.values[ids[here]] != cast("Floats", snapshot["best"])[here]
        else:
            told = AggregateAnswers(self.spec.function)
            told.start(np.arange(len(ids)), _states(snapshot))
            differ = here[(self._aggregate.state[ids[here]] != told.state[here]).any(axis=1)]
            pairs = [(self._aggregate.answer(int(ids[i])), told.answer(i)) for i in differ.tolist()]
            other[differ] = [not np.array_equal(ours, theirs, equal_nan=True) for ours, theirs in pairs]
        return other

    def _holds_other(self, listener: int, fresh: Contents) -> bool:
        contents = fresh.take(listener)
        backlog = self.mailbox.backlogs.get(listener)
        if backlog is None:
            return self._contents.look(listener) != contents
        return bool(self.answer(listener) != self._backlog(listener, contents).collection.answer())

    def skip(self, ids: Ints) -> None:
        """Whoever these listeners are for has seen their answers: what waits is in them."""
        self.mailbox.fresh[ids] = self.mailbox.gaps[ids] = 0
        self._tell(ids)
        for listener in ids[self.mailbox.queued[ids]].tolist():
            while self.take(listener) is not None:
                pass

    def _release(self, ids: Ints) -> None:
        if self.mailbox.held:
            self._believe(ids)
            for listener in ids.tolist():
                self.mailbox.held.pop(listener, None)

    # --- what users see ------------------------------------------------------------------------------------

    def answer(self, listener: int) -> Any:
        """A listener's answer now."""
        if self.is_scalar:
            return self.read(*self.numbers(listener))
        return self._collection(listener).collection.answer()

    def answers(self, ids: Ints) -> npt.NDArray[Any]:
        """Many answers as a column: numbers (NaN is NULL), datetime64 (NaT), int64 for COUNT, objects for the rest."""
        kind, function = self.spec.kind, self.spec.function
        if kind in ("MIN", "MAX"):
            return _extremes(self._extremum.values[ids], self.spec.y_type)
        if self.is_scalar and function == COUNT:
            counts: Ints = self._aggregate.state[ids, ROWS].astype(np.int64)
            return counts
        if self.is_scalar and function != EXACT_SUM:
            return self._aggregate.values(ids)
        answers = np.empty(len(ids), dtype=object)
        answers[:] = [self.answer(listener) for listener in ids.tolist()]
        return answers

    def take(self, listener: int) -> Change | Resync | None:
        """The next event of a listener, removed."""
        mailbox = self.mailbox
        if listener in mailbox.held:
            return None
        backlog = mailbox.backlogs.get(listener)
        if backlog is not None:
            event = backlog.take(self.read) if isinstance(backlog, ScalarBacklog) else backlog.take()
            mailbox.measure(listener, backlog)
            return event
        if not mailbox.fresh[listener] or mailbox.queued[listener]:
            return None
        one = np.array([listener], np.int64)
        taken, gaps = mailbox.take_events(one, *self._numbers(one))
        if not len(taken):
            return None
        seq, gap, answer = int(mailbox.seqs[listener]), int(gaps[0]), self.answer(listener)
        return Resync(seq, answer, 0, GAPS[gap]) if gap else Change(seq, lambda: answer)

    def take_changed(self, group: int) -> tuple[Ints, Ints]:
        """The listeners of a watched group that have a new answer since last asked, by rising number, and of each why
        it is a Resync (a place in GAPS)."""
        mailbox = self.mailbox
        candidates = mailbox.take_noticed(group)
        if self.is_scalar:
            return mailbox.take_events(candidates, *self._numbers(candidates))
        taken = np.array([one for one in candidates.tolist() if self._take_merged(one)], np.int64)
        mailbox.conflated[candidates] += mailbox.fresh[candidates]
        mailbox.conflated[taken] -= 1
        gaps = mailbox.gaps[taken]
        mailbox.fresh[candidates] = mailbox.gaps[candidates] = 0
        return taken, gaps

    def _take_merged(self, listener: int) -> bool:
        """Whether a collection has another answer than when this was last asked, as far as that is kept."""
        backlog = self.mailbox.backlogs.get(listener)
        if not self.mailbox.fresh[listener] or backlog is None or backlog.policy.queues:
            return bool(self.mailbox.fresh[listener])
        events = 0
        while self.take(listener) is not None:
            events += 1
        return events > 0

    def pending(self, listener: int) -> int:
        """Events that wait."""
        backlog = self.mailbox.backlogs.get(listener)
        if backlog is not None:
            return backlog.pending
        return int(self.is_scalar and self.mailbox.has_newest(listener, *self.numbers(listener)))

    def first_seq(self, listener: int) -> int | None:
        """The sequence number of the first event that waits."""
        backlog = self.mailbox.backlogs.get(listener)
        if backlog is not None:
            return backlog.first_seq
        return int(self.mailbox.seqs[listener]) if self.pending(listener) else None

    def dropped(self, listener: int) -> int:
        """Events lost here over the whole life."""
        backlog = self.mailbox.backlogs.get(listener)
        return 0 if backlog is None else backlog.dropped

    def conflated(self, listener: int) -> int:
        """Events that a newer one replaced."""
        backlog = self.mailbox.backlogs.get(listener)
        return int(self.mailbox.conflated[listener]) if backlog is None else backlog.conflated

    def read(self, value: float, rest: float) -> Any:
        """A single value as the answer it stands for."""
        if self.spec.kind in ("MIN", "MAX"):
            return None if np.isinf(value) else value_of(self.spec.y_type, value)
        if np.isnan(value):
            return None
        if self.spec.function == COUNT:
            return int(value)
        return int(value) + int(rest) if self.spec.function == EXACT_SUM else value

    def numbers(self, listener: int) -> tuple[float, float]:
        """A single value as (value, rest)."""
        if self.spec.kind in ("MIN", "MAX"):
            return float(self._extremum.values[listener]), 0.0
        return self._aggregate.answer(listener)

    def _numbers(self, ids: Ints) -> tuple[Floats, Floats]:
        """Single values as (values, rests)."""
        if self.spec.kind in ("MIN", "MAX"):
            return self._extremum.values[ids], np.zeros(len(ids))
        values, rests = answers_of(self.spec.function, self._aggregate.state, ids)
        return values, rests

    def state(self, listener: int) -> list[float]:
        """All that a single value is computed from."""
        if self.spec.kind in ("MIN", "MAX"):
            return [float(self._extremum.values[listener])]
        state: list[float] = self._aggregate.state[listener].tolist()
        return state

    def put_back(
        self, listener: int, waiting: list[tuple[int, float, float]], told: tuple[float, float], *, gap: bool
    ) -> None:
        """Changes of a single value that were not taken before it was stored, and the one that was taken last."""
        if not waiting:
            return
        backlog, mailbox = self.mailbox.backlogs.get(listener), self.mailbox
        if isinstance(backlog, ScalarBacklog):
            for event in waiting:
                backlog.put(*event)
        else:
            mailbox.fresh[listener], mailbox.seqs[listener] = len(waiting), waiting[-1][0]
            mailbox.told[listener], mailbox.told_rests[listener] = told
            mailbox.gaps[listener] = GAPS.index("gap") if gap else 0

    def put_contents(self, listener: int, contents: dict[Any, Any], gap_seq: int | None) -> None:
        """The contents with which a collection goes on."""
        self._contents.forget(np.array([listener]))
        backlog = self.mailbox.backlogs[listener] = self._backlog(listener, contents)
        if gap_seq is not None:
            backlog.resync(gap_seq, None, 0, "gap")

    def _collection(self, listener: int) -> CollectionBacklog:
        backlog = self.mailbox.backlogs.get(listener)
        if backlog is None:
            backlog = self.mailbox.backlogs[listener] = self._opened(listener)
        assert isinstance(backlog, CollectionBacklog), "single values have no collection"
        return backlog

    def _opened(self, listener: int) -> CollectionBacklog:
        return self._backlog(listener, self._contents.take(listener))

    def _backlog(self, listener: int, contents: dict[Any, Any]) -> CollectionBacklog:
        policy, names = self._styles[listener]
        return CollectionBacklog(contents, None if self.spec.kind == "DISTINCT" else row_type(names), policy)


def _states(snapshot: Columns) -> Floats:
    """The states of sums and counts, a row for each."""
    return np.ascontiguousarray(np.column_stack([cast("Floats", snapshot[name]) for name in STATE]))


def _extremes(values: Floats, kind: str) -> npt.NDArray[Any]:
    empty = np.isinf(values)
    if kind != "TIMESTAMP":
        values[empty] = np.nan
        return values
    values[empty] = 0.0
    instants = values.astype(np.int64).astype("datetime64[us]")
    instants[empty] = np.datetime64("NaT")
    return instants
