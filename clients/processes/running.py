"""Run a server or a node as a process: its monitor, its ready line, and what signals do.

SIGTERM, SIGINT   stop: no more requests, sync the log, answer what is synced, say BYE, leave a checkpoint; exit code 0
again             stop at once; what was acknowledged is on disk, nothing else was promised (signals.py)
SIGHUP            read the allow list again; a bad one is reported, and the old one stays

The signals and the monitor come first; then a thread makes the service, which may take long (a server reads its log),
and the event loop goes on meanwhile. A stop does not wait for that thread: what it does to files is safe to interrupt.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar

from hullcast.clients.processes.signals import Signals
from hullcast.network.security.rights import Rights
from hullcast.network.wire.errors import BadSetting, HullcastError, InvariantBroken
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from prometheus_client.metrics_core import Metric

    from hullcast.network.monitor.http import Monitor
    from hullcast.network.node.children import Children
    from hullcast.network.node.stopping import Stopping

log = logger(__name__)

#: How often a process that is about to be ready looks whether it is, and says that it still waits.
LOOK_S, REMIND_S = 0.02, 10.0


class Service(Protocol):
    """A server or a node."""

    children: Children
    stopping: Stopping

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def endpoint(self) -> str:
        """Where children dial."""

    async def run(self, started: asyncio.Event | None = None) -> None:
        """Serve until cancelled."""

    def take_rights(self, rights: Rights) -> None:
        """Take over a new allow list."""

    def ready(self) -> str | None:
        """Why it cannot serve, if it cannot."""


Made = TypeVar("Made", bound=Service)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running(Generic[Made]):
    """A service and how its process shows it."""

    role: str
    make: Callable[[Callable[[str], None]], Made]  # in a thread; it is given whom to tell what it is about
    monitor: str  # its address, or empty
    allow: Path | None  # the allow list, for SIGHUP
    metrics: Callable[[Made], Iterable[Metric]]  # only called if there is a monitor: prometheus_client is imported then
    status: Callable[[Made], Mapping[str, object]]
    missing: Callable[[Made], str | None]  # before the first time it serves: what for; raises when waiting is pointless
    announce: Callable[[Mapping[str, object]], None]  # called when it serves
    report: Callable[[str], None]  # called with what it is about before
    until_input_ends: bool


class _Process(Generic[Made]):
    """The service as far as it has come."""

    def __init__(self, running: Running[Made]) -> None:
        self.running = running
        self.service: Made | None = None
        self.doing = "starting"  # until there is a service
        self.reload_due = False  # the allow list is to be read again when there is one
        self.signals = Signals(
            f"the {running.role}", self.busy, hang_up=self.reload, until_input_ends=running.until_input_ends
        )

    def say(self, doing: str) -> None:
        """What the thread that makes the service is about; called there."""
        self.doing = doing
        self.running.report(doing)

    def busy(self) -> str:
        """With what."""
        return self.doing if self.service is None else self.service.stopping.busy

    def reload(self) -> None:
        """Read the allow list again, as soon as there is a service."""
        self.reload_due = self.service is None
        if self.service is not None:
            reload(self.running, self.service)

    def ready(self) -> str | None:
        """Why it cannot serve, if it cannot."""
        if self.signals.asked_at is not None:
            return "stopping"
        return self.doing if self.service is None else self.service.ready()

    def metrics(self) -> Iterable[Metric]:
        """Those of the service."""
        return () if self.service is None else self.running.metrics(self.service)

    def status(self) -> Mapping[str, object]:
        """That of the service; before there is one, what is being done."""
        if self.service is None:
            return {"role": self.running.role, "starting": self.doing}
        return self.running.status(self.service)


def serve(running: Running[Made]) -> None:
    """Run until a signal says stop, or raise what went wrong."""
    process = _Process(running)
    try:
        process.signals.run(_serve(process, _monitor(process)))
        log.info("stopped", extra={"role": running.role})
    except HullcastError:
        raise
    except Exception as error:
        log.error("stopped by a bug", exc_info=error)
        raise InvariantBroken(f"the {running.role} stopped: {type(error).__name__}: {error}") from error


def _monitor(process: _Process[Made]) -> Monitor | None:
    """Its monitor, if it has one; made before the event loop runs: importing aiohttp would stop the loop."""
    if not process.running.monitor:
        return None
    from hullcast.network.monitor.http import Monitor

    return Monitor(process.running.monitor, ready=process.ready, metrics=process.metrics, status=process.status)


async def _serve(process: _Process[Made], monitor: Monitor | None) -> None:
    """The service and its monitor, from the first moment to the last."""
    try:
        if monitor is not None:
            await monitor.start()
        process.service = await _in_thread(process)
        await _run(process, process.service, monitor)
    finally:
        if monitor is not None:
            await monitor.stop()


def _in_thread(process: _Process[Made]) -> asyncio.Future[Made]:
    """The service, when it is made. Not `to_thread`: at its end the event loop would wait for the thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Made] = loop.create_future()

    def settle(made: Made | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if made is not None:
            future.set_result(made)
        elif error is not None:
            future.set_exception(error)

    def make() -> None:
        made, failure = None, None
        try:
            made = process.running.make(process.say)
        except BaseException as error:  # noqa: BLE001  (raised where the service is awaited)
            failure = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, made, failure)

    threading.Thread(target=make, name=f"hullcast-{process.running.role}-start", daemon=True).start()
    return future


