"""The synchronous facade, and the cluster for tests without an event loop."""

from __future__ import annotations

import builtins
import re
import threading
from collections.abc import Callable
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

import hullcast
from hullcast import Change, testing

CREATE = "CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, PER REAL, RISK REAL)"
MIN = "SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?"


def test_everything_works_without_an_event_loop_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with testing.blocking_cluster() as endpoint, hullcast.connect_blocking(endpoint, name="desk") as hc:
        hc.execute(CREATE)
        assert hc.publish("STOCK", {"SYMBOL": ["a", "b"], "PER": [3.0, 4.0], "RISK": [30.0, 40.0]}).updates == 2
        with hc.subscribe(MIN, 20, 60, overflow="block") as sub:
            assert (sub.answer, sub.seq, sub.pending) == (3.0, 2, 0)
            assert sub.next(timeout=0.01) is None
            hc.publish("STOCK", {"SYMBOL": "c", "PER": 1.0, "RISK": 50.0})
            event = sub.next(timeout=10)
            assert isinstance(event, Change)
            assert event.answer == 1.0
            hc.delete("STOCK", "c")
            assert [event.seq for event in sub.events(timeout=0.1)] == [4]
            assert isinstance(sub.token, str)
        with pytest.raises(hullcast.SubscriptionClosed):
            _ = sub.answer
        assert list(sub) == []
        with hc.subscribe_many(MIN, np.array([0.0, 35.0]), np.array([100.0, 100.0])) as many:
            np.testing.assert_array_equal(many.answers, [3.0, 4.0])
            hc.publish("STOCK", {"SYMBOL": "d", "PER": 2.0, "RISK": 36.0})
            changed = many.next_changes(timeout=10)
            assert changed is not None
            assert (changed.which.tolist(), changed.answer.tolist()) == ([0, 1], [2.0, 2.0])
            assert many[1].answer == 2.0
            assert many.next_changes(timeout=0.01) is None
        assert hc.query("SELECT COUNT(*) AS N FROM STOCK")[0].N == 3
        assert hc.sync() == hc.seq == 5
        assert list(hc.tables()) == ["STOCK"]
        with pytest.raises(hullcast.UnknownTable):
            hc.publish("BONDS", {"SYMBOL": "a"})
    assert threading.active_count() == before


def test_the_change_history_is_read_a_portion_at_a_time(tmp_path: Path) -> None:
    with testing.blocking_cluster(data=tmp_path) as endpoint, hullcast.connect_blocking(endpoint) as hc:
        hc.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, V REAL)")
        hc.publish("T", {"K": np.arange(120_000), "V": np.arange(120_000) / 2})
        assert hc.history("T") == hullcast.History(1, 120_000, 0)
        parts = list(hc.changes("T", 10))
        assert sum(map(len, parts)) == 119_990
        assert len(parts) > 1
        for part in hc.table_at("T"):
            assert len(part) > 1
            break  # and leave
        assert sum(len(part) for part in hc.table_at("T", 50)) == 50


def test_several_threads_may_share_a_client() -> None:
    with testing.blocking_cluster() as endpoint, hullcast.connect_blocking(endpoint) as hc:
        hc.execute(CREATE)

        def publish(number: int) -> None:
            for i in range(20):
                hc.publish("STOCK", {"SYMBOL": f"{number}-{i}", "PER": 1.0, "RISK": 1.0})

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert hc.query("SELECT COUNT(*) FROM STOCK") == [(80,)]


def test_a_blocking_call_inside_a_callback_is_refused_rather_than_waiting_for_itself() -> None:
    failures: list[Exception] = []
    heard = threading.Event()
    with testing.blocking_cluster() as endpoint, hullcast.connect_blocking(endpoint) as hc:
        hc.execute(CREATE)

        def callback(event: hullcast.Event) -> None:
            try:
                hc.sync()
            except RuntimeError as error:
                failures.append(error)
            heard.set()

        with hc.subscribe(MIN, 20, 60, callback=callback):
            hc.publish("STOCK", {"SYMBOL": "a", "PER": 3.0, "RISK": 30.0})
            assert heard.wait(10)
    assert "asyncio client" in str(failures[0])


def test_a_connection_that_fails_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(hullcast.ConnectionLost):
        hullcast.connect_blocking("inproc://nobody-blocking", timeout=0.1)
    assert threading.active_count() == before


FACES = [
    (hullcast.BlockingClient, hullcast.Client),
    (hullcast.BlockingSubscription, hullcast.Subscription),
    (hullcast.BlockingSubscriptions, hullcast.Subscriptions),
]


