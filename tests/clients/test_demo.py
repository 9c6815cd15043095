"""The demo's own parts: who wants what, the record, streams of events, the judge, what others would send, the look.

The processes themselves are in tests/system/test_demo_run.py.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from hullcast.broker.engine.engine import Engine
from hullcast.clients.demo.director import DemoSettings, DemoState, Shown, on_screen
from hullcast.clients.demo.judge import Continuity, Judge, Moment, Verdict, count_different, judge_all, same
from hullcast.clients.demo.record import Acknowledged, Rebuilt, RecordReader, written, written_event
from hullcast.clients.demo.scenario import CLIENTS, MANY, PUBLISHER, VICTIM, many_ranges, merged, share_of, wanted
from hullcast.clients.demo.stocks import CREATES, Removal, Upsert, stock_trace
from hullcast.clients.demo.traffic import HOPS, ContentNetwork, DemoTraffic, LinkLoad, unicast
from hullcast.clients.demo.view import Summary, closing, frame, news, plain_line
from hullcast.clients.demo.workers import shown
from hullcast.network.answers.events import Resync, Snapshot
from hullcast.sim.traces.table51 import RangeColumns

if TYPE_CHECKING:
    from pathlib import Path

    from hullcast.clients.demo.judge import Moved

RANGES = many_ranges(90, 0)


class Played:
    """A small trace through an embedded engine: what each client would bring, and the judge beside it."""

    def __init__(self) -> None:
        engine, self.judge, self.moments = Engine(), Judge(), list[Moment]()
        self.entries: list[tuple[Acknowledged, list[Moved]]] = []
        trace = stock_trace(60, 400, batch=40, root=3)
        for sql in CREATES:
            engine.execute(sql)

        def apply(action: Upsert | Removal, *, moment: bool) -> None:
            first = engine.seq + 1
            if isinstance(action, Upsert):
                engine.upsert(action.table, list(action.rows))
            else:
                engine.delete(action.table, list(action.keys))
            entry = Acknowledged(first, engine.seq, action, moment)
            self.entries.append((entry, self.judge.apply(entry)))

        for action in trace.start:
            apply(action, moment=False)
        singles = {(client, one.sql): engine.subscribe(one.sql) for client in CLIENTS for one in wanted(client)}
        many = {
            client: engine.subscribe_many(MANY, share_of(RANGES, client).low, share_of(RANGES, client).high)
            for client in CLIENTS
        }
        events = {key: [written_event(Snapshot(engine.seq, one.answer))] for key, one in singles.items()}
        for batch in trace.batches:
            for action in batch:
                apply(action, moment=action is batch[-1])
            expected = {sql: self.judge.answer(sql) for _, sql in singles}
            self.moments.append(Moment(self.judge.seq, expected))
            for key, subscription in singles.items():
                events[key] += [written_event(event) for event in subscription.drain()]
        self.results: dict[str, dict[str, Any]] = {}
        for client in CLIENTS:
            watched = [
                {
                    "kind": one.kind,
                    "sql": one.sql,
                    "answer": written(singles[client, one.sql].answer),
                    "events": events[client, one.sql],
                }
                for one in wanted(client)
            ]
            answers = [None if value != value else value for value in many[client].answers.tolist()]
            self.results[client] = {
                "seq": engine.seq,
                "watched": watched,
                "many": answers,
                "rebuilt": list(answers),
            }
        self.results = json.loads(json.dumps(self.results))  # as they come from another process

    def verdict(self) -> Verdict:
        return judge_all(self.results, self.judge, self.moments, RANGES)

    def watched(self, kind: str, client: str = CLIENTS[0]) -> dict[str, Any]:
        return next(dict(one) for one in self.results[client]["watched"] if one["kind"] == kind)

    def events(self, kind: str) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = self.watched(kind)["events"]
        return events


@pytest.fixture
def played() -> Played:
    return Played()


# --- who wants what ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_has_a_subscription_of_every_kind(client: str) -> None:
    kinds = {one.kind for one in wanted(client)}
    assert kinds == {"MIN", "MAX", "DISTINCT", "COUNT", "SUM", "AVG", "rows", "join", "band join"}


def test_every_kind_and_every_client_is_on_the_screen() -> None:
    shown = on_screen()
    assert [one.kind for one in shown] == [one.kind for one in wanted(CLIENTS[0])]
    assert {one.client for one in shown} == set(CLIENTS)


def test_no_two_clients_ask_the_same() -> None:
    queries = [one.sql for client in CLIENTS for one in wanted(client)]
    assert len(set(queries)) == len(queries)


def test_the_ranges_are_shared_out_completely() -> None:
    ranges = many_ranges(1000, 7)
    assert sum(len(share_of(ranges, client)) for client in CLIENTS) == 1000
    assert np.array_equal(np.concatenate([share_of(ranges, client).low for client in CLIENTS]), ranges.low)
    assert (ranges.low <= ranges.high).all()


def test_what_ranges_cover_together() -> None:
    ranges = RangeColumns(np.array([5.0, 0.0, 1.0, 9.0]), np.array([6.0, 1.0, 3.0, 9.0]))
    assert merged(ranges) == [(0.0, 3.0), (5.0, 6.0), (9.0, 9.0)]


# --- the record -------------------------------------------------------------------------------------------------


def test_the_record_is_read_as_it_was_written_and_whole_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "record"
    reader = RecordReader(path)
    assert reader.new() == []
    entries = [
        Acknowledged(1, 2, Upsert("STOCK", ({"SYMBOL": "Ä", "PER": None}, {"SYMBOL": "B", "PER": 0.1})), moment=False),
        Acknowledged(3, 3, Removal("STOCK", ("Ä",)), moment=True),
    ]
    text = "".join(entry.line() for entry in entries)
    path.write_text(text[:-5])
    assert reader.new() == entries[:1]
    path.write_text(text)
    assert reader.new() == entries[1:]
    assert reader.new() == []


def test_a_hole_in_the_sequence_numbers_is_noticed() -> None:
    continuity = Continuity()
    for first, last in ((4, 9), (10, 10), (12, 12)):
        continuity.follow(Acknowledged(first, last, Removal("STOCK", ()), moment=False))
    assert continuity.fault == "no client published the updates 11 to 11"


# --- the verdict ------------------------------------------------------------------------------------------------


def test_all_is_right_if_all_answers_and_all_events_are(played: Played) -> None:
    verdict = played.verdict()
    assert verdict.faults == []
    singles = sum(len(wanted(client)) for client in CLIENTS)
    assert verdict.final == singles + len(RANGES)
    assert verdict.rebuilt == singles * len(played.moments) + len(RANGES)
    assert verdict.events > 100
    assert not verdict.resyncs


@pytest.mark.parametrize("kind", ["MIN", "COUNT", "SUM", "AVG", "rows", "band join"])
def test_an_event_that_is_missing_is_noticed(played: Played, kind: str) -> None:
    events = played.events(kind)
    del events[-1]
    assert played.verdict().wrong


@pytest.mark.parametrize("kind", ["AVG", "rows"])
def test_an_event_told_twice_is_noticed(played: Played, kind: str) -> None:
    events = played.events(kind)
    events.insert(2, events[1])
    assert any("after one of" in fault or "was not there" in fault for fault in played.verdict().faults)


def test_a_wrong_answer_at_the_end_is_noticed(played: Played) -> None:
    for one in played.results[CLIENTS[0]]["watched"]:
        if one["kind"] == "SUM":
            one["answer"] *= 1 + 1e-6
    assert played.verdict().wrong == 1


@pytest.mark.parametrize("which", ["many", "rebuilt"])
def test_one_wrong_answer_among_many_is_noticed(played: Played, which: str) -> None:
    column = played.results[CLIENTS[1]][which]
    place = next(i for i, value in enumerate(column) if value is not None)
    column[place] += 0.01
    verdict = played.verdict()
    assert verdict.wrong == 1
    assert verdict.faults[0].startswith("client-2: 1 of 30 MIN ranges")


def test_a_client_that_did_not_come_to_the_end_is_noticed(played: Played) -> None:
    played.results[CLIENTS[2]]["seq"] -= 1
    assert played.verdict().wrong == 1


def test_a_gap_that_a_resync_tells_of_is_no_fault_but_is_counted(played: Played) -> None:
    events = played.events("rows")
    seq, answer = played.judge.seq, played.watched("rows")["answer"]
    kept = [event for event in events if event["seq"] < played.moments[2].seq]
    rows = [tuple(row) for row in answer]
    events[:] = [*kept, written_event(Resync(seq, rows, 5, "gap"))]
    verdict = played.verdict()
    assert verdict.faults == []
    assert verdict.resyncs == {"gap": 1}
    assert verdict.unseen > 0


def test_rows_that_come_and_go_are_counted_even_when_they_look_alike() -> None:
    known = Rebuilt(
        [
            {"seq": 1, "answer": [["A", 1], ["A", 1]], "how": "snapshot"},
            {"seq": 2, "left": [["A", 1]], "entered": []},
            {"seq": 3, "left": [["B", 1]], "entered": []},
        ]
    )
    assert known.at(1) == [("A", 1), ("A", 1)]
    assert known.at(2) == [("A", 1)]
    assert known.faults == []
    known.at(3)
    assert known.faults == ["a row leaves at 3 that was not there"]


def test_sums_may_differ_in_the_last_digits_and_null_is_only_null() -> None:
    assert same(0.1 + 0.2, 0.3)
    assert not same(1.0, 1.0001)
    assert not same(None, 0.0)
    assert same([("A", 1.5)], [("A", 1.5)])
    assert count_different(np.array([1.0, np.nan, 2.0]), np.array([1.0, np.nan, np.nan])) == 1


# --- what others would have sent --------------------------------------------------------------------------------


def test_content_networks_bring_each_row_once_to_every_link_below_which_somebody_holds_it(played: Played) -> None:
    network = ContentNetwork(RangeColumns(np.array([0.0, 0.0, 200.0]), np.array([100.0, 100.0, 300.0])))
    places = {"client-1": VICTIM, "client-2": "gateway-2", "client-3": VICTIM, PUBLISHER: VICTIM}
    entry, moved = played.entries[0]  # the stocks; band joins hold every one of them
    network.carry("STOCK", entry.last, moved, places)
    assert network.load.messages == 60 * (1 + 2 + 3)  # to the root, two gateways, three clients
    assert network.held >= 60 * (len(CLIENTS) + 2)
    one_link = network.load.size_bytes
    network.carry("STOCK", entry.last, moved, dict.fromkeys(places, "gateway-2"))
    assert network.load.messages == 60 * (1 + 2 + 3) + 60 * (1 + 1 + 3)
    assert network.load.size_bytes < 2 * one_link
    network.close()


def test_content_networks_know_who_holds_an_index(played: Played) -> None:
    network = ContentNetwork(many_ranges(0, 0))
    entry, moved = played.entries[1]
    assert isinstance(entry.action, Upsert)
    network.carry("SECTOR_INDEX", entry.last, moved, dict.fromkeys(CLIENTS, VICTIM))
    levels = [row["LEVEL"] for row in entry.action.rows]
    assert network.held == sum(level > 1000 - 50 * i for level in levels for i in range(len(CLIENTS)))
    network.close()


def test_unicast_tells_each_subscription_all_the_way() -> None:
    assert unicast(10, 100) == LinkLoad(HOPS * 10, HOPS * (10 * 24 + 100))


# --- how it looks -----------------------------------------------------------------------------------------------


def test_answers_are_shown_in_a_few_words() -> None:
    assert (shown(None), shown(1234.5), shown(1234)) == ("NULL", "1,234.50", "1,234")
    assert shown(set()) == shown([]) == "nothing"
    assert shown({"B", "A"}) == "A, B"
    assert shown([("A", 1.0), ("B", 2.5), ("C", 3.0), ("D", 4.0), ("E", 5.0)]) == "A 1, B 2.5, C 3, +2"


def _state() -> DemoState:
    rows = [Shown(CLIENTS[0], one.kind, one.sql, "5.00", 5.0, 4.0, 12) for one in wanted(CLIENTS[0])]
    state = DemoState(
        DemoSettings(40, 500, 20_000, 30_000, 0), rows, subscriptions=30_030, playing=True, published=10_000
    )
    state.traffic = DemoTraffic(
        10_000, 19_000, 1_100_000, 32_000_000, LinkLoad(80_000, 5_000_000), LinkLoad(1, 10), LinkLoad(9, 10**8)
    )
    return state


def _drawn(state: DemoState, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(frame(state, width, height))
    console.file.close()
    return console.export_text().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (110, 30), (160, 45)])
def test_a_frame_fits_the_terminal_and_shows_every_kind(width: int, height: int) -> None:
    lines = _drawn(_state(), width, height)
    assert len(lines) <= height
    assert sum("SELECT" in line for line in lines) == len(wanted(CLIENTS[0]))
    assert any("unicast" in line and "100 MB" in line for line in lines)
    assert any("10,000 of 20,000 updates" in line for line in lines)


def test_the_kill_and_the_moves_are_seen_and_told_once() -> None:
    state, told = _state(), set[str]()
    assert news(state, told) == []
    state.alive[VICTIM], state.killed_at_s = False, 20.0
    assert news(state, told) == ["kill -9 gateway-1, to which client-1, client-3, publisher are connected"]
    state.places["client-1"], state.moved_ms["client-1"] = "gateway-2", 43.2
    assert news(state, told) == ["client-1 continues at gateway-2 after 43 ms"]
    assert news(state, told) == []
    text = "\n".join(_drawn(state, 110, 30))
    assert "kill -9 at 20.0 s; 1 moved within 43 ms" in text
    assert "unicast: 100 MB" in plain_line(state)


def test_the_summary_says_why_cn_sends_less_and_only_then() -> None:
    state, verdict = _state(), Verdict()
    assert (
        "in 3 processes here, so CN sends a row over a few links only"
        in dict(Summary.of(state, verdict, 50.0).lines())["why CN is low"]
    )
    state.traffic = replace(state.traffic, content=LinkLoad(1, 10**8))
    assert "why CN is low" not in dict(Summary.of(state, verdict, 50.0).lines())


def test_the_summary_says_all_that_was_found() -> None:
    state, verdict = _state(), Verdict(final=30_030, rebuilt=50_000, events=9, moments=7)
    state.killed_at_s, state.moved_ms = 20.0, {"client-1": 40.0, PUBLISHER: 7.0}
    right = Summary.of(state, verdict, 50.0)
    lines = dict(right.lines())
    assert lines["kill -9"].endswith("client-1 in 40 ms, publisher in 7 ms")
    assert lines["on all links"].startswith("Hullcast sent 5.0 MB. Unicast (a message for each changed answer) would")
    assert lines["on all links"].endswith("have sent 100 MB (20.0x), content-based routing of rows (CN) 10 B (0.0x).")
    assert lines["verdict"].endswith("all as in SQL")
    assert json.loads(json.dumps(right.as_json()))["right"] is True
    verdict.fault("client-1: [something] is wrong", 3)
    wrong = Summary.of(state, verdict, 50.0)
    assert not wrong.is_right
    assert wrong.lines()[-2:] == [
        ("fault", "client-1: [something] is wrong"),
        ("verdict", "30,030 final answers and 50,000 answers rebuilt from events alone (at 7 moments): 3 faults"),
    ]
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(closing(wrong))
    console.file.close()
    assert "client-1: [something] is wrong" in console.export_text()
