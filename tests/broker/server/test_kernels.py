"""Kernels are compiled once each, and ahead: to compile one more would cost seconds, at a bad moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hullcast.broker.server import warming
from tests.network.test_compiling import copy_without_code, run

PROGRAM = """
import sys
from tests.broker.engine.test_machine import storm
for seed in (1, 2, 3):
    storm(seed)
kernels = 0
for name, module in list(sys.modules.items()):
    if name.startswith("hullcast."):
        for function in vars(module).values():
            kernels += hasattr(function, "signatures")
            if len(getattr(function, "signatures", ())) > 1:
                print(f"{function.__module__}.{function.__name__}: {function.signatures}")
assert kernels > 20, kernels
"""


def test_no_kernel_is_compiled_for_a_second_combination_of_types() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


#: Joins of all kinds through a cluster, by few ranges and by many that come and go; `at_work` is then what was used.
JOINS = """
import asyncio
import numpy as np
import hullcast
from hullcast.broker.server import warming

def at_work():
    functions = {f"{one.py_func.__module__}.{one.py_func.__name__}": one for one in warming._functions()}
    return {(name, str(types)) for name, one in functions.items() for types in one.signatures}

def rows(first, n):
    at = np.arange(first, first + n)
    return {"ID": at, "A": at % 97.0, "B": at % 11, "T": [f"t{i % 7}" for i in at], "D": at.astype("datetime64[s]")}

TABLE = "(ID INTEGER PRIMARY KEY, A REAL, B INTEGER, T TEXT, D TIMESTAMP)"
QUERIES = (
    "R r JOIN S s ON s.B = r.B WHERE r.A BETWEEN ? AND ?",
    "R r JOIN S s ON s.T = r.T WHERE r.A BETWEEN ? AND ? AND s.A BETWEEN 1 AND 90 AND r.T = 't1'",
    "R r JOIN S s ON s.A - r.A BETWEEN ? AND ?",
    "R r JOIN S s ON s.B - r.B BETWEEN 1 AND 2 WHERE r.A BETWEEN ? AND ? AND s.A > 3 AND s.T = 't2'",
    "R r JOIN S s ON s.D - r.D BETWEEN -60 AND 60 WHERE s.A BETWEEN ? AND ?",
    "R r JOIN R s ON r.B = s.B WHERE r.A BETWEEN ? AND ?",
    "R r JOIN R s ON s.A - r.A BETWEEN ? AND ?",
)

async def work():
    async with hullcast.testing.cluster(nodes=1) as endpoint, hullcast.connect(endpoint) as hc:
        for table in ("R", "S"):
            await hc.execute(f"CREATE TABLE {table} {TABLE}")
            await hc.publish(table, rows(0, 60))
        for query in QUERIES:
            sql = f"SELECT r.ID, s.ID AS OTHER FROM {query}"
            async with hc.subscribe(sql, 1, 2) as one:
                await change(hc)
                lows = np.arange(200.0) / 2
                many = await hc.subscribe_many(sql, lows, lows + 0.25, overflow="block")
                await change(hc)
                await many.close()
                await change(hc)
                assert one.answer is not None

async def change(hc):
    await hc.sync()
    for table in ("R", "S"):
        await hc.publish(table, rows(50, 1))
        await hc.publish(table, rows(40, 30))
        await hc.delete(table, 50)
    await hc.sync()
"""
AFTER_WARMING = """
warming.warm_server()
before = at_work()
assert len(before) > 30
asyncio.run(work())
print(*sorted(at_work() - before))
"""
COLD = """
assert warming.is_cold()
here, from_parts = [], warming._compile_in_parts

def parts(*arguments):
    done = from_parts(*arguments)
    here.clear()  # from here on this process compiles
    return done

warming._compile_in_parts = parts
with warming._watched(here.append):
    asyncio.run(work())
assert not warming.is_cold()
print(len(here), *here)
"""


def test_after_warming_joins_need_no_kernel_that_was_not_there() -> None:
    assert run({}, JOINS + AFTER_WARMING)[0] == ""


#: What Python calls of these; other kernels they call themselves.
FITTING = """
from hullcast.broker.server import warming
from hullcast.broker.streams.memory import fitting, joining

warming.run_operators()
names = ("clipped", "following", "levels_before", "line_through", "sum_normals", "sum_passages")
for kernel in (joining.join_arrivals, *(getattr(fitting, name) for name in names)):
    if len(kernel.signatures) != 1:
        print(kernel.__name__, kernel.signatures)
"""


def test_all_kernels_that_a_bounded_join_may_need_are_there_after_warming() -> None:
    assert run({}, FITTING)[0] == ""


#: Filters and windows over a stream through a cluster, replayed and live; one by one, and many.
STREAMS = """
async def work():
    async with hullcast.testing.cluster(nodes=1) as endpoint, hullcast.connect(endpoint) as hc:
        await hc.execute("CREATE STREAM R (A REAL, B INTEGER, T TEXT, D TIMESTAMP) WITH (retain_rows = 10)")
        some = {name: column for name, column in rows(0, 2000).items() if name != "ID"}
        await hc.publish("R", some)
        for where in ("A BETWEEN ? AND ?", "A BETWEEN ? AND ? AND T = 't1'"):
            sql = f"SELECT T, POSITION FROM R WHERE {where}"
            one = await hc.subscribe(sql, 1, 90, after=0)
            many = await hc.subscribe_many(sql, np.arange(9.0), np.arange(9.0) + 20, after=0)
            for what in ("COUNT(*)", "SUM(A)", "MIN(A)", "DISTINCT B"):
                await hc.subscribe(f"SELECT {what} FROM R [ROWS 5] WHERE {where}", 1, 2)
                await hc.subscribe(f"SELECT {what} FROM R [RANGE '1s'] WHERE {where}", 1, 2)
            await hc.publish("R", {name: column[:1] for name, column in some.items()})
            await hc.publish("R", some)
            await hc.progress("R", "2024-01-01")
            await hc.sync()
            assert one.take_nowait() is not None and len(await many.next_changes())
"""


def test_after_warming_streams_need_no_kernel_that_was_not_there() -> None:
    assert run({}, JOINS + STREAMS + AFTER_WARMING)[0] == ""


@pytest.mark.slow
def test_a_cluster_on_a_cold_machine_compiles_in_two_processes_before_it_takes_calls(tmp_path: Path) -> None:
    printed, said = run({"PYTHONPATH": str(copy_without_code(tmp_path))}, JOINS + COLD)
    assert int(printed.split()[0]) <= 2, printed
    assert said == ["compiling .. (once, about a minute)"]


def test_warming_twice_compiles_nothing() -> None:
    warming.warm()
    seen: list[tuple[int, int]] = []
    warmth = warming.warm(lambda done, total, name: seen.append((done, total)))
    assert warmth.was_cached
    assert not warming.is_cold()
    assert len(seen) == 1  # only "all done"
    assert seen[0][0] == seen[0][1] > 10


@pytest.mark.parametrize("part", range(len(warming.PARTS)))
def test_each_part_of_the_kernels_can_be_compiled_by_itself(part: int) -> None:
    ended = subprocess.run(warming.part_command(part), capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
