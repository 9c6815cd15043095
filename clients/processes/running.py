"""Run a server or a node as a process: its monitor, its ready line, and what signals do.

SIGTERM, SIGINT   stop: no more requests, sync the log, answer what is synced, say BYE, leave a checkpoint; exit code 0
SIGINT again      stop at once; what was acknowledged is on disk, nothing else was promised
SIGHUP            read the allow list again; a bad one is reported, and the old one stays

The monitor and the signals come first; then a thread makes the service, which may take long (a server reads its log),
and the event loop goes on meanwhile. A stop does not wait for that thread: what it does to files is safe to interrupt.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar

from hullcast.network.security.rights import Rights
from hullcast.network.wire.errors import BadSetting, HullcastError, InvariantBroken
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from prometheus_client.metrics_core import Metric

    from hullcast.network.monitor.http import Monitor
    from hullcast.network.node.children import Children

log = logger(__name__)

#: How long a requested stop may take before the process ends anyway; and one whose starter is gone.
STOP_S = 10.0
#: How often a process that is about to be ready looks whether it is, and says that it still waits.
LOOK_S, REMIND_S = 0.02, 10.0
FAILED, INTERRUPTED = 2, 130


class Service(Protocol):
    """A server or a node."""

    children: Children

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


class _Process(Generic[Made]):
    """The service as far as it has come."""

    def __init__(self, running: Running[Made]) -> None:
        self.running = running
        self.service: Made | None = None
        self.doing = "starting"  # until there is a service
        self.stop = asyncio.Event()  # set when a stop is asked for
        self.reload_due = False  # the allow list is to be read again when there is one

    def say(self, doing: str) -> None:
        """What the thread that makes the service is about; called there."""
        self.doing = doing

    def ready(self) -> str | None:
        """Why it cannot serve, if it cannot."""
        if self.stop.is_set():
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


def serve(running: Running[Made], announce: Callable[[dict[str, object]], None]) -> None:
    """Run until a signal says stop, or raise what went wrong; `announce` is called once, when it serves."""
    process = _Process(running)
    try:
        asyncio.run(_serve(process, _monitor(process), announce))
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


async def _serve(
    process: _Process[Made], monitor: Monitor | None, announce: Callable[[dict[str, object]], None]
) -> None:
    """The service and its monitor, from the first moment to the last."""
    role = process.running.role
    with _signals(process):
        stopping = asyncio.create_task(process.stop.wait(), name=f"{role}.stop")
        try:
            if monitor is not None:
                await monitor.start()
            making = _in_thread(process)
            await asyncio.wait((making, stopping), return_when=asyncio.FIRST_COMPLETED)
            if making.done():
                process.service = making.result()
                await _run(process, process.service, monitor, announce)
        finally:
            stopping.cancel()
            if monitor is not None:
                await monitor.stop()
    log.info("stopped", extra={"role": role})


def _in_thread(process: _Process[Made]) -> asyncio.Future[Made]:
    """The service, when it is made. Not `to_thread`: at its end the event loop would wait for the thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Made] = loop.create_future()

    def make() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            try:
                made = process.running.make(process.say)
            except BaseException as error:  # noqa: BLE001  (raised where the service is awaited)
                loop.call_soon_threadsafe(future.set_exception, error)
            else:
                loop.call_soon_threadsafe(future.set_result, made)

    threading.Thread(target=make, name=f"hullcast-{process.running.role}-start", daemon=True).start()
    return future


async def _run(
    process: _Process[Made],
    made: Made,
    monitor: Monitor | None,
    announce: Callable[[dict[str, object]], None],
) -> None:
    """The service and what is beside it: whichever ends first ends the other."""
    running, started = process.running, asyncio.Event()
    if process.reload_due:
        reload(running, made)
    service = asyncio.create_task(made.run(started), name=f"{running.role}.run")
    beside = asyncio.create_task(_beside(process, made, monitor, started, announce), name=f"{running.role}.beside")
    try:
        await asyncio.wait((service, beside), return_when=asyncio.FIRST_COMPLETED)
    finally:
        service.cancel()
        beside.cancel()
        results = await asyncio.gather(service, beside, return_exceptions=True)
    for result in results:
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


async def _beside(
    process: _Process[Made],
    service: Made,
    monitor: Monitor | None,
    started: asyncio.Event,
    announce: Callable[[dict[str, object]], None],
) -> None:
    """Say when it serves, and wait for the stop."""
    running = process.running
    await started.wait()
    if await _wait_ready(lambda: running.missing(service), process.stop):
        gc.freeze()  # what is here stays: a full collection would go through all the compiler's objects, for 40 ms
        announce(
            {
                "ready": True,
                "role": running.role,
                "name": service.name,
                "endpoint": service.endpoint,
                "monitor": f"http://{monitor.address}" if monitor is not None else None,
                "pid": os.getpid(),
            }
        )
    await process.stop.wait()


async def _wait_ready(what_is_missing: Callable[[], str | None], stop: asyncio.Event) -> bool:
    """Whether it came so far before the stop."""
    remind_at = time.monotonic() + REMIND_S
    while not stop.is_set():
        missing = what_is_missing()
        if missing is None:
            return True
        if time.monotonic() >= remind_at:
            remind_at += REMIND_S
            log.warning("not ready yet", extra={"why": missing})
        await asyncio.sleep(LOOK_S)
    return False


# --- signals -------------------------------------------------------------------------------------------------


@contextmanager
def _signals(process: _Process[Made]) -> Iterator[None]:
    loop, running, stop = asyncio.get_running_loop(), process.running, process.stop
    had_terminal = os.isatty(0)
    watchdog = threading.Timer(STOP_S, _end, (f"the {running.role} did not stop within {STOP_S:g} s",))
    watchdog.daemon = True

    def ask_to_stop(number: signal.Signals) -> None:
        if not stop.is_set():
            log.info("stopping", extra={"signal": number.name})
            stop.set()
            watchdog.start()
        elif number == signal.SIGINT:
            log.warning("stopped at once")
            os._exit(INTERRUPTED)

    def hang_up() -> None:
        if had_terminal and not os.isatty(0):  # the terminal was closed: this is not a request to read the allow list
            ask_to_stop(signal.SIGHUP)
        elif process.service is None:
            process.reload_due = True
        else:
            reload(running, process.service)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask_to_stop, number)
    loop.add_signal_handler(signal.SIGHUP, hang_up)
    try:
        yield
    finally:
        watchdog.cancel()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


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


def stop_when_input_ends() -> None:
    """Stop this process when the one that started it is gone, however it ended: our standard input is then closed.

    A thread, so that this holds from the first moment on, also while the log is replayed or kernels are compiled.
    """

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOP_S + 1.0)
        _end("the process that started it is gone")

    threading.Thread(target=wait, name="hullcast-input", daemon=True).start()


def _end(why: str) -> None:
    log.error("ended by force", extra={"why": why})
    os._exit(FAILED)


# --- the ready line ------------------------------------------------------------------------------------------


def announcer(*, as_json: bool, text: str = "") -> Callable[[dict[str, object]], None]:
    """What prints the one line that says a process serves."""

    def announce(facts: dict[str, object]) -> None:
        monitor = f", monitor {facts['monitor']}" if facts["monitor"] else ""
        name = "" if facts["name"] == facts["role"] else f" {facts['name']}"
        line = f"hullcast {facts['role']}{name} ready at {facts['endpoint']}{text}{monitor}"
        sys.stdout.write((json.dumps(facts) if as_json else line) + "\n")
        sys.stdout.flush()

    return announce
