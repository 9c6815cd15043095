"""A whole cluster for a test: server, root and gateways, as tasks of this process or as processes of their own.

    server <- root <- g1, g2 <- clients

Every member stands behind a proxy, and advertises it: whatever dials a member, at first or after a failure, comes
through a place where the test can cut or stall it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import zmq

from hullcast.broker.server.service import Server
from hullcast.broker.server.settings import ServerSettings
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.connecting import configure
from hullcast.network.link.limits import LinkLimits
from hullcast.network.node.node import Node
from hullcast.network.node.settings import NodeSettings
from hullcast.network.security.rights import Rights
from hullcast.network.settings.common import LinkSettings
from hullcast.network.wire.errors import BadSetting
from tests.support.proxy import Proxy, running_proxy

#: Quick to notice a loss, so that tests need not wait; patient enough for two busy cores.
HEARTBEAT_S, SILENCE_S = 0.1, 1.2
QUICK = LinkSettings(heartbeat_s=HEARTBEAT_S, silence_s=SILENCE_S)
#: Where a link must not be lost however busy the machine is.
PATIENT = LinkSettings(heartbeat_s=0.5, silence_s=20.0)
LIMITS = LinkLimits(heartbeat_s=HEARTBEAT_S, silence_s=SILENCE_S, handshake_s=2.0, backoff_s=0.05, backoff_most_s=0.5)
#: The longest that anything in a test may take.
PATIENCE_S = 60.0

SERVER, ROOT = "server", "root"
ServiceT = TypeVar("ServiceT", Server, Node)
COMMAND = Path(sys.executable).with_name("hullcast")


class Member:
    """A server or a node, and the proxy before it."""

    def __init__(self, name: str, proxy: Proxy, parents: Sequence[str], options: dict[str, Any]) -> None:
        self.name = name
        self.proxy = proxy
        self.parents = tuple(parents)
        self.options = options
        self.listen = "tcp://127.0.0.1:0"  # after the first start: the port it got then

    @property
    def endpoint(self) -> str:
        """Where children dial: the proxy."""
        return self.proxy.endpoint

    @property
    def is_server(self) -> bool:
        return self.name == SERVER

    @property
    def running(self) -> bool:
        raise NotImplementedError

    async def start(self) -> None:
        """Start, or start again on the same port and data; returns when it serves."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Stop as SIGTERM does."""
        raise NotImplementedError

    async def kill(self) -> None:
        """Stop without a word to anybody."""
        raise NotImplementedError

    def _started(self, endpoint: str) -> None:
        self.listen = endpoint
        self.proxy.retarget(endpoint)
        self.proxy.refuse(False)


class TaskMember(Member):
    """A member inside this process."""

    context: zmq.Context[Any]
    service: Server | Node

    def __init__(self, *arguments: Any, context: zmq.Context[Any]) -> None:
        super().__init__(*arguments)
        self.context = context
        self.task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self.task is not None and not self.task.done()

    async def start(self) -> None:
        """ZeroMQ lets go of a port a moment after its socket was closed; so the first try may come too early."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await self._start()
                except BadSetting as error:
                    if "Address already in use" not in str(error):
                        raise
                    await asyncio.sleep(0.01)

    async def _start(self) -> None:
        assert not self.running
        common: dict[str, Any] = {"listen": self.listen, "advertise": self.endpoint, "name": self.name}
        if self.is_server:
            settings = ServerSettings(**common | self.options)
            self.service = Server(settings, Rights.everything(), context=self.context)
        else:
            node_settings = NodeSettings(parent=self.parents, **common | self.options)
            self.service = Node(node_settings, Rights.everything(), context=self.context)
        started = asyncio.Event()
        self.task = asyncio.create_task(self.service.run(started), name=f"test.{self.name}")
        waiting = asyncio.create_task(started.wait(), name="test.started")
        await asyncio.wait((self.task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self.task.done():
            self.task.result()
        self._started(self.service.listener.endpoint)

    async def stop(self) -> None:
        """Cancelled, it must end; anything but the cancellation is a bug that the test shall see."""
        if self.task is None:
            return
        task, self.task = self.task, None
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise

    async def kill(self) -> None:
        """Its last words to its children do not pass the proxy; those to its parent do, unlike a process's."""
        self.proxy.refuse()
        self.proxy.cut()
        await self.stop()

    def check(self) -> None:
        """Raise what ended it, if it ended by itself."""
        if self.task is not None and self.task.done():
            self.task.result()


