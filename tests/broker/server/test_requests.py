"""The table of requests: complete, and the one place that a new request needs."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from hullcast.broker.server.requests import HANDLERS, Lane
from hullcast.network.wire.bodies import REQUESTS

TOY = """
    from dataclasses import dataclass
    from hullcast.broker.server.outcome import Outcome
    from hullcast.broker.server.requests import Handler, Lane, add, no_table
    from hullcast.network.wire.bodies import Body, Information, request

    @request("toy")
    @dataclass(frozen=True, slots=True)
    class Toy(Body):
        '''Says something twice.'''

        word: str

    add(Handler(Toy, ("admin",), no_table, Lane.INLINE, lambda s, a: Outcome(Information({"said": a.body.word * 2}))))
"""

ASK = """
    import asyncio
    import hullcast
    from tests.support.cluster import cluster

    async def main():
        async with asyncio.timeout(60), cluster(1) as made, made.client() as hc:
            print((await hc._ask(Toy("ab"), "toy", 30)).values["said"])

    asyncio.run(main())
"""

FORGOTTEN = """
    from dataclasses import dataclass
    from hullcast.network.wire.bodies import Body, request

    @request("forgotten")
    @dataclass(frozen=True, slots=True)
    class Forgotten(Body):
        '''Nobody does it.'''

    import hullcast.broker.server.service
"""


def run(*texts: str) -> subprocess.CompletedProcess[str]:
    program = "\n".join(map(textwrap.dedent, texts))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)


def test_each_request_has_a_row_and_no_reply_has() -> None:
    assert set(HANDLERS) == set(REQUESTS.values())


def test_a_row_with_tables_names_one_right_and_only_what_ends_something_is_taken_in_any_case() -> None:
    for handler in HANDLERS.values():
        assert handler.tables is None or len(handler.rights) == 1
        assert not handler.ends or handler.lane is Lane.INLINE


def test_a_request_is_added_in_one_file() -> None:
    done = run(TOY, ASK)
    assert done.stdout == "abab\n", done.stderr


def test_a_request_that_nobody_does_does_not_import() -> None:
    done = run(FORGOTTEN)
    assert done.returncode == 1
    assert "no handler in broker/server/requests.py for Forgotten" in done.stderr


def test_nor_does_a_server_start_with_one_that_was_declared_later() -> None:
    done = run("import hullcast.broker.server.service", FORGOTTEN, ASK.replace("Toy", "Forgotten"))
    assert "no handler in broker/server/requests.py for Forgotten" in done.stderr
