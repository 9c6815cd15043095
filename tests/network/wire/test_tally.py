"""What is counted in values before they are sent is what a receiver finds in their bytes."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.wire import packing, walk
from hullcast.network.wire.limits import WireLimits
from hullcast.network.wire.packing import Foreign
from hullcast.network.wire.tally import ValueTally
from tests.support.processes import ANYWHERE, started

#: Small, so that each is reached now and then.
SMALL = WireLimits(objects=12, containers=4, extensions=3, columns=1, text_bytes=6)
scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1 << 63, (1 << 64) - 1, 1 << 64, -(1 << 63), -(1 << 63) - 1, 1 << 300]),
    st.floats(),
    st.text(max_size=7),
    st.sampled_from(["", "abcdef", "abcdefg", "ééé", "éééé", "\ud800\ud800", "\ud800\ud800\ud800", "𝄞", "𝄞𝄞"]),
    st.binary(max_size=9),
    st.sampled_from([np.int64(-3), np.float32(0.5), np.uint64(1 << 63), np.bool_(True), np.str_("abcdefgh")]),
    st.sampled_from([np.datetime64(3, "us"), np.timedelta64(3, "s"), datetime(2020, 1, 1, tzinfo=UTC), timedelta(1)]),
    st.just(Foreign("set")),
)
values = st.recursive(
    scalars,
    lambda inside: st.one_of(
        st.lists(inside, max_size=6),
        st.lists(inside, max_size=6).map(tuple),
        st.dictionaries(st.text(max_size=3), inside, max_size=3),
        st.lists(st.text(max_size=7), max_size=14),
    ),
    max_leaves=14,
)


@given(values)
def test_it_refuses_what_a_receiver_does_and_for_such_a_reason(value: object) -> None:
    tally = ValueTally(value, SMALL, Foreign)
    found = walk.exceeded(packing.pack(value), SMALL)
    said = tally.exceeded()
    assert (said is None) == (found is None), (said, found)
    amounts = {
        ("values", 12): tally.values > 12,
        ("arrays and maps", 4): tally.containers > 4,
        ("values of extension types", 3): tally.extensions > 3,
        ("foreign values", 1): tally.foreign > 1,
        ("bytes of one text", 6): bool(tally.long_texts),
    }
    assert found is None or amounts[found], "of several the receiver names the first it meets"
    assert said is None or amounts[said]


def test_what_a_client_sends_loads_no_kernel_however_much_it_is() -> None:
    program = """
import sys
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import TooLarge
from hullcast.network.wire.values import from_user
columns = {"K": from_user([f"text {i}" for i in range(400_000)]), "V": from_user([None, 1, "x"] * 100_000)}
assert len(bodies.encode(bodies.Publish("T", columns, None, bytes(16), 1))) > 3_000_000
try:
    bodies.encode(bodies.Publish("T", {"V": from_user([None, 1, "x"] * 800_000)}, None, bytes(16), 1))
except TooLarge as error:
    print("numba" in sys.modules, error.limit)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", str(2 << 20)]


#: Publishes texts of many kinds twice, and ticks beside it: the longest pause of the loop in each.
TICKING = """
import asyncio, sys, time
import hullcast

async def longest_pause(work):
    longest, last, working = 0.0, time.perf_counter(), asyncio.create_task(work)
    while not working.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    await working
    return longest

async def main():
    async with hullcast.connect({url!r}) as hc:
        await hc.execute("CREATE TABLE T (K TEXT PRIMARY KEY, A TEXT, B TEXT)")
        for i in range(2):
            rows = {{name: [f"{{name}}{{j}}" for j in range(15_000)] for name in "KAB"}}
            print(await longest_pause(hc.publish("T", rows)))
        print("numba" in sys.modules)

asyncio.run(main())
"""


async def test_the_event_loop_of_a_client_is_not_held_up_by_its_first_large_publish() -> None:
    async with started("server", "--listen", ANYWHERE) as server:
        program = TICKING.format(url=server.endpoint)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: ASYNC221
    assert done.returncode == 0, done.stderr
    first, second, numba = done.stdout.split()
    assert numba == "False"
    assert float(first) < 5 * float(second) + 0.2, "to load a kernel takes a second or more"


@pytest.mark.parametrize("count", [1, 10])
def test_a_tally_counts_keys_and_what_is_inside(count: int) -> None:
    tally = ValueTally([{"a": [1, "b"]}] * count, SMALL, Foreign)
    assert (tally.values, tally.containers) == (1 + count * 5, 1 + count * 2)
