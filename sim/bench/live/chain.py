"""A bare ZeroMQ chain with the hops and frames of the live system, and nothing else.

    publisher -> gateway 1 -> root -> server -> root -> every gateway -> every client

A message is a header (kind, phase, time of the publish) and a payload, as on our links. Nodes look at the kind only;
each sends on as many bytes as the same node of the live system did on average. Started once per process, as
`python -m hullcast.sim.bench.live.chain ROLE SIZES PARENT PLAN`; it says where it listens, a client what it received.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
from time import monotonic_ns, perf_counter, sleep
from typing import TypeAlias

import zmq

Socket: TypeAlias = "zmq.Socket[bytes]"

HELLO, UPDATE, DELIVER, RECEIPT, END = b"h", b"u", b"d", b"r", b"e"
#: Phases: one after the other, as fast as possible, paced.
SINGLY, FAST, PACED = range(3)
_HEADER = struct.Struct("<cBq")


def _say(**words: object) -> None:
    print(json.dumps(words), flush=True)


def _listen(context: zmq.Context[Socket]) -> Socket:
    router = context.socket(zmq.ROUTER)
    router.set(zmq.SNDHWM, 0)
    router.bind("tcp://127.0.0.1:*")
    _say(endpoint=str(router.get_string(zmq.LAST_ENDPOINT)))
    return router


def _dial(context: zmq.Context[Socket], parent: str) -> Socket:
    dealer = context.socket(zmq.DEALER)
    dealer.set(zmq.SNDHWM, 0)
    dealer.connect(parent)
    return dealer


def serve(context: zmq.Context[Socket], sizes: list[int]) -> None:
    """The server: each update is answered by a receipt, and sent down."""
    router, payloads = _listen(context), [bytes(size) for size in sizes]
    while True:
        child, header, *_ = router.recv_multipart()
        kind, phase, sent = _HEADER.unpack(header)
        if kind == UPDATE:
            router.send_multipart([child, _HEADER.pack(RECEIPT, phase, sent), b""])
            router.send_multipart([child, _HEADER.pack(DELIVER, phase, sent), payloads[phase]])
        elif kind == END:
            router.send_multipart([child, header, b""])
            return


def relay(context: zmq.Context[Socket], sizes: list[int], parent: str) -> None:
    """A node: everything up; receipts to the child that published last, the rest to all children that said hello."""
    router, dealer = _listen(context), _dial(context, parent)
    dealer.send_multipart([_HEADER.pack(HELLO, 0, 0), b""])
    poller = zmq.Poller()
    poller.register(router, zmq.POLLIN)
    poller.register(dealer, zmq.POLLIN)
    children: list[bytes] = []
    publishing = b""
    while True:
        for socket, _ in poller.poll():
            parts = socket.recv_multipart()
            if socket is router:
                child, header, payload = parts
                if header[:1] == HELLO:
                    children.append(child)
                else:
                    publishing = child
                    dealer.send_multipart([header, payload])
                continue
            header, payload = parts
            if header[:1] == RECEIPT:
                router.send_multipart([publishing, header, payload])
                continue
            below = payload[: sizes[header[1]]]
            for child in children:
                router.send_multipart([child, header, below])
            if header[:1] == END:
                return


def subscribe(context: zmq.Context[Socket], parent: str) -> None:
    """A client: remembers how old each message was when it came."""
    dealer = _dial(context, parent)
    dealer.send_multipart([_HEADER.pack(HELLO, 0, 0), b""])
    ages: list[list[int]] = [[], [], []]
    last = [0, 0, 0]
    _say(endpoint="")
    while True:
        header, _ = dealer.recv_multipart()
        kind, phase, sent = _HEADER.unpack(header)
        if kind == END:
            break
        now = monotonic_ns()
        ages[phase].append(now - sent)
        last[phase] = now
    _say(paced=ages[PACED], fast_frames=len(ages[FAST]), fast_ended=last[FAST])


def publish(context: zmq.Context[Socket], sizes: list[int], parent: str, plan: dict[str, float]) -> None:
    """The publisher: one after the other, then as fast as receipts come, then paced."""
    dealer = _dial(context, parent)
    payloads = [bytes(size) for size in sizes]

    def send(phase: int) -> None:
        dealer.send_multipart([_HEADER.pack(UPDATE, phase, monotonic_ns()), payloads[phase]])

    rounds = []
    for _ in range(int(plan["singles"])):
        started = perf_counter()
        send(SINGLY)
        dealer.recv_multipart()
        rounds.append(1e3 * (perf_counter() - started))
    began, until, flying = monotonic_ns(), perf_counter() + plan["seconds"], 0
    while True:
        while flying < plan["in_flight"] and perf_counter() < until:
            send(FAST)
            flying += 1
        if not flying:
            break
        dealer.recv_multipart()
        flying -= 1
    sleep(plan["pause_s"])  # until the last ones have arrived
    due = perf_counter()
    for _ in range(int(plan["paced"])):
        sleep(max(0.0, due - perf_counter()))
        send(PACED)
        due += plan["interval_s"]
    for _ in range(int(plan["paced"])):
        dealer.recv_multipart()
    sleep(plan["pause_s"])
    dealer.send_multipart([_HEADER.pack(END, 0, 0), b""])
    _say(singly_ms=rounds, began=began)
    sleep(plan["pause_s"])


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    """One process of the chain."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    role, sizes, parent, plan = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
    context: zmq.Context[Socket] = zmq.Context()
    if role == "server":
        serve(context, sizes)
    elif role == "relay":
        relay(context, sizes, parent)
    elif role == "client":
        subscribe(context, parent)
    else:
        publish(context, sizes, parent, plan)
    context.destroy(linger=500)
    os._exit(0)


if __name__ == "__main__":
    main()
