"""Every answer and every event stream of the demo against SQL."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.demo.judge import count_different, same
from hullcast.clients.demo.stream import Rebuilt, canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hullcast.clients.demo.judge import Judge
    from hullcast.clients.demo.record import Entry
    from hullcast.clients.demo.scenario import Ranges

SHOWN_FAULTS = 5


@dataclass(slots=True)
class Moment:
    """What SQL said after the update `seq`, by query."""

    seq: int
    answers: Mapping[str, Any]


@dataclass(slots=True)
class Verdict:
    """How many checks of each kind were made, and what they found."""

    final: int = 0  # answers at the end, against SQL
    rebuilt: int = 0  # answers rebuilt from events alone, against SQL, at many moments
    events: int = 0
    moments: int = 0
    resyncs: Counter[str] = field(
        default_factory=Counter
    )  # by reason; "gap" and "overflow" say that events are missing
    unseen: int = 0  # moments inside a gap that a Resync told of
    wrong: int = 0
    faults: list[str] = field(default_factory=list)  # the first few

    def fault(self, text: str, count: int = 1) -> None:
        """Something is wrong."""
        self.wrong += count
        if len(self.faults) < SHOWN_FAULTS:
            self.faults.append(text)


class Continuity:
    """Whether the acknowledged calls have sequence numbers without a gap: nothing was applied twice or by others."""

    def __init__(self) -> None:
        self._last: int | None = None
        self.fault: str | None = None

    def follow(self, entry: Entry) -> None:
        """Take the next entry of the record."""
        if self._last is not None and entry.first != self._last + 1 and self.fault is None:
            self.fault = f"no client published the updates {self._last + 1} to {entry.first - 1}"
        self._last = entry.last


def judge_all(
    results: Mapping[str, Mapping[str, Any]], judge: Judge, moments: Iterable[Moment], ranges: Ranges
) -> Verdict:
    """Judge what each client brought: its final answers, those it would have from events alone, and its many."""
    verdict = Verdict()
    moments = list(moments)
    verdict.moments = len(moments)
    for client, result in results.items():
        if result["seq"] != judge.seq:
            verdict.fault(f"{client} is at update {result['seq']}, the publisher at {judge.seq}")
        for one in result["watched"]:
            _judge_stream(verdict, client, one, judge, moments)
        mine = ranges.of(client)
        expected = judge.minima(mine)
        for name, count in (("many", "final"), ("rebuilt", "rebuilt")):
            different = count_different(_column(result[name]), expected)
            setattr(verdict, count, getattr(verdict, count) + len(mine))
            if different:
                verdict.fault(
                    f"{client}: {different:,} of {len(mine):,} MIN ranges ({name}) are not as in SQL", different
                )
    return verdict


def _judge_stream(verdict: Verdict, client: str, one: Mapping[str, Any], judge: Judge, moments: list[Moment]) -> None:
    sql, events = one["sql"], one["events"]
    verdict.events += len(events) - 1  # the first is the answer to begin with
    verdict.resyncs.update(event["how"] for event in events[1:] if "how" in event)
    verdict.final += 1
    expected = judge.answer(sql)
    if not same(canonical(one["answer"]), expected):
        verdict.fault(f"{client}: {sql} is {one['answer']!r:.60}, in SQL {expected!r:.60}")
    known = Rebuilt(events)
    answers = [(moment, known.at(moment.seq)) for moment in moments]
    last = known.at(judge.seq)
    for text in known.faults:
        verdict.fault(f"{client}: {sql}: {text}")
    for moment, answer in answers:
        if not known.sees(moment.seq):
            verdict.unseen += 1
            continue
        verdict.rebuilt += 1
        if not same(answer, moment.answers[sql]):
            verdict.fault(
                f"{client}: {sql} at {moment.seq}: events give {answer!r:.60}, SQL {moment.answers[sql]!r:.60}"
            )
    if not same(last, expected):
        verdict.fault(f"{client}: {sql}: the events give {last!r:.60} at the end, SQL {expected!r:.60}")


def _column(values: list[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([np.nan if value is None else value for value in values], np.float64)