async def _run(process: _Process[Made], made: Made, monitor: Monitor | None) -> None:
    """The service and what is beside it: whichever ends first ends the other."""
    running, started = process.running, asyncio.Event()
    if process.reload_due:
        reload(running, made)
    service = asyncio.create_task(made.run(started), name=f"{running.role}.run")
    beside = asyncio.create_task(_announce(process, made, monitor, started), name=f"{running.role}.announce")
    try:
        await asyncio.wait((service, beside), return_when=asyncio.FIRST_COMPLETED)
    finally:
        if process.signals.asked_at is not None:
            made.stopping.begin(process.signals.asked_at)
        service.cancel()
        beside.cancel()
        for result in await asyncio.gather(service, beside, return_exceptions=True):
            if isinstance(result, Exception):  # not CancelledError, which is how a requested stop looks
                raise result


def leave(code: int) -> NoReturn:
    """End this process with that exit code, now: Python would first take apart half a second of compiled code.

    Sockets, files and threads of ours are closed by then; what is left is memory, which the system takes back faster.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _announce(process: _Process[Made], service: Made, monitor: Monitor | None, started: asyncio.Event) -> None:
    """Say when it serves, and stay until cancelled."""
    running = process.running
    await started.wait()
    await _wait_ready(lambda: running.missing(service))
    gc.freeze()  # what is here stays: a full collection would go through all the compiler's objects, for 40 ms
    running.announce(
        {
            "ready": True,
            "role": running.role,
            "name": service.name,
            "endpoint": service.endpoint,
            "monitor": f"http://{monitor.address}" if monitor is not None else None,
            "pid": os.getpid(),
        }
    )
    await asyncio.Event().wait()


async def _wait_ready(what_is_missing: Callable[[], str | None]) -> None:
    remind_at = time.monotonic() + REMIND_S
    while (missing := what_is_missing()) is not None:
        if time.monotonic() >= remind_at:
            remind_at += REMIND_S
            log.warning("not ready yet", extra={"why": missing})
        await asyncio.sleep(LOOK_S)


# --- the allow list ------------------------------------------------------------------------------------------


def reload(running: Running[Made], service: Made) -> None:
    """Read the allow list again, and close the links of keys that are no longer on it."""
    if running.allow is None:
        log.warning("no allow list to read again")
        return
    try:
        rights = Rights.load(running.allow)
    except BadSetting as error:
        log.error("allow list refused, the old one stays", extra={"why": str(error)})
        return
    service.take_rights(rights)
    gone = 0
    for peer in list(service.children.peers.values()):
        identity = rights.who(peer.key, peer.name)
        if not identity.known or (peer.role == "node" and not identity.node):
            peer.close("denied", "the allow list has changed")
            gone += 1
    log.info("allow list read", extra={"file": str(running.allow), "closed": gone})


# --- the ready line ------------------------------------------------------------------------------------------


def announcer(*, as_json: bool, text: str = "") -> Callable[[Mapping[str, object]], None]:
    """What prints the one line that says a process serves."""

    def announce(facts: Mapping[str, object]) -> None:
        monitor = f", monitor {facts['monitor']}" if facts["monitor"] else ""
        name = "" if facts["name"] == facts["role"] else f" {facts['name']}"
        line = f"hullcast {facts['role']}{name} ready at {facts['endpoint']}{text}{monitor}"
        _out(json.dumps(facts) if as_json else line)

    return announce


def reporter(*, wanted: bool) -> Callable[[str], None]:
    """What prints what a process is about before it serves, if that is wanted."""

    def report(doing: str) -> None:
        if wanted:
            with suppress(OSError):  # who reads it is gone
                _out(json.dumps({"ready": False, "doing": doing}))

    return report


def _out(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