class ProcessMember(Member):
    """A member as a process of its own."""

    def __init__(self, *arguments: Any, logs: Path) -> None:
        super().__init__(*arguments)
        self.process: asyncio.subprocess.Process | None = None
        self.logs = logs / f"{self.name}.log"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        assert not self.running
        self._started(self.listen)
        flags = {"listen": self.listen, "advertise": self.endpoint, "name": self.name, **self.options}
        link = flags.pop("link")
        flags |= {"heartbeat_s": link.heartbeat_s, "silence_s": link.silence_s}
        given = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items() if value is not None]
        given += [f"--parent={parent}" for parent in self.parents]
        role = "server" if self.is_server else "node"
        with self.logs.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                COMMAND, role, "--json", "--until-input-ends", *given,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
            )  # fmt: skip
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            await self.process.wait()
            raise AssertionError(f"{self.name} did not start: {self.logs.read_text()[-2000:]}")
        assert json.loads(line)["ready"]

    async def stop(self) -> None:
        code = await self._end(signal.SIGTERM)
        assert code in (None, 0), f"{self.name} ended with {code}: {self.logs.read_text()[-2000:]}"

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def _end(self, number: int) -> int | None:
        process, self.process = self.process, None
        if process is None:
            return None
        if process.returncode is None:
            process.send_signal(number)
        await process.communicate()  # its pipes end with it
        return process.returncode

    def check(self) -> None:
        """Fail if it ended by itself."""
        code = self.process.returncode if self.process is not None else None
        assert code is None, f"{self.name} ended with {code}: {self.logs.read_text()[-2000:]}"


class Cluster:
    """The members by name, and clients for them."""

    def __init__(self, context: zmq.Context[Any]) -> None:
        self.context = context
        self.members: dict[str, TaskMember | ProcessMember] = {}

    def __getitem__(self, name: str) -> TaskMember | ProcessMember:
        return self.members[name]

    @property
    def server(self) -> TaskMember | ProcessMember:
        return self.members[SERVER]

    @property
    def gateways(self) -> list[TaskMember | ProcessMember]:
        """The members at the leaves; the server itself if there is nobody else."""
        parents = {parent for member in self.members.values() for parent in member.parents}
        return [member for member in self.members.values() if member.endpoint not in parents]

    def client(self, *at: str, timeout: float = PATIENCE_S, name: str | None = None, **options: Any) -> Client:
        """A client of these members, in their order; of all gateways, if none is named."""
        endpoints = [self[name].endpoint for name in at] or [gateway.endpoint for gateway in self.gateways]
        return Client(configure(endpoints, timeout=timeout, name=name, limits=LIMITS, **options), self.context)

    async def kill(self, name: str) -> None:
        await self[name].kill()

    async def stop_server(self) -> None:
        await self.server.stop()

    async def restart_server(self) -> None:
        """Start the server again, on the same port and data."""
        await self.server.start()

    async def stop(self) -> None:
        """Stop everybody, leaves first; raises what ended a member before its time."""
        for member in reversed(self.members.values()):
            member.check()
            await member.stop()


def server_of(made: Cluster) -> Server:
    """The server, where members are tasks of this process."""
    return _service(made.server, Server)


def node_of(made: Cluster, name: str) -> Node:
    """A node, where members are tasks of this process."""
    return _service(made[name], Node)


def _service(member: Member, kind: type[ServiceT]) -> ServiceT:
    assert isinstance(member, TaskMember)
    assert isinstance(member.service, kind)
    return member.service


@asynccontextmanager
async def cluster(
    nodes: int = 3,
    data: Path | None = None,
    *,
    processes: Path | None = None,
    link: LinkSettings = QUICK,
    cover_budget: int = 256,
    **server_options: Any,
) -> AsyncIterator[Cluster]:
    """A running cluster: 0 nodes, the server alone; 1, and a root; n, and n - 1 gateways below it.

    With `processes`, a folder for their logs, each member is a process.
    """
    context: zmq.Context[Any] = zmq.Context()
    async with AsyncExitStack() as stack:
        stack.callback(context.destroy, linger=0)
        made = Cluster(context)
        for name, parent in _layout(nodes):
            proxy = await stack.enter_async_context(running_proxy("tcp://127.0.0.1:1"))
            parents = [made[parent].endpoint] if parent else []
            options: dict[str, Any] = {"link": link, "cover_budget": cover_budget}
            if name == SERVER:
                # a workload's clients have no keys, and each asks for more kinds of queries than a user would
                options |= {"data": data, "channels_per_client": 1_000, **server_options}
            if processes is None:
                member: TaskMember | ProcessMember = TaskMember(name, proxy, parents, options, context=context)
            else:
                member = ProcessMember(name, proxy, parents, options, logs=processes)
                member.listen = f"tcp://127.0.0.1:{free_port()}"
            made.members[name] = member
        stack.push_async_callback(_stop_whatever, made)
        if processes is None:
            for member in made.members.values():
                await member.start()
        else:  # together: each waits for its parent by itself
            async with asyncio.TaskGroup() as starting:
                for member in made.members.values():
                    starting.create_task(member.start(), name=f"test.start {member.name}")
        yield made
        await made.stop()


def _layout(nodes: int) -> list[tuple[str, str]]:
    gateways = [(f"g{i}", ROOT) for i in range(1, nodes)]
    return [(SERVER, ""), (ROOT, SERVER), *gateways][: nodes + 1]


async def _stop_whatever(made: Cluster) -> None:
    """After a failure: end all, whatever they say."""
    for member in made.members.values():
        if isinstance(member, TaskMember):
            task, member.task = member.task, None
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        else:
            await member.kill()


async def wait_for(condition: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
    """Wait for a condition that has no event of its own."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  the conditions are of many objects
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {seconds:g} s") from None


def free_port() -> int:
    """A port that nobody has, below those the system gives to outgoing connections."""
    import random
    import socket

    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
