"""denrei for asyncio: the same Node, awaited.

>>> import asyncio
>>> from denrei.aio import AsyncNode
>>> async def main():
...     async with AsyncNode() as alice, AsyncNode() as bob:
...         peer = alice.connect(bob.node.address)
...         await alice.send(peer, b"one order for many")
...         message = await bob.recv()
...         await bob.send(message.peer, bytes(message).upper())
...         return bytes(await alice.recv())
>>> asyncio.run(main())
b'ONE ORDER FOR MANY'

Whole files, and what pipes bring, go to many; a task that is cancelled breaks its cast off:

>>> import os
>>> async def cast():
...     end, beginning = os.pipe()
...     async with AsyncNode() as alice, AsyncNode() as bob:
...         receiving = asyncio.create_task(bob.cast_receive_stream(beginning, group="239.255.78.62:7411"))
...         with open("/etc/hostname") as source:
...             report = await alice.cast_send_stream(source, [bob.node.address], group="239.255.78.62:7411")
...         receipt = await receiving
...         return report.complete, receipt.bytes == len(os.read(end, 1000))
>>> asyncio.run(cast())
(True, True)
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from denrei._internal import (
    CastProgress,
    CastReceipt,
    CastReport,
    Collective,
    DenreiError,
    Event,
    Group,
    GroupClosed,
    GroupEvent,
    GroupListener,
    Membership,
    Message,
    Node,
    Peer,
    QueueFull,
    Relay,
    RelayPair,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from denrei._internal import _Descriptor

__all__ = [
    "AsyncCollective",
    "AsyncGroup",
    "AsyncGroupListener",
    "AsyncMembership",
    "AsyncNode",
    "AsyncRelay",
]

T = TypeVar("T")

#: Who is told how a cast goes: called by a thread, and breaks the cast off with `False`.
Watch = Callable[[CastProgress], object]

#: Seconds that a thread waits at a time for what the event loop cannot wait for.
SLICE = 0.5


class _Context:
    """What `async with` is for: it is closed at the end of the block."""

    async def _leave(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._leave()


def _closed() -> DenreiError:
    return DenreiError("the node was closed")


class AsyncNode(_Context):
    """A Node in the running event loop. Use it as a context manager, or call `close`.

    `node` is the Node itself, for everything that does not wait. Messages and events wait in queues
    of their own, so one task may take messages while another takes events.
    """

    #: Messages taken from the Node and not awaited yet. What is beyond stays in the Node, whose
    #: senders run out of credit: a slow reader slows them down, and memory stays bounded.
    MAX_WAITING = 1024

    def __init__(
        self, address: str = "127.0.0.1:0", **settings: str | int | float | bool | os.PathLike[str]
    ) -> None:
        self.node = Node(address, **settings)
        self._loop = asyncio.get_running_loop()
        #: What has come; `None` says to those who wait that nothing comes any more.
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue(self.MAX_WAITING)
        self._events: asyncio.Queue[Event | None] = asyncio.Queue(self.MAX_WAITING)
        self._waiting: set[asyncio.Future[None]] = set()
        #: Channels whose messages are for sets of nodes.
        self._left: set[int] = set()
        self._fd = self.node.fileno()
        self._loop.add_reader(self._fd, self._take)
        self._casting = asyncio.Lock()
        self._closing: asyncio.Future[None] | None = None

    def _take(self) -> None:
        """Moves what has come into the queues, as far as there is room."""
        self.node.clear_news()
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)
        while room := self._messages.maxsize - self._messages.qsize():
            taken = self.node.drain(room, leave=list(self._left))
            if not taken:
                return
            for incoming in taken:
                if isinstance(incoming, Message):
                    self._messages.put_nowait(incoming)
                else:
                    self._put_event(incoming)
        # Messages that nobody reads hold no events up.
        while (event := self.node.try_event()) is not None:
            self._put_event(event)

    def _put_event(self, event: Event) -> None:
        if self._events.full():  # Nobody looks at them: the oldest goes.
            self._events.get_nowait()
        self._events.put_nowait(event)

    async def _until(self, attempt: Callable[[], T | None]) -> T:
        """Tries again whenever something has come, until there is a value."""
        while True:
            news = self._loop.create_future()
            self._waiting.add(news)
            try:
                value = attempt()
                if value is not None:
                    return value
                if self._fd < 0:
                    raise _closed()
                await news
            finally:
                self._waiting.discard(news)

    def connect(self, address: str) -> Peer:
        """Opens a session with the node at an address. Returns at once."""
        return self.node.connect(address)

    async def recv(self) -> Message:
        """The next message of any peer. `DenreiError` once the node is closed and none is left."""
        was_full = self._messages.full()
        message = await self._next(self._messages)
        if was_full and self._fd >= 0:
            self._take()
        return message

    async def event(self) -> Event:
        """The next event. `DenreiError` once the node is closed and none is left."""
        return await self._next(self._events)

    async def _next(self, queue: asyncio.Queue[T | None]) -> T:
        """The first of a queue, or the news that there will be none."""
        if self._fd < 0 and queue.empty():
            raise _closed()
        first = await queue.get()
        if first is None:
            # Others may be waiting, too.
            queue.put_nowait(None)
            raise _closed()
        return first

    async def send(
        self,
        peer: Peer,
        data: Buffer,
        channel: int = 0,
        *,
        completion: Literal["acknowledged", "delivered"] | None = None,
        copy: bool = False,
    ) -> int:
        """Sends a message; waits while the queue to the peer is full. See `Peer.send`."""
        while True:
            try:
                return peer.send(data, channel, completion=completion, timeout=0, copy=copy)
            except QueueFull:
                await self._room(peer, memoryview(data).nbytes)

    async def _room(self, peer: Peer, length: int) -> None:
        """Waits, in a thread, until the queue has room."""
        await self._loop.run_in_executor(None, peer.wait, length, 1.0)

    async def wait(self, peer: Peer, length: int, timeout: float | None = None) -> bool:
        """Waits until a message of `length` bytes may be sent without waiting. See `Peer.wait`."""
        return await self._loop.run_in_executor(None, peer.wait, length, timeout)

    async def flush(self, peer: Peer, timeout: float | None = None) -> bool:
        """Waits until everything sent so far to `peer` is acknowledged; whether it is."""
        return await self._loop.run_in_executor(None, peer.flush, timeout)

    async def open_group(
        self, address: str, members: Sequence[str], **options: str | int | float | bool
    ) -> AsyncGroup:
        """Opens a group and waits until every member takes part. See `Node.open_group`."""
        group = await self._loop.run_in_executor(
            None, lambda: self.node.open_group(address, members, **options)
        )
        return AsyncGroup(self, group)

    def join_group(self, address: str) -> AsyncGroupListener:
        """Joins a multicast address. See `Node.join_group`."""
        return AsyncGroupListener(self, self.node.join_group(address))

    async def collective(
        self, addresses: Sequence[str], group: str, timeout: float = 30.0, *, channel: int = 15
    ) -> AsyncCollective:
        """Makes a set of nodes that work together. See `Collective`.

        From then on `recv` brings nothing of its channel, whoever sends it.
        """
        self._left.add(channel)
        calls = _Calls()
        made = await calls.make(
            lambda: Collective(self.node, addresses, group, timeout, channel=channel, unless=calls.are_over)
        )
        return AsyncCollective(made, calls)

    async def cast_send(
        self,
        paths: Sequence[str | os.PathLike[str]],
        members: Sequence[str] = (),
        *,
        progress: Watch | None = None,
        **options: str | int | float | bool,
    ) -> CastReport:
        """Sends files and directories to many. See `Node.cast_send`; nothing else is received meanwhile."""
        return await self._cast(
            progress, lambda watch: self.node.cast_send(paths, members, progress=watch, **options)
        )

    async def cast_send_stream(
        self,
        source: _Descriptor,
        members: Sequence[str] = (),
        *,
        progress: Watch | None = None,
        **options: str | int | float | bool,
    ) -> CastReport:
        """Sends what can be read from a descriptor to many. See `Node.cast_send_stream`."""
        return await self._cast(
            progress, lambda watch: self.node.cast_send_stream(source, members, progress=watch, **options)
        )

    async def cast_receive(
        self,
        into: str | os.PathLike[str],
        *,
        progress: Watch | None = None,
        **options: str | int | float | bool,
    ) -> CastReceipt:
        """Receives one cast into a directory. See `Node.cast_receive`."""
        return await self._cast(
            progress, lambda watch: self.node.cast_receive(into, progress=watch, **options)
        )

    async def cast_receive_stream(
        self,
        target: _Descriptor,
        *,
        progress: Watch | None = None,
        **options: str | int | float | bool,
    ) -> CastReceipt:
        """Receives one cast of a stream into a descriptor. See `Node.cast_receive_stream`."""
        return await self._cast(
            progress, lambda watch: self.node.cast_receive_stream(target, progress=watch, **options)
        )

    async def _cast(self, progress: Watch | None, cast: Callable[[Watch], T]) -> T:
        """Runs a cast in a thread; a task that is cancelled breaks it off."""
        broken = threading.Event()

        def watch(state: CastProgress) -> object:
            return False if broken.is_set() else progress and progress(state)

        async with self._casting, self._undisturbed():
            running = self._loop.run_in_executor(None, cast, watch)
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                broken.set()
                await asyncio.wait([running])
                raise

    @asynccontextmanager
    async def _undisturbed(self) -> AsyncIterator[None]:
        """What comes to the Node is left to somebody else meanwhile."""
        if self._fd < 0:
            raise _closed()
        self._loop.remove_reader(self._fd)
        try:
            yield
        finally:
            if self._fd >= 0:
                self._loop.add_reader(self._fd, self._take)
                self._take()

    def close(self) -> None:
        """Leaves the event loop and closes the Node; who waits gets `DenreiError`. See `Node.close`."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1
            # Nobody waits for a queue that is full.
            if not self._messages.full():
                self._messages.put_nowait(None)
            if not self._events.full():
                self._events.put_nowait(None)
            for news in self._waiting:
                if not news.done():
                    news.set_result(None)
            self._closing = self._loop.run_in_executor(None, self.node.close)

    async def _leave(self) -> None:
        self.close()
        # The port is free at the end of the block.
        if self._closing is not None:
            await self._closing


