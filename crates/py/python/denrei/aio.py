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
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from denrei._calls import Calls, Context
from denrei._groups import AsyncGroup, AsyncGroupListener, AsyncMembership
from denrei._internal import (
    CastProgress,
    CastReceipt,
    CastReport,
    Collective,
    DenreiError,
    Event,
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


class AsyncNode(Context):
    """A Node in the running event loop. Use it as a context manager, or call `close`.

    `node` is the Node itself, for everything that does not wait. Messages and events wait in queues
    of their own, so one task may take messages while another takes events.
    """

    #: Messages taken from the Node and not awaited yet. What is beyond stays in the Node, whose
    #: senders run out of credit: a slow reader slows them down, and memory stays bounded.
    MAX_WAITING = 1024

    #: Bytes of theirs. Once there are so many no more are taken, so what waits is beyond by some messages at most.
    MAX_WAITING_BYTES = 64 << 20

    #: Messages taken from the Node at a time.
    _AT_ONCE = 16

    def __init__(
        self, address: str = "127.0.0.1:0", **settings: str | int | float | bool | os.PathLike[str]
    ) -> None:
        self.node = Node(address, **settings)
        self._loop = asyncio.get_running_loop()
        #: What has come; `None` says to those who wait that nothing comes any more.
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue(self.MAX_WAITING)
        self._events: asyncio.Queue[Event | None] = asyncio.Queue(self.MAX_WAITING)
        #: Bytes of the messages in their queue.
        self._bytes = 0
        #: Set for a moment whenever there is news: something has come, or a queue has room.
        self._news = asyncio.Event()
        #: The Node may have more than there was room for.
        self._behind = False
        #: Channels whose messages are for sets of nodes.
        self._left: set[int] = set()
        self._fd = self.node.fileno()
        self._loop.add_reader(self._fd, self._take)
        self._calls = Calls()
        self._casting = asyncio.Lock()
        self._closing: asyncio.Future[None] | None = None
        #: Why nothing comes any more.
        self._why = ""

    def _hear(self) -> str | None:
        """There is news; why there will be no more, if so."""
        why = None
        try:
            self.node.clear_news()
        except DenreiError as error:
            why = str(error)
        self._tell()
        return why

    def _tell(self) -> None:
        """Those who try until there is a value try again."""
        self._news.set()
        self._news.clear()

    def _take(self) -> None:
        """Something has come."""
        why = self._hear()
        self._move()
        if why is not None and not self._behind:
            self._stop(why)

    def _room(self) -> int:
        """How many messages may be taken now."""
        if self._bytes >= self.MAX_WAITING_BYTES:
            return 0
        return min(self._messages.maxsize - self._messages.qsize(), self._AT_ONCE)

    def _move(self) -> None:
        """Moves what has come into the queues, as far as there is room."""
        while room := self._room():
            taken = self.node.drain(room, leave=list(self._left))
            if not taken:
                self._behind = False
                return
            for incoming in taken:
                if isinstance(incoming, Message):
                    self._messages.put_nowait(incoming)
                    self._bytes += len(incoming)
                else:
                    self._put_event(incoming)
        self._behind = True
        # Messages that nobody reads hold no events up.
        while (event := self.node.try_event()) is not None:
            self._put_event(event)

    def _catch_up(self) -> None:
        """There is room again. What comes during a cast is left to that."""
        if self._fd >= 0 and not self._casting.locked():
            self._take()

    def _put_event(self, event: Event) -> None:
        if self._events.full():  # Nobody looks at them: the oldest goes.
            self._events.get_nowait()
        self._events.put_nowait(event)

    async def _until(self, attempt: Callable[[], T | None]) -> T:
        """Tries again whenever there is news, until there is a value."""
        while (value := attempt()) is None:
            if self._fd < 0:
                raise DenreiError(self._why)
            await self._news.wait()
        return value

    async def _end(self, close: Callable[..., T], *arguments: Any) -> T:
        """Closes something; who waits for what it brings tries once more, and hears of it."""
        try:
            return await self._calls.make(close, *arguments)
        finally:
            self._tell()

    def connect(self, address: str) -> Peer:
        """Opens a session with the node at an address. Returns at once."""
        return self.node.connect(address)

    async def recv(self) -> Message:
        """The next message of any peer. `DenreiError` once the node is closed and none is left."""
        message = await self._next(self._messages)
        self._bytes -= len(message)
        if self._behind:
            self._catch_up()
        return message

    async def event(self) -> Event:
        """The next event. `DenreiError` once the node is closed and none is left."""
        return await self._next(self._events)

    async def _next(self, queue: asyncio.Queue[T | None]) -> T:
        """The first of a queue, or the news that there will be none."""
        if queue.empty():
            if self._fd < 0:
                raise DenreiError(self._why)
            # Refuses a child that was forked: nobody fills its queues.
            self.node.fileno()
        first = await queue.get()
        if self._fd < 0 and queue.empty():
            # Others may be waiting, too.
            queue.put_nowait(None)
        if first is None:
            raise DenreiError(self._why)
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

        def attempt() -> int | None:
            try:
                return peer.send(data, channel, completion=completion, timeout=0, copy=copy)
            except QueueFull:
                return None

        if (number := attempt()) is not None:
            return number
        address = peer.address
        if address is not None and self.node.peer_at(address) != peer:
            raise ValueError("the peer is another node's: its room is no news here")
        return await self._until(attempt)

    async def wait(self, peer: Peer, length: int, timeout: float | None = None) -> bool:
        """Waits until a message of `length` bytes may be sent without waiting. See `Peer.wait`."""
        return await self._calls.make(peer.wait, length, timeout)

    async def flush(self, peer: Peer, timeout: float | None = None) -> bool:
        """Waits until everything sent so far to `peer` is acknowledged; whether it is."""
        return await self._calls.make(peer.flush, timeout)

    async def open_group(
        self, address: str, members: Sequence[str], **options: str | int | float | bool
    ) -> AsyncGroup:
        """Opens a group and waits until every member takes part. See `Node.open_group`."""
        opened = await self._calls.make(lambda: self.node.open_group(address, members, **options))
        return AsyncGroup(self, opened)

    def join_group(self, address: str) -> AsyncGroupListener:
        """Joins a multicast address. See `Node.join_group`."""
        return AsyncGroupListener(self, self.node.join_group(address))

    async def collective(
        self, addresses: Sequence[str], group: str, timeout: float = 30.0, *, channel: int = 15
    ) -> AsyncCollective:
        """Makes a set of nodes that work together. See `Collective`.

        From then on `recv` brings nothing of its channel, whoever sends it.
        """
        is_new = channel not in self._left
        self._left.add(channel)
        try:
            made = await self._calls.make(
                lambda: Collective(self.node, addresses, group, timeout, channel=channel)
            )
        except BaseException:
            # There is none: what comes there is for `recv` again.
            if is_new:
                self._left.discard(channel)
                self._catch_up()
            raise
        return AsyncCollective(made, self._calls)

    async def cast_send(
        self,
        paths: Sequence[str | os.PathLike[str]],
        members: Sequence[str] = (),
        *,
        progress: Watch | None = None,
        **options: str | int | float | bool,
    ) -> CastReport:
        """Sends files and directories to many. See `Node.cast_send`; nothing else is received meanwhile."""
        return await self._cast(lambda: self.node.cast_send(paths, members, progress=progress, **options))

    async def cast_send_stream(
        self,
        source: _Descriptor,
        members: Sequence[str] = (),
        *,
        progress: Watch | None = None,
        **options: str | int | float | bool,
    ) -> CastReport:
        """Sends what can be read from a descriptor to many. See `Node.cast_send_stream`."""
        return await self._cast(lambda: self.node.cast_send_stream(source, members, progress=progress, **options))

    async def cast_receive(
        self,
        into: str | os.PathLike[str],
        *,
        progress: Watch | None = None,
        **options: str | int | float | bool,
    ) -> CastReceipt:
        """Receives one cast into a directory. See `Node.cast_receive`."""
        return await self._cast(lambda: self.node.cast_receive(into, progress=progress, **options))

    async def cast_receive_stream(
        self,
        target: _Descriptor,
        *,
        progress: Watch | None = None,
        **options: str | int | float | bool,
    ) -> CastReceipt:
        """Receives one cast of a stream into a descriptor. See `Node.cast_receive_stream`."""
        return await self._cast(lambda: self.node.cast_receive_stream(target, progress=progress, **options))

    async def _cast(self, cast: Callable[[], T]) -> T:
        """Runs a cast in a thread; a task that is cancelled breaks it off."""
        async with self._casting, self._undisturbed():
            return await self._calls.make(cast)

    @asynccontextmanager
    async def _undisturbed(self) -> AsyncIterator[None]:
        """Messages and events are left to somebody else meanwhile; who waits for room goes on."""
        if self._fd < 0:
            raise DenreiError(self._why)
        self._loop.add_reader(self._fd, self._hear)
        try:
            yield
        finally:
            if self._fd >= 0:
                self._loop.add_reader(self._fd, self._take)
                self._take()

    def close(self) -> None:
        """Leaves the event loop and closes the Node; who waits gets `DenreiError`. See `Node.close`."""
        self._stop("the node was closed")
        if self._loop.is_closed():
            self.node.close()
        elif self._closing is None:
            self._closing = self._loop.run_in_executor(None, self.node.close)

    def _stop(self, why: str) -> None:
        """Leaves the event loop; who waits hears why."""
        if self._fd < 0:
            return
        fd, self._fd, self._why = self._fd, -1, why
        self._calls.end(why)
        if self._loop.is_closed():
            return  # Nobody waits in it any more.
        self._loop.remove_reader(fd)
        # Of a queue that is full, whoever takes the last one tells those who wait for more.
        if not self._messages.full():
            self._messages.put_nowait(None)
        if not self._events.full():
            self._events.put_nowait(None)
        self._tell()

    async def _leave(self) -> None:
        self.close()
        # The port is free at the end of the block.
        if self._closing is not None:
            # A task that is cancelled here neither takes it back nor ends it for others.
            await asyncio.shield(self._closing)


class AsyncRelay(Context):
    """A relay, at work until it is closed. Use it as a context manager, or call `close`.

    `relay` is the `Relay` itself; arguments are the same.
    """

    def __init__(self, routes: Sequence[tuple[str, str]], **options: Any) -> None:
        self.relay = Relay(routes, **options)
        self._calls = Calls()

    @property
    def addresses(self) -> list[str]:
        """The addresses that stand for the targets, in the order of the routes."""
        return self.relay.addresses

    @property
    def pairs(self) -> list[RelayPair]:
        """All pairs, as of now; none once it is closed."""
        return self.relay.pairs

    async def drain(self, timeout: float = 30.0) -> bool:
        """Ends all sessions in order, once what the relay had acknowledged has gone on; whether that came about in time.
        What is left, `close` ends."""
        return await self._calls.make(self.relay.drain, timeout)

    async def close(self) -> None:
        """Ends the relay and all its sessions at once."""
        await self._calls.make(self.relay.close)

    async def _leave(self) -> None:
        await self.close()


class AsyncCollective(Context):
    """A set of nodes that work together. Use it as a context manager, or call `close`.

    `set` is the `Collective` itself, whose calls these are, made by a thread. A task that is cancelled in one of them ends
    it as if time were up, for this node and so for all.
    """

    def __init__(self, made: Collective, calls: Calls | None = None) -> None:
        self.set = made
        self._calls = calls or Calls()
        self._turn = asyncio.Lock()

    async def barrier(self, timeout: float = 30.0) -> None:
        """Waits until all have come here."""
        await self._in_turn(timeout, self.set.barrier)

    async def broadcast(self, data: Buffer | None = None, timeout: float = 30.0) -> bytes:
        """Gives what rank 0 has to all."""
        return await self._in_turn(timeout, self.set.broadcast, data)

    async def gather(self, data: Buffer, timeout: float = 30.0) -> list[bytes]:
        """Brings what all have to rank 0, in the order of ranks."""
        return await self._in_turn(timeout, self.set.gather, data)

    async def all_gather(self, data: Buffer, timeout: float = 30.0) -> list[bytes]:
        """Brings what all have to all, in the order of ranks."""
        return await self._in_turn(timeout, self.set.all_gather, data)

    async def reduce(
        self, data: Buffer, join: Callable[[bytes, bytes], Buffer], timeout: float = 30.0
    ) -> bytes:
        """Joins what all have; `join` is called by a thread. See `Collective.reduce`."""
        return await self._in_turn(timeout, self.set.reduce, data, join)

    async def close(self, timeout: float = 30.0) -> bool:
        """Ends the set: rank 0 waits until all have everything, the others until rank 0 has their parts, or has ended
        the set without them; whether it came to that."""
        return await self._in_turn(timeout, self.set.close)

    async def _in_turn(self, timeout: float, call: Callable[..., T], *arguments: Any) -> T:
        """Makes a call after those before it: they have an order, the same at all nodes."""
        async with asyncio.timeout(timeout):
            await self._turn.acquire()
        try:
            return await self._calls.make(call, *arguments, timeout)
        finally:
            self._turn.release()

    async def _leave(self) -> None:
        await self.close()
