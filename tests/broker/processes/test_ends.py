"""How the warehouse process and its workers speak: tables and plans travel once, and answers wake the process once."""

from __future__ import annotations

import socket

import pytest

from hullcast.broker.log.history import Life
from hullcast.broker.processes import ends
from hullcast.broker.processes.ends import BlockingEnd, SharedIn, SharedOut
from hullcast.broker.sql.create import CreateTable, parse_statement
from hullcast.broker.warehouse.messages import SHARED, Finished, LoadTable, Pinned


def life_of(number: int) -> Life:
    statement = parse_statement(f"CREATE TABLE T{number} (K INTEGER PRIMARY KEY, V REAL)")
    assert isinstance(statement, CreateTable)
    return Life(statement.table, number)


def sent(out: SharedOut, into: SharedIn, message: object) -> tuple[object, int]:
    content = out.message_bytes(message)
    size = int.from_bytes(content[:8], "little")
    assert len(content) == 8 + size
    return into.message(bytearray(content[8:])), size


def test_a_table_travels_once_and_is_the_same_object_from_then_on() -> None:
    out, into, life = SharedOut(SHARED), SharedIn(), life_of(1)
    first, size = sent(out, into, LoadTable(life, 5))
    again, again_size = sent(out, into, LoadTable(life, 6))
    assert (first, again) == (LoadTable(life, 5), LoadTable(life, 6))
    assert isinstance(first, LoadTable)
    assert isinstance(again, LoadTable)
    assert again.life is first.life
    assert again_size < size / 2


def test_tables_stay_right_when_there_are_more_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "MOST_SHARED", 3)
    out, into, lives = SharedOut(SHARED), SharedIn(), [life_of(number) for number in range(5)]
    for number in (0, 1, 0, 2, 3, 0, 0, 4, 3, 1, 2, 1):
        pair = (LoadTable(lives[number], number), LoadTable(lives[(number + 1) % 5], number))
        assert sent(out, into, pair)[0] == pair
    assert len(into._things) <= 3


def test_what_a_worker_says_goes_out_together_when_it_is_flushed() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        end, other = BlockingEnd(ours), BlockingEnd(theirs)
        end.write(Pinned((7,)))
        end.write(Finished())
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.read()
        end.flush()
        assert [other.read(), other.read()] == [Pinned((7,)), Finished()]
        end.flush()
        with pytest.raises(BlockingIOError):
            other.read()