def test_help_of_the_blocking_client_speaks_of_the_blocking_client() -> None:
    assert str(signature(hullcast.connect_blocking)).endswith("-> 'BlockingClient'")
    assert str(signature(hullcast.BlockingClient.subscribe)).endswith("-> 'BlockingSubscription'")
    assert str(signature(hullcast.BlockingClient.subscribe_many)).endswith("-> 'BlockingSubscriptions'")
    assert "overflow" in signature(hullcast.BlockingClient.subscribe).parameters
    for face, inner in FACES:
        for name in (name for name in vars(face) if not name.startswith("_")):
            says = getattr(face, name).__doc__
            assert says, (face, name)
            assert not {"async", "await"} & set(re.findall(r"\w+", says)), (face, name)
            if isinstance(getattr(face, name), property) and hasattr(inner, name):
                assert says == getattr(inner, name).__doc__, (face, name)
    assert "`overflow` says" in str(hullcast.BlockingClient.subscribe.__doc__)
    assert "await" not in str(hullcast.connect_blocking.__doc__)


def test_what_is_closed_says_so_as_the_asyncio_client_does() -> None:
    with testing.blocking_cluster() as endpoint:
        hc = hullcast.connect_blocking(endpoint)
        hc.execute(CREATE)
        sub, many = hc.subscribe(MIN, 20, 60, overflow="block"), hc.subscribe_many(MIN, [0.0], [100.0])
        hc.publish("STOCK", {"SYMBOL": "a", "PER": 3.0, "RISK": 30.0})
        hc.sync()
        hc.close()
        hc.close()
        assert [event.seq for event in sub] == [1], "what waited is still there"
        assert (sub.closed, many.closed, list(sub), hc.seq) == (True, True, [], 1)
        for call in (lambda: sub.answer, lambda: many.answers):
            with pytest.raises(hullcast.SubscriptionClosed):
                call()
        for late in (lambda: hc.publish("STOCK", {"SYMBOL": "b"}), hc.sync, lambda: hc.subscribe(MIN, 0, 1), hc.drain):
            with pytest.raises(hullcast.ClientClosed):
                late()
        sub.close()


def test_closing_ends_what_other_threads_wait_for() -> None:
    """Some wait for an event, some are in the middle of a call, some call just then, and several close: each ends."""
    ends: list[BaseException | None] = []
    with testing.blocking_cluster() as endpoint:
        for _ in range(20):
            hc = hullcast.connect_blocking(endpoint)
            hc.execute(CREATE.replace("TABLE", "TABLE IF NOT EXISTS"))
            sub, closed, busy = hc.subscribe(MIN, 20, 60), threading.Event(), threading.Event()

            def ask(
                hc: hullcast.BlockingClient = hc, closed: threading.Event = closed, busy: threading.Event = busy
            ) -> None:
                while not closed.is_set():
                    hc.tables()
                    busy.set()

            def until_the_end(work: Callable[[], object]) -> None:
                try:
                    work()
                    ends.append(None)
                except BaseException as error:  # noqa: BLE001  judged below
                    ends.append(error)

            waiting = [
                threading.Thread(target=until_the_end, args=(work,), daemon=True)
                for work in (ask, ask, lambda sub=sub: list(sub))
            ]
            for thread in waiting:
                thread.start()
            assert busy.wait(30)
            closing = [threading.Thread(target=until_the_end, args=(hc.close,), daemon=True) for _ in range(2)]
            for thread in closing:
                thread.start()
            for thread in closing:
                thread.join(30)
            closed.set()
            for thread in waiting:
                thread.join(30)
            assert not any(thread.is_alive() for thread in (*waiting, *closing))
    assert {type(end) for end in ends} <= {type(None), hullcast.ClientClosed}


def test_closing_inside_a_callback_is_refused_and_ends_nothing() -> None:
    failures: list[Exception] = []
    heard = threading.Event()
    with testing.blocking_cluster() as endpoint, hullcast.connect_blocking(endpoint) as hc:
        hc.execute(CREATE)

        def callback(event: hullcast.Event) -> None:
            for end in (hc.close, hc.drain):
                try:
                    end()
                except RuntimeError as error:
                    failures.append(error)
            heard.set()

        with hc.subscribe(MIN, 20, 60, callback=callback):
            hc.publish("STOCK", {"SYMBOL": "a", "PER": 3.0, "RISK": 30.0})
            assert heard.wait(10)
            assert hc.query("SELECT COUNT(*) FROM STOCK") == [(1,)]
    assert all("asyncio client" in str(failure) for failure in failures)
    assert len(failures) == 2


async def test_the_blocking_client_refuses_a_running_event_loop_but_not_that_of_a_notebook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(hullcast.UsageError, match=r"inside a running event loop.*async with hullcast\.connect"):
        hullcast.connect_blocking("tcp://127.0.0.1:1")
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    with pytest.raises(hullcast.ConnectionLost):
        hullcast.connect_blocking("tcp://127.0.0.1:1", timeout=0.01)
