"""Queues of events: bounded, in order, and whoever follows the events always arrives at the answer."""

from __future__ import annotations

import math
import sys
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast import BadSetting
from hullcast.clients.sdk.collected import CollectionBacklog
from hullcast.clients.sdk.mailbox import OverflowPolicy
from hullcast.clients.sdk.single import Note, SingleBacklog
from hullcast.network.answers.answers import Overflow
from hullcast.network.answers.collection import CHANGE, ENTER, LEAVE, Collection
from hullcast.network.answers.events import Change, Resync
from hullcast.network.answers.outbox import Taken

POLICIES: tuple[Overflow, ...] = get_args(Overflow)
STEPS = st.lists(st.sampled_from(["change", "change", "change", "take", "gap"]), max_size=60)


def read(value: float, rest: float) -> float:
    return value


@given(STEPS, st.integers(1, 4))
def test_a_queue_of_single_values_tells_all_in_order_and_counts_what_it_drops(steps: list[str], buffer: int) -> None:
    backlog = SingleBacklog(OverflowPolicy("drop_oldest", buffer), read)
    told: list[Change | Resync] = []
    changes = gaps = 0
    for seq, step in enumerate(steps, 1):
        if step == "take":
            event = backlog.take()
            told += [] if event is None else [event]
        elif step == "gap":
            gaps += 1
            backlog.resync(seq, (float(seq), 0.0), 0, "gap")
        else:
            changes += 1
            backlog.put(Note(seq, float(seq), 0.0))
        assert backlog.pending <= buffer + 1
    while (event := backlog.take()) is not None:
        told.append(event)
    seqs = [event.seq for event in told]
    assert seqs == sorted(set(seqs))
    assert all(event.answer == event.seq for event in told)
    lost = sum(event.lost for event in told if isinstance(event, Resync))
    assert lost == backlog.dropped
    assert len(told) <= changes + gaps
    happened = [seq for seq, step in enumerate(steps, 1) if step != "take"]
    assert seqs[-1:] == happened[-1:]
    for i, event in enumerate(told):  # between two events that are no Resync nothing is missing
        if isinstance(event, Change):
            before = seqs[i - 1] if i else 0
            assert not [seq for seq in happened if before < seq < event.seq]


@given(STEPS, st.integers(1, 4))
def test_a_full_queue_of_single_values_lets_its_last_event_stand_for_what_comes(steps: list[str], buffer: int) -> None:
    backlog = SingleBacklog(OverflowPolicy("conflate", buffer), read)
    waits: list[list[int]] = []  # the sequence numbers that each event stands for
    gaps = {seq for seq, step in enumerate(steps, 1) if step == "gap"}
    conflated = 0

    def take() -> None:
        event = backlog.take()
        if not waits:
            assert event is None
            return
        assert event is not None
        stands_for = waits.pop(0)
        assert (event.seq, event.answer, 1 + event.conflated) == (stands_for[-1], stands_for[-1], len(stands_for))
        assert isinstance(event, Resync) == bool(gaps & set(stands_for))

    for seq, step in enumerate(steps, 1):
        if step == "take":
            take()
            continue
        if len(waits) < buffer:
            waits.append([seq])
        else:
            waits[-1].append(seq)
            conflated += 1
        if step == "gap":
            backlog.resync(seq, (float(seq), 0.0), 0, "gap")
        else:
            backlog.put(Note(seq, float(seq), 0.0))
        assert (backlog.pending, backlog.conflated) == (len(waits), conflated)
    while waits:
        take()
    assert (backlog.take(), backlog.dropped) == (None, 0)


CELLS = st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 2)))  # key, row or gone
HISTORY = st.lists(st.one_of(CELLS, st.sampled_from(["take", "swap", "gap", "token"])), max_size=50)


@pytest.mark.parametrize("overflow", POLICIES)
@given(history=HISTORY, buffer=st.integers(1, 4))
def test_a_queue_of_rows_leads_from_answer_to_answer(overflow: Overflow, history: list[Any], buffer: int) -> None:
    policy = OverflowPolicy(overflow, buffer)
    contents: dict[int, tuple[int]] = {9: (9,)}
    backlog = CollectionBacklog(Collection(dict(contents), tuple, policy.limit, policy.room), policy)
    answers = {0: [(9,)]}  # by sequence number
    followed = sorted(answers[0])  # by whoever adds up the events
    last = changes = told = 0
    held: list[Change | Resync] = []  # by somebody who looks at their answers later

    def follow(event: Change | Resync) -> None:
        nonlocal followed, last, told
        held.append(event)
        told += 1 + event.conflated
        assert event.seq > last or isinstance(event, Resync)
        last = event.seq
        if isinstance(event, Resync):
            followed = sorted(event.answer)
        else:
            for row in event.left:
                followed.remove(row)
            for before, after in event.changed:
                followed.remove(before)
                followed.append(after)
            followed = sorted([*followed, *event.entered])
        assert sorted(event.answer) == followed == sorted(answers[event.seq])

    for seq, step in enumerate(history, 1):
        if step == "take":
            event = backlog.take()
            if event is not None:
                follow(event)
        elif step == "gap":
            contents = {8: (seq,)}
            backlog.resync(seq, dict(contents), 0, "gap")
        elif step == "token":
            if not backlog.has_gap:
                first = backlog.collection.first_seq
                as_of = seq - 1 if first is None else first - 1
                known = max(known for known in answers if known <= as_of)
                assert list(backlog.collection.settled().values()) == answers[known]
        elif step == "swap":  # the same rows, one under another key: nothing to tell
            key, free = max(contents, default=9), seq + 9
            if key in contents:
                row = contents.pop(key)
                contents[free] = row
                backlog.hear(Taken([seq] * 2, [LEAVE, ENTER], [], [(key, row), (free, row)]))
        else:
            key, value = step
            if (value is None and key not in contents) or contents.get(key) == (value,):
                continue
            how = LEAVE if value is None else CHANGE if key in contents else ENTER
            row = (value,)
            changes += 1
            backlog.hear(Taken([seq], [how], [], [(key, row)]))
            if value is None:
                del contents[key]
            else:
                contents[key] = row
        answers[seq] = [contents[key] for key in sorted(contents)]
        assert backlog.pending <= 2 * policy.limit + 2
        if overflow == "conflate" and "gap" not in history:
            assert backlog.pending <= buffer
    while (event := backlog.take()) is not None:
        follow(event)
    assert followed == sorted(contents.values())
    assert [sorted(event.answer) for event in held] == [sorted(answers[event.seq]) for event in held]
    if "gap" not in history and overflow in ("conflate", "block", "error"):
        assert told == changes == len(held) + backlog.conflated
    assert list(backlog.collection.answer()) == [contents[key] for key in sorted(contents)]


def test_policies_say_what_they_take() -> None:
    assert (OverflowPolicy("block", 10).limit, OverflowPolicy("drop_oldest", 10).limit) == (sys.maxsize, 10)
    with pytest.raises(BadSetting, match="conflate, latest, block, drop_oldest, error"):
        OverflowPolicy("keep", 10)  # type: ignore[arg-type]  # that is the point
    for buffer in (0, -1, 1.5, math.inf, True):
        with pytest.raises(BadSetting, match="whole number"):
            OverflowPolicy("block", buffer)  # type: ignore[arg-type]  # that is the point