class AsyncRelay(_Context):
    """A relay, at work until it is closed. Use it as a context manager, or call `close`.

    `relay` is the `Relay` itself; arguments are the same.
    """

    def __init__(self, routes: Sequence[tuple[str, str]], **options: Any) -> None:
        self.relay = Relay(routes, **options)

    @property
    def addresses(self) -> list[str]:
        """The addresses that stand for the targets, in the order of the routes."""
        return self.relay.addresses

    @property
    def pairs(self) -> list[RelayPair]:
        """All pairs, as of now; none once it is closed."""
        return self.relay.pairs

    async def close(self) -> None:
        """Ends the relay and all its sessions."""
        await asyncio.get_running_loop().run_in_executor(None, self.relay.close)

    async def _leave(self) -> None:
        await self.close()


class _Calls:
    """Calls that a thread makes, one after the other. A task that is cancelled ends its own."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._over = threading.Event()

    def are_over(self) -> bool:
        """Whether the one that is being made is waited for no longer."""
        return self._over.is_set()

    async def make(self, call: Callable[..., T], *arguments: Any) -> T:
        async with self._turn:
            self._over.clear()
            running = asyncio.get_running_loop().run_in_executor(None, call, *arguments)
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                self._over.set()
                await asyncio.wait([running])
                raise


class AsyncCollective(_Context):
    """A set of nodes that work together. Use it as a context manager, or call `close`.

    `set` is the `Collective` itself, whose calls these are, made by a thread. A task that is cancelled in one of them ends
    it as if time were up, for this node and so for all.
    """

    def __init__(self, made: Collective, calls: _Calls | None = None) -> None:
        self.set = made
        self._calls = calls or _Calls()

    async def barrier(self, timeout: float = 30.0) -> None:
        """Waits until all have come here."""
        await self._calls.make(self.set.barrier, timeout)

    async def broadcast(self, data: Buffer | None = None, timeout: float = 30.0) -> bytes:
        """Gives what rank 0 has to all."""
        return await self._calls.make(self.set.broadcast, data, timeout)

    async def gather(self, data: Buffer, timeout: float = 30.0) -> list[bytes]:
        """Brings what all have to rank 0, in the order of ranks."""
        return await self._calls.make(self.set.gather, data, timeout)

    async def all_gather(self, data: Buffer, timeout: float = 30.0) -> list[bytes]:
        """Brings what all have to all, in the order of ranks."""
        return await self._calls.make(self.set.all_gather, data, timeout)

    async def reduce(
        self, data: Buffer, join: Callable[[bytes, bytes], Buffer], timeout: float = 30.0
    ) -> bytes:
        """Joins what all have; `join` is called by a thread. See `Collective.reduce`."""
        return await self._calls.make(self.set.reduce, data, join, timeout)

    async def close(self, timeout: float = 30.0) -> bool:
        """Ends the set: rank 0 waits until all have everything; whether they have."""
        return await self._calls.make(self.set.close, timeout)

    async def _leave(self) -> None:
        await self.close()


class AsyncGroup(_Context):
    """The opener's end of a group. Use it as a context manager, or call `close`.

    `group` is the `Group` itself, for everything that does not wait.
    """

    def __init__(self, node: AsyncNode, group: Group) -> None:
        self._node = node
        self.group = group

    async def send(self, data: Buffer, *, copy: bool = False) -> int:
        """Sends a message to all members; waits while the queue is full. See `Group.send`."""
        while True:
            try:
                return self.group.send(data, timeout=0, copy=copy)
            except QueueFull:
                await self._node._loop.run_in_executor(None, self.group.flush, SLICE)

    async def flush(self, timeout: float | None = None) -> bool:
        """Waits until all members have acknowledged everything sent so far; whether they have. See `Group.flush`."""
        return await self._node._loop.run_in_executor(None, self.group.flush, timeout)

    async def event(self) -> GroupEvent:
        """The group's next event."""
        return await self._node._until(self.group.try_event)

    async def close(self, timeout: float | None = None) -> bool:
        """Ends the group in order; whether all members have everything."""
        return await self._node._loop.run_in_executor(None, self.group.close, timeout)

    async def _leave(self) -> None:
        await self.close()


