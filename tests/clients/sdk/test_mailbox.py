"""What listeners have heard, in arrays: only those that somebody waits for are touched one by one."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from hullcast.clients.sdk.mailbox import GAPS, UNTAKEN, Mailbox, OverflowPolicy
from hullcast.clients.sdk.single import SingleBacklog
from hullcast.clients.sdk.tuples import TupleBacklog
from hullcast.network.answers.answers import Overflow
from hullcast.network.answers.events import Resync, StreamTuple
from hullcast.network.answers.named import row_type
from hullcast.network.answers.outbox import Taken


def mailbox(size: int = 100) -> Mailbox:
    made = Mailbox(lambda listener: SingleBacklog(OverflowPolicy("drop_oldest", 4), lambda value, rest: value))
    made.reserve(size)
    return made


def ids(*numbers: int) -> npt.NDArray[np.int64]:
    return np.array(numbers, np.int64)


def tell(box: Mailbox, *pairs: tuple[int, int]) -> None:
    """Listeners and sequence numbers."""
    who, seqs = ids(*(listener for listener, _ in pairs)), ids(*(seq for _, seq in pairs))
    box.put(who, seqs, seqs.astype(np.float64))
    box.flush()


def changed(box: Mailbox, group: int) -> list[int]:
    """Who has an event, if each change of a listener is to its sequence number."""
    candidates = box.take_noticed(group)
    taken: list[int] = box.take_events(candidates, box.seqs[candidates].astype(float), np.zeros(len(candidates)))[
        0
    ].tolist()
    return taken


def test_the_newest_change_of_each_listener_stays_and_the_others_are_counted() -> None:
    box = mailbox()
    tell(box, (3, 10), (5, 10), (3, 11), (3, 12))
    assert box.seqs[[3, 5]].tolist() == [12, 10]
    assert box.fresh[[3, 4, 5]].tolist() == [3, 0, 1]


def test_only_who_waits_is_woken_and_only_if_there_is_something() -> None:
    box, woken = mailbox(), []
    box.wait(3, lambda: woken.append(3))
    box.wait(4, lambda: woken.append(4))
    tell(box, (3, 1), (3, 2), (5, 2))
    box.wake()
    box.wake()
    assert woken == [3]
    box.wait(3, None)
    tell(box, (3, 3), (4, 3))
    box.wake()
    assert woken == [3, 4]


def test_queued_events_are_kept_one_by_one() -> None:
    box = mailbox()
    box.queue(ids(7))
    tell(box, (7, 1), (6, 1), (7, 2))
    assert box.backlogs[7].pending == 2
    assert list(box.backlogs) == [7]


def test_held_listeners_hear_nothing_and_what_they_missed_is_counted() -> None:
    box = mailbox()
    box.queue(ids(7))
    box.held[7] = 0
    tell(box, (7, 1), (6, 1), (7, 2))
    assert box.held == {7: 2}
    assert box.fresh[[6, 7]].tolist() == [1, 0]


def test_a_watched_group_is_told_which_of_its_listeners_changed_each_once() -> None:
    box, woken = mailbox(), []
    tell(box, (2, 1))
    box.watch(1, ids(1, 2, 3), lambda: woken.append(1))
    box.watch(2, ids(4, 5), lambda: woken.append(2))
    assert changed(box, 1) == [2]  # from before it was watched
    for seq in range(2, 2 * UNTAKEN):  # longer than changes are listed
        tell(box, (1, seq), (3, seq), (9, seq))
    box.wake()
    assert woken == [1]
    assert sum(map(len, box.noticed[1])) <= 2 * UNTAKEN + 3
    assert changed(box, 1) == [1, 3]
    assert changed(box, 1) == []
    assert box.conflated[1] == 2 * UNTAKEN - 3
    box.watch(1, ids(1, 2, 3), None)
    tell(box, (1, 500))
    assert list(box.noticed) == [2]


def test_who_left_is_forgotten() -> None:
    box = mailbox()
    box.watch(1, ids(1, 2), lambda: None)
    box.wait(1, lambda: None)
    box.queue(ids(1))
    tell(box, (1, 1), (2, 1))
    box.forget(ids(1))
    assert changed(box, 1) == [2]
    assert not box.backlogs
    assert (box.fresh[1], box.wanted[1], box.queued[1], box.watched[1]) == (0, False, False, 0)


came = st.tuples(st.sampled_from(["tuples", "gap", "overflow", "take"]), st.integers(1, 4))


@given(st.sampled_from(get_args(Overflow)), st.lists(came, max_size=12))
def test_all_tuples_that_wait_are_those_taken_one_by_one(overflow: Overflow, history: list[tuple[str, int]]) -> None:
    names = ("X",)
    one, all_of_them = (TupleBacklog(OverflowPolicy(overflow, 3), row_type(names)) for _ in range(2))
    seq = 0
    for what, count in history:
        seqs = list(range(seq + 1, seq + 1 + count))
        seq += count
        for backlog in (one, all_of_them):
            if what == "tuples":
                backlog.hear(Taken(seqs, [0.0] * count, [0.0] * count, [(float(at),) for at in seqs]))
            elif what != "take":
                backlog.resync(seq, count, what)
        if what == "take":
            wanted: list[StreamTuple | Resync] = []
            while (event := one.take()) is not None:
                wanted.append(event)
            taken: tuple[list[int], list[Any], list[int]] = ([], [], [])
            all_of_them.take_all(*taken)
            assert taken[0] == [event.seq for event in wanted]
            assert taken[1] == [event.row if isinstance(event, StreamTuple) else None for event in wanted]
            assert taken[2] == [GAPS.index(event.reason) if isinstance(event, Resync) else 0 for event in wanted]
        assert one.pending == all_of_them.pending


@given(st.lists(came, max_size=20), st.integers(1, 4))
def test_a_full_queue_of_tuples_lets_its_last_one_stand_for_those_left_out(
    history: list[tuple[str, int]], buffer: int
) -> None:
    backlog = TupleBacklog(OverflowPolicy("conflate", buffer), row_type(("X",)))
    seq = tuples = told = events = 0
    resyncs = [what for what, _ in history if what in ("gap", "overflow")]
    for what, count in [*history, ("take", 1000)]:
        if what == "tuples":
            seqs = range(seq + 1, seq + 1 + count)
            backlog.hear(Taken([*seqs], [0.0] * count, [0.0] * count, [(float(at),) for at in seqs]))
            tuples += count
            assert backlog.pending <= buffer + len(resyncs)
        elif what == "take":
            for _ in range(count):
                event = backlog.take()
                if isinstance(event, StreamTuple):
                    assert event.seq == event.row.X
                    told, events = told + 1, events + 1
                told += 0 if event is None else event.conflated
        else:
            backlog.resync(seq, count, what)
        seq += count
    assert told == tuples == events + backlog.conflated


def test_latest_keeps_one_tuple_and_one_resync_however_many_come() -> None:
    backlog = TupleBacklog(OverflowPolicy("latest"), row_type(("A",)))
    backlog.resync(3, 2, "gap")
    for seq in range(4, 100):
        item = None if seq in (50, 60) else (float(seq),)
        backlog.hear(Taken([seq], [0.0], [0.0], [item]))
        assert backlog.pending <= 2
    assert backlog.take() == Resync(60, None, 2, "gap")
    last = backlog.take()
    assert isinstance(last, StreamTuple)
    assert (last.seq, tuple(last.row), backlog.conflated) == (99, (99.0,), 96 - 2 - 1)
    assert last.conflated == backlog.conflated
    assert backlog.take() is None
