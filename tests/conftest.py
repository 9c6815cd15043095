"""How the tests run: the same examples every time, no clock on them, nothing left on disk.

`HULLCAST_HYPOTHESIS=explore pytest ..` draws new examples instead, ten times as many.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading

import pytest
from hypothesis import HealthCheck, settings

#: Kernels are compiled when first called, inside an example: neither deadlines nor "too slow" can mean anything.
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "ci",
    derandomize=True,
    database=None,  # nothing on disk, so that parallel runs share nothing
    deadline=None,
    print_blob=True,
    suppress_health_check=_QUIET,
)
settings.register_profile(
    "explore",
    max_examples=1000,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=_QUIET,
)
settings.load_profile(os.environ.get("HULLCAST_HYPOTHESIS", "ci"))

#: A shell has jobs in the background ignore Ctrl-C, and every process they start inherits that. Tests that send SIGINT,
#: and the processes that they send it to, begin with what Python does otherwise, however pytest was started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Python keeps what it compiles, also where the shell says otherwise: else pytest rewrites all tests in every worker,
#: and each of the many servers, nodes and commands that tests start compiles all sources once more.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


#: Tests with these markers take minutes, and get more time than `timeout` in pyproject.toml says (0: without end).
_LONGER_S = {"slow": 2400, "cluster": 2400, "soak": 0}
#: A Spark session starts once for all tests that use it, by name or by a parameter.
_SPARK = {"spark", "elsewhere"}


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give longer tests a longer limit, unless they name one themselves. Tests that share something of their module, or
    Spark, go to one worker, so that it is made once. xdist begins with the groups of most tests, Spark's first of all;
    tests on their own come last and fill up what is left of each worker's time: those with processes before others, so
    that the last ones are quick."""
    items.sort(key=lambda item: "system" not in item.path.parts)
    for item in items:
        longer = [seconds for marker, seconds in _LONGER_S.items() if item.get_closest_marker(marker)]
        if longer and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(min(longer)))
        if config.pluginmanager.has_plugin("xdist") and (group := _group_of(item)):
            item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_finish() -> None:
    """What is there before the first test stays, as in a server: a full collection took tenths of a second, and each
    test of tests/system asks for two; elsewhere it was a pause in whatever a test timed."""
    gc.collect()
    gc.freeze()


def _group_of(item: pytest.Item) -> str | None:
    if not isinstance(item, pytest.Function):
        return None
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    if _SPARK.intersection(item.fixturenames) or any(value in _SPARK for value in parameters if isinstance(value, str)):
        return "spark"
    fixtures = (each[-1] for each in item._fixtureinfo.name2fixturedefs.values())
    return item.nodeid.partition("::")[0] if any(each.scope == "module" and each.baseid for each in fixtures) else None