class AsyncGroupListener(_Context):
    """Waits for openers who name this node as a member; `listener` is the `GroupListener` itself. Use it as a
    context manager, or call `close`."""

    def __init__(self, node: AsyncNode, listener: GroupListener) -> None:
        self._node = node
        self.listener = listener

    async def accept(self) -> AsyncMembership:
        """The next group that this node is made a member of."""
        return AsyncMembership(self._node, await self._node._until(self.listener.try_accept))

    async def close(self) -> None:
        """Stops waiting; memberships that it has brought go on. See `GroupListener.close`."""
        await self._node._loop.run_in_executor(None, self.listener.close)

    async def _leave(self) -> None:
        await self.close()


class AsyncMembership(_Context):
    """The member's end of a group: `async for` yields its messages until the group ends in order. Use it as a
    context manager, or call `close`.

    `membership` is the `Membership` itself.
    """

    def __init__(self, node: AsyncNode, membership: Membership) -> None:
        self._node = node
        self.membership = membership

    async def recv(self) -> Message:
        """The next message; `GroupClosed` or `PeerLost` if there will be none. See `Membership.recv`."""
        return await self._node._until(self.membership.try_recv)

    async def close(self) -> None:
        """Leaves the group, if it goes on, and lets go of the node. See `Membership.close`."""
        await self._node._loop.run_in_executor(None, self.membership.close)

    async def _leave(self) -> None:
        await self.close()

    def __aiter__(self) -> AsyncMembership:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.recv()
        except GroupClosed:
            raise StopAsyncIteration from None
