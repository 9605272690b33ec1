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
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from denrei._internal import (
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
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["AsyncGroup", "AsyncGroupListener", "AsyncMembership", "AsyncNode"]

T = TypeVar("T")

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
        self._messages: asyncio.Queue[Message] = asyncio.Queue(self.MAX_WAITING)
        self._events: asyncio.Queue[Event] = asyncio.Queue(self.MAX_WAITING)
        self._waiting: set[asyncio.Future[None]] = set()
        self._fd = self.node.fileno()
        self._loop.add_reader(self._fd, self._take)

    def _take(self) -> None:
        """Moves what has come into the queues, as far as there is room."""
        self.node.clear_news()
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)
        while not self._messages.full():
            incoming = self.node.try_next()
            if incoming is None:
                return
            if isinstance(incoming, Message):
                self._messages.put_nowait(incoming)
            else:
                if self._events.full():
                    # Nobody looks at them: the oldest goes.
                    self._events.get_nowait()
                self._events.put_nowait(incoming)

    async def _until(self, attempt: Callable[[], T | None]) -> T:
        """Tries again whenever something has come, until there is a value."""
        while True:
            news = self._loop.create_future()
            self._waiting.add(news)
            try:
                value = attempt()
                if value is not None:
                    return value
                await news
            finally:
                self._waiting.discard(news)

    def connect(self, address: str) -> Peer:
        """Opens a session with the node at an address. Returns at once."""
        return self.node.connect(address)

    async def recv(self) -> Message:
        """The next message of any peer."""
        was_full = self._messages.full()
        message = await self._messages.get()
        if was_full:
            self._take()
        return message

    async def event(self) -> Event:
        """The next event."""
        return await self._events.get()

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

    def close(self) -> None:
        """Leaves the event loop. The Node is closed with the last reference to it."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1

    async def _leave(self) -> None:
        self.close()


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
        """Waits until all members have acknowledged everything sent so far; whether they have."""
        return await self._node._loop.run_in_executor(None, self.group.flush, timeout)

    async def event(self) -> GroupEvent:
        """The group's next event."""
        return await self._node._until(self.group.try_event)

    async def close(self, timeout: float | None = None) -> bool:
        """Ends the group in order; whether all members have everything."""
        return await self._node._loop.run_in_executor(None, self.group.close, timeout)

    async def _leave(self) -> None:
        await self.close()


class AsyncGroupListener:
    """Waits for openers who name this node as a member; `listener` is the `GroupListener` itself."""

    def __init__(self, node: AsyncNode, listener: GroupListener) -> None:
        self._node = node
        self.listener = listener

    async def accept(self) -> AsyncMembership:
        """The next group that this node is made a member of."""
        return AsyncMembership(self._node, await self._node._until(self.listener.try_accept))


class AsyncMembership:
    """The member's end of a group: `async for` yields its messages until the group ends in order.

    `membership` is the `Membership` itself.
    """

    def __init__(self, node: AsyncNode, membership: Membership) -> None:
        self._node = node
        self.membership = membership

    async def recv(self) -> Message:
        """The next message; `GroupClosed` or `PeerLost` if there will be none. See `Membership.recv`."""
        return await self._node._until(self.membership.try_recv)

    def __aiter__(self) -> AsyncMembership:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.recv()
        except GroupClosed:
            raise StopAsyncIteration from None
