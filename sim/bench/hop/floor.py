"""The least a hop takes on this machine: bare ZeroMQ, a thread's wake-up, a sync of the disk.

`python -m hullcast.sim.bench.hop.floor JSON` measures in processes of its own, so that nothing else shows in their CPU
time; it prints JSON. Messages are sent at a steady rate, each by itself, and so each wakes its receiver: first as bare
ZeroMQ does it (a socket that blocks), then as our links do (`EventSocket` on asyncio). What pacing alone takes is
subtracted from the sender's time.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep
from typing import Any

import zmq

from hullcast.network.link.limits import LinkLimits
from hullcast.network.link.socket import EventSocket, LinkContext, Message, bound_endpoint, open_dealer, open_router
from hullcast.sim.bench.frame.machine import write_and_sync
from hullcast.sim.bench.frame.timing import measured_apart

_HEADER, _END = bytes(16), b"end"


@dataclass(frozen=True, slots=True)
class Carried:
    """One message of so many bytes: microseconds of CPU of the sending and of the receiving process."""

    bytes: int
    bare_send_us: float
    bare_receive_us: float
    send_us: float
    receive_us: float

    @property
    def hop_us(self) -> float:
        """What a hop takes at least: the unit of all budgets."""
        return self.bare_send_us + self.bare_receive_us


@dataclass(frozen=True, slots=True)
class Floor:
    """What the machine takes."""

    carried: dict[int, Carried]  # by rows of a frame
    wake_us: float  # CPU to wake a thread that waits
    sync_us: float  # a write and fdatasync: time, not CPU
    sync_cpu_us: float
    log_us: float  # a group through the log's thread and back: time
    log_cpu_us: float


def measure_floor(sizes: dict[int, int], messages: int, rate: int, rounds: int) -> Floor:
    """All of it, for messages of these bytes (by rows of a frame)."""
    asked = {"sizes": list(sizes.values()), "messages": messages, "rate": rate, "rounds": rounds}
    found = measured_apart("the floor", "hullcast.sim.bench.hop.floor", asked, {})
    carried = {rows: Carried(**one) for rows, one in zip(sizes, found.pop("carried"), strict=True)}
    return Floor(carried, **found)


# --- in processes of their own -----------------------------------------------------------------------------------


def _paced(act: Callable[[], object], count: int, rate: int) -> float:
    """Do it so often, evenly spaced; microseconds of CPU each."""
    began, due = process_time(), perf_counter()
    for _ in range(count):
        act()
        due += 1 / rate
        sleep(max(0.0, due - perf_counter()))
    return 1e6 * (process_time() - began) / count


async def _paced_on_loop(act: Callable[[], object], count: int, rate: int) -> float:
    loop = asyncio.get_running_loop()
    began, due = process_time(), loop.time()
    for _ in range(count):
        act()
        due += 1 / rate
        await asyncio.sleep(max(0.0, due - loop.time()))
    return 1e6 * (process_time() - began) / count


def _nothing() -> None:
    pass


def _receive_bare() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.set(zmq.RCVHWM, 0)
    socket.bind("tcp://127.0.0.1:*")
    print(bound_endpoint(socket), flush=True)
    count, began = 0, 0.0
    while socket.recv_multipart()[-1] != _END:
        began = began or process_time()
        count += 1
    print((process_time() - began) * 1e6 / count, flush=True)
    os._exit(0)


async def _receive_ours() -> None:
    socket = open_router(LinkContext.instance(), "tcp://127.0.0.1:*", LinkLimits(), None, "")
    count, began, done = 0, 0.0, asyncio.Event()

    def on_message(message: Message) -> None:
        nonlocal count, began
        began = began or process_time()
        count += 1
        if message.rest[-1] == _END:
            done.set()

    EventSocket(socket, on_message)
    print(bound_endpoint(socket), flush=True)
    await done.wait()
    print((process_time() - began) * 1e6 / (count - 1), flush=True)
    os._exit(0)


def _carry(kind: str, size: int, count: int, rate: int) -> tuple[float, float]:
    """Send to a process that receives: microseconds of CPU a message, here and there."""
    words = [sys.executable, "-P", "-m", "hullcast.sim.bench.hop.floor", kind]
    payload = bytes(max(1, size - len(_HEADER)))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None, "opened as a pipe"
        endpoint = receiver.stdout.readline().strip()
        if kind == "bare":
            send = _send_bare(endpoint, payload, count, rate)
        else:
            send = asyncio.run(_send_ours(endpoint, payload, count, rate))
        receive = float(receiver.stdout.readline())
    return send, receive


def _send_bare(endpoint: str, payload: bytes, count: int, rate: int) -> float:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.set(zmq.SNDHWM, 0)
    socket.connect(endpoint)
    socket.send_multipart([_HEADER, payload])  # returns at once; the connection is made meanwhile
    _paced(_nothing, rate // 10, rate)
    used = _paced(lambda: socket.send_multipart([_HEADER, payload]), count, rate) - _paced(_nothing, count, rate)
    socket.send_multipart([_HEADER, _END])
    socket.close(linger=1000)
    context.term()
    return used


def _put(socket: EventSocket, payload: bytes) -> None:
    """One message in a turn, as a link sends it."""
    socket.send(_HEADER, payload)
    socket.sent()


async def _send_ours(endpoint: str, payload: bytes, count: int, rate: int) -> float:
    raw, monitor = open_dealer(LinkContext.instance(), endpoint, LinkLimits(), None)
    socket = EventSocket(raw, lambda message: None)
    _put(socket, payload)
    await _paced_on_loop(_nothing, rate // 10, rate)
    used = await _paced_on_loop(lambda: _put(socket, payload), count, rate)
    used -= await _paced_on_loop(_nothing, count, rate)
    _put(socket, _END)
    await asyncio.sleep(0.05)
    monitor.close()
    socket.close(1.0)
    return used


def _wake(count: int, rate: int) -> float:
    """A thread that waits for a byte, and gets one."""
    read, write = os.pipe()

    def wait() -> None:
        while os.read(read, 1) != b"e":
            pass

    thread = threading.Thread(target=wait)
    thread.start()
    used = _paced(lambda: os.write(write, b"x"), count, rate) - _paced(_nothing, count, rate)
    os.write(write, b"e")
    thread.join()
    os.close(read)
    os.close(write)
    return used


def _sync(folder: Path, count: int) -> tuple[float, float]:
    """A write and fdatasync: time and CPU."""
    descriptor = os.open(folder / "sync", os.O_WRONLY | os.O_CREAT)
    times, used = [], process_time()
    try:
        for _ in range(count):
            began = perf_counter()
            write_and_sync(descriptor)
            times.append(perf_counter() - began)
    finally:
        os.close(descriptor)
    return 1e6 * median(times), 1e6 * (process_time() - used) / count


async def _log(folder: Path, count: int) -> tuple[float, float]:
    """Groups of one entry through the pipeline, one after the other: time and CPU."""
    # here, so that processes that only receive start at once
    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.log.record import RecordKind
    from hullcast.broker.log.recovery import open_directory
    from hullcast.broker.server.changing import apply_record
    from hullcast.broker.server.outcome import LogEntry, Outcome
    from hullcast.broker.server.pipeline import Pipeline, Step
    from hullcast.network.wire.bodies import Synced
    from hullcast.network.wire.frames import Request

    data = open_directory(folder / "log", ServedEngine(), apply_record)
    left = asyncio.Event()
    pipeline = Pipeline(data.log, 1 << 30)
    pipeline.begin(lambda steps: left.set())
    times, used = [], process_time()
    for number in range(1, count + 1):
        entry = LogEntry(RecordKind.BATCH, bytes(100), number, 1, bytes(16), number)
        left.clear()
        began = perf_counter()
        pipeline.put(Step(Request(number, (1,), None, b""), Outcome(Synced(number), entry), b""))
        await left.wait()
        times.append(perf_counter() - began)
    used = process_time() - used
    await pipeline.stop()
    data.close()
    return 1e6 * median(times), 1e6 * used / count


def _measure(sizes: list[int], messages: int, rate: int, rounds: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {}

    def note(**values: float) -> None:
        for name, value in values.items():
            found.setdefault(name, []).append(value)

    with tempfile.TemporaryDirectory(prefix="hullcast-hop-") as folder:
        for turn in range(rounds):
            for size in sizes:
                for kind in ("bare", "ours"):
                    send, receive = _carry(kind, size, messages // rounds, rate)
                    note(**{f"{kind} send {size}": send, f"{kind} receive {size}": receive})
            note(wake_us=_wake(messages // rounds, rate))
            place = Path(folder) / str(turn)
            place.mkdir()
            sync_us, sync_cpu_us = _sync(place, messages // rounds)
            log_us, log_cpu_us = asyncio.run(_log(place, messages // rounds))
            note(sync_us=sync_us, sync_cpu_us=sync_cpu_us, log_us=log_us, log_cpu_us=log_cpu_us)
    middle = {name: median(values) for name, values in found.items()}
    carried = [
        {
            "bytes": size,
            "bare_send_us": middle.pop(f"bare send {size}"),
            "bare_receive_us": middle.pop(f"bare receive {size}"),
            "send_us": middle.pop(f"ours send {size}"),
            "receive_us": middle.pop(f"ours receive {size}"),
        }
        for size in sizes
    ]
    return {"carried": carried, **middle}


def main(word: str) -> None:
    """Receive, or measure everything."""
    if word == "bare":
        _receive_bare()
    elif word == "ours":
        asyncio.run(_receive_ours())
    else:
        print(json.dumps(_measure(**json.loads(word))))


if __name__ == "__main__":
    main(sys.argv[1])
