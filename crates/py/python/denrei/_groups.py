"""Groups in an event loop: of `denrei.aio`, where users find them.

Inputs → outputs: an `AsyncNode` and its groups, listeners and memberships → the same, awaited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from denrei._calls import Context
from denrei._internal import (
    Group,
    GroupClosed,
    GroupEvent,
    GroupListener,
    Membership,
    Message,
    QueueFull,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from denrei.aio import AsyncNode


class AsyncGroup(Context):
    """The opener's end of a group. Use it as a context manager, or call `close`.

    `group` is the `Group` itself, for everything that does not wait.
    """

    def __init__(self, node: AsyncNode, group: Group) -> None:
        self._node = node
        self.group = group

    async def send(self, data: Buffer, *, copy: bool = False) -> int:
        """Sends a message to all members; waits while the queue is full. See `Group.send`."""

        def attempt() -> int | None:
            try:
                return self.group.send(data, timeout=0, copy=copy)
            except QueueFull:
                return None

        return await self._node._until(attempt)

    async def flush(self, timeout: float | None = None) -> bool:
        """Waits until all members have acknowledged everything sent so far; whether they have. See `Group.flush`."""
        return await self._node._calls.make(self.group.flush, timeout)

    async def event(self) -> GroupEvent:
        """The group's next event; `GroupClosed` if all have been taken and the group has ended. See `Group.event`."""

        def attempt() -> GroupEvent | None:
            try:
                return self.group.event(timeout=0)
            except TimeoutError:
                return None

        return await self._node._until(attempt)

    async def close(self, timeout: float | None = None) -> bool:
        """Ends the group in order; whether all members have everything."""
        return await self._node._end(self.group.close, timeout)

    async def _leave(self) -> None:
        await self.close()


class AsyncGroupListener(Context):
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
        await self._node._end(self.listener.close)

    async def _leave(self) -> None:
        await self.close()


class AsyncMembership(Context):
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
        await self._node._end(self.membership.close)

    async def _leave(self) -> None:
        await self.close()

    def __aiter__(self) -> AsyncMembership:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.recv()
        except GroupClosed:
            raise StopAsyncIteration from None
