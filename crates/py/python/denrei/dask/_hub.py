"""Nodes in an event loop, and the channels that connections are made of.

Inputs → outputs: frames ↔ messages of denrei. On channel 0 the connecting side names a channel that
it opens; the listener answers on that channel with ACCEPTED, or with CLOSE. A message of small
frames travels as one; of a larger one each frame goes by itself, without copies, after a head that
says how many and how long. Either side ends a channel with CLOSE; its number may be used again once
both have. A message that is given up half-way is filled up with empty frames, so that what the
receiver takes for a frame is one.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import dask
from distributed.comm.core import CommClosedError
from distributed.utils import nbytes

from denrei._internal import DenreiError, Message, Node, Peer, PeerLost, QueueFull

logger = logging.getLogger(__name__)

#: Where the connecting side says which channels it opens.
CONTROL = 0

#: Connections between two processes at a time.
MAX_CHANNELS = 60_000

#: Messages up to this many bytes are put together; of larger ones each frame goes by itself.
JOIN_BELOW_BYTES = 64 * 1024

#: How long closing waits for what was written to arrive, seconds.
LINGER = 5.0

#: How long to wait before looking again whether a port is free, or a peer has answered, seconds.
LOOK_AGAIN = 0.02

#: How long nothing comes from a peer until it is asked whether it is there.
KEEPALIVE = "2s"

CLOSE, JOINED, SEPARATE, ACCEPTED = range(4)

#: Kind of the message and number of its frames; their lengths follow, eight bytes each.
_HEAD = struct.Struct("<BI")


def pack(frames: list[Any]) -> list[Any]:
    """The messages that frames travel as: one, or a head and then each frame."""
    lengths = [nbytes(frame) for frame in frames]
    joined = sum(lengths) <= JOIN_BELOW_BYTES
    kind = JOINED if joined else SEPARATE
    head = _HEAD.pack(kind, len(lengths)) + struct.pack(f"<{len(lengths)}Q", *lengths)
    return [b"".join([head, *frames])] if joined else [head, *frames]


def parse(message: Message) -> tuple[int, tuple[int, ...], memoryview]:
    """What a message that is no frame says: its kind, the lengths of its frames, and the rest of it."""
    view = memoryview(message)
    kind, count = _HEAD.unpack_from(view)
    return kind, struct.unpack_from(f"<{count}Q", view, _HEAD.size), view[_HEAD.size + 8 * count :]


def split(lengths: tuple[int, ...], rest: memoryview) -> list[bytearray]:
    """The frames of a joined message, each in memory of its own: they are let go one by one."""
    frames = []
    for length in lengths:
        frames.append(bytearray(rest[:length]))
        rest = rest[length:]
    return frames


class Channel:
    """One connection of two processes. It lives until both sides have ended it."""

    def __init__(self, hub: Hub, peer: Peer, number: int) -> None:
        self.hub = hub
        self.peer = peer
        self.number = number
        #: Whether this side has ended it, or the peer is gone.
        self.ended = False
        #: Why nothing more will come: the peer is gone.
        self._lost: str | None = None
        #: CLOSE was sent; CLOSE was taken.
        self._said = self._heard = False
        #: The next message, taken to see whether it is CLOSE.
        self._ahead: Message | None = None
        #: Frames of a message under way that are still to come, and still to be sent.
        self._due = self._owed = 0
        self._reader: asyncio.Future[None] | None = None
        self.writing = asyncio.Lock()
        hub.channels[(peer, number)] = self

    def __repr__(self) -> str:
        return f"<channel {self.number} of {self.peer!r}>"

    # ---- reading ----

    async def receive(self) -> list[Any]:
        """The frames of the next message."""
        kind, lengths, rest = parse(await self._next())
        if kind == CLOSE:
            self._hear_end()
            raise CommClosedError(f"{self!r} was closed by the other side")
        if kind == JOINED:
            return list(split(lengths, rest))
        frames = []
        self._due = len(lengths)
        for length in lengths:
            frame = memoryview(await self._next())
            self._due -= 1
            if frame.nbytes != length:
                self.end()
                raise CommClosedError(f"{self!r}: the other side gave a message up")
            frames.append(frame)
        return frames

    async def accepted(self) -> None:
        """Waits until the listener has accepted the connection."""
        kind, _, _ = parse(await self._next())
        if kind != ACCEPTED:
            self._hear_end()
            raise CommClosedError(f"{self!r} was refused: nobody listens")

    async def _next(self) -> Message:
        if self._reader is not None:
            raise RuntimeError(f"{self!r} is being read already")
        while True:
            if self.ended:
                raise CommClosedError(f"{self!r} is closed")
            if (message := self._take()) is not None:
                return message
            if self._lost is not None:
                self.end()
                raise CommClosedError(f"{self!r}: {self._lost}")
            self._reader = self.hub.loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None

    def _take(self) -> Message | None:
        """The next message if it is here."""
        message, self._ahead = self._ahead, None
        return self.peer.try_recv(self.number) if message is None else message

    def look(self) -> None:
        """Something has come, perhaps here: wakes the reader, and sees whether the other side has ended."""
        if self.ended:
            return self._drain()
        if self._ahead is None:
            self._ahead = self.peer.try_recv(self.number)
        if self._ahead is not None and not self._due and parse(self._ahead)[0] == CLOSE:
            self._ahead = None
            return self._hear_end()
        if self._ahead is not None or self._lost is not None:
            self._wake()

    def _drain(self) -> None:
        """Nobody reads any more: takes what still comes, until the other side has ended too."""
        while not self._heard and (message := self._take()) is not None:
            if self._due:
                self._due -= 1
                continue
            kind, lengths, _ = parse(message)
            if kind == SEPARATE:
                self._due = len(lengths)
            elif kind == CLOSE:
                self._hear_end()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # ---- writing ----

    async def send(self, frames: list[Any]) -> None:
        """Sends a message; waits while the queue to the peer is full."""
        messages = pack(frames)
        async with self.writing:
            for number, message in enumerate(messages):
                await self.hub.send(self.peer, self.number, message, lambda: self.ended)
                self._owed = len(messages) - 1 - number

    # ---- ending ----

    @property
    def is_lost(self) -> bool:
        """Whether nothing more will come, as the peer is gone."""
        return self._lost is not None

    def lost(self, reason: str) -> None:
        """The peer is gone: what it has sent can be read, no more."""
        self._lost = reason
        self._said = True
        self.look()
        self._settle()

    def fail(self, reason: str) -> None:
        """There is nothing to read and nobody to tell."""
        self._lost = reason
        self._said = True
        self._owed = 0
        self.end()
        self._settle()

    def end(self) -> None:
        """This side ends the connection."""
        if self.ended:
            return
        self.ended = True
        self._wake()
        self.hub.tell()
        if not self._say_end():
            self.hub.start(self._say_end_later())
        self._settle()
        if not self._heard:
            self.hub.soon()

    def _hear_end(self) -> None:
        """The other side has ended it."""
        self._heard = True
        self.end()
        self._settle()

    def _say_end(self) -> bool:
        """Tells the other side; whether there was room to."""
        try:
            while self._owed:
                self.peer.send(b"", self.number, timeout=0)
                self._owed -= 1
            if not self._said:
                self.peer.send(_HEAD.pack(CLOSE, 0), self.number, timeout=0)
        except QueueFull:
            return False
        except PeerLost as error:
            self._lost = str(error)
        self._said = True
        return True

    async def _say_end_later(self) -> None:
        while not self._say_end():
            await self.hub.news.wait()
        self._settle()

    def _settle(self) -> None:
        if self.ended and self._said and (self._heard or self._lost is not None):
            self.hub.forget(self)


class Hub:
    """A Node in an event loop, and the channels that share it."""

    #: Those whose listeners have stopped, by their addresses, which are free as soon as all has been said.
    leaving: ClassVar[dict[str, Hub]] = {}

    @classmethod
    async def listening(cls, address: str) -> Hub:
        """A hub at an address, as soon as one before it in this process has left it."""
        deadline = asyncio.get_running_loop().time() + 2 * LINGER
        while True:
            try:
                return cls(address)
            except OSError:
                before = cls.leaving.get(address)
                if before is None or asyncio.get_running_loop().time() > deadline:
                    raise
            if before.loop.is_closed():
                # Nobody says anything there any more.
                before._close()
            await asyncio.sleep(LOOK_AGAIN)

    def __init__(self, address: str) -> None:
        self.node = Node(address, max_channels=MAX_CHANNELS, **_timeouts(), **settings())
        self.loop = asyncio.get_running_loop()
        self.channels: dict[tuple[Peer, int], Channel] = {}
        #: Called with each channel that a peer opens; nobody listens without.
        self.accept: Callable[[Channel], None] | None = None
        #: Set for a moment whenever something has come, a queue has room, or a connection has ended.
        self.news = asyncio.Event()
        #: Called when the Node is let go.
        self.endings: list[Callable[[], None]] = []
        self._callers: set[Peer] = set()
        #: Channels opened anew before their last use has been seen to end.
        self._again: deque[tuple[Peer, int]] = deque()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._fd = self.node.fileno()
        self.loop.add_reader(self._fd, self._take)

    def _take(self) -> None:
        """Something has come."""
        try:
            self._take_all()
        except DenreiError as error:
            # What came ended the last connection, and with it the Node.
            if not self.is_closed:
                self._fail(str(error))

    def _fail(self, reason: str) -> None:
        """The Node has failed: nothing comes any more."""
        logger.error("No connections any more at %s: %s", self.node.address, reason)
        self.loop.remove_reader(self._fd)
        for channel in list(self.channels.values()):
            channel.fail(reason)

    def _take_all(self) -> None:
        self.node.clear_news()
        self.tell()
        while (event := self.node.try_event()) is not None:
            if event.kind == "connected" and event.peer is not None:
                self._callers.add(event.peer)
            elif event.kind == "peer_lost" and event.peer is not None:
                self._accept_from(event.peer)
                self._callers.discard(event.peer)
                for channel in [c for c in self.channels.values() if c.peer == event.peer]:
                    channel.lost(event.reason or "the peer is gone")
        for peer in list(self._callers):
            self._accept_from(peer)
        for channel in list(self.channels.values()):
            channel.look()

    def _accept_from(self, peer: Peer) -> None:
        """Takes the channels that a peer has opened."""
        while (message := peer.try_recv(CONTROL)) is not None:
            (number,) = struct.unpack("<H", bytes(message))
            if (peer, number) in self.channels:
                self._again.append((peer, number))
            else:
                self._accept_one(peer, number)

    def _accept_one(self, peer: Peer, number: int) -> None:
        channel = Channel(self, peer, number)
        if self.accept is None:
            return channel.end()
        try:
            peer.send(_HEAD.pack(ACCEPTED, 0), number, timeout=0)
        except (QueueFull, PeerLost):
            # Nothing was sent on it yet: a peer whose queue is full at that reads nothing at all.
            return channel.end()
        self.accept(channel)

    def soon(self) -> None:
        """Looks at everything once more: what is here already makes no news."""
        if not self.is_closed and not self.loop.is_closed():
            self.loop.call_soon(self._look)

    def _look(self) -> None:
        if not self.is_closed:
            self._take()

    def start(self, work: Awaitable[Any]) -> None:
        """Runs something beside, until it is done."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def tell(self) -> None:
        """Those who wait for news look again."""
        self.news.set()
        self.news.clear()

    async def send(self, peer: Peer, channel: int, data: Any, gone: Callable[[], bool]) -> None:
        """Sends one message; waits while the queue to the peer is full, until `gone` says to give up."""
        while not gone():
            try:
                peer.send(data, channel, timeout=0)
                return
            except QueueFull:
                await self.news.wait()
            except PeerLost as error:
                raise CommClosedError(str(error)) from error
        raise CommClosedError(f"channel {channel} of {peer!r} is closed")

    async def open(self, address: str) -> Channel:
        """A new connection to the listener at an address."""
        try:
            peer = self.node.connect(address)
        except DenreiError as error:
            raise OSError(f"cannot connect to {address}: {error}") from error
        number = next((n for n in range(1, MAX_CHANNELS) if (peer, n) not in self.channels), None)
        if number is None:
            raise OSError(f"there are {MAX_CHANNELS - 1} connections to {address} already: close some")
        channel = Channel(self, peer, number)
        try:
            await self.send(peer, CONTROL, struct.pack("<H", number), lambda: channel.ended)
            await channel.accepted()
        except BaseException:
            channel.end()
            raise
        return channel

    def forget(self, channel: Channel) -> None:
        """A connection is over on both sides: its channel may be used again."""
        if self.channels.get((channel.peer, channel.number)) is channel:
            del self.channels[(channel.peer, channel.number)]
            if (channel.peer, channel.number) in self._again:
                self._again.remove((channel.peer, channel.number))
                self._accept_one(channel.peer, channel.number)
        self.close_if_idle()

    def close_if_idle(self) -> None:
        """Lets go of the Node if nobody connects and nobody listens."""
        if not self.channels and self.accept is None and self._fd >= 0:
            self.loop.remove_reader(self._fd)
            self._fd = -1
            for ending in self.endings:
                ending()
            try:
                self.loop.run_in_executor(None, self._leave)
            except RuntimeError:
                # The loop is closed, or the interpreter ends and starts nothing any more.
                self._leave()

    def stop_listening(self) -> None:
        """Accepts no more."""
        self.accept = None
        self.leaving[self.node.address] = self
        self.close_if_idle()

    def _leave(self) -> None:
        """Keeps the Node until what was written has arrived, then closes it."""
        for peer in self.node.peers():
            peer.flush(LINGER)
        self._close()

    def _close(self) -> None:
        self.node.close()
        self.leaving.pop(self.node.address, None)

    @property
    def is_closed(self) -> bool:
        return self._fd < 0


def _timeouts() -> dict[str, str]:
    """How soon a silent peer is asked whether it is there, if the configuration says nothing of such times. A worker
    that is killed is missed a second later."""
    given = settings().keys() & {"keepalive", "failure_timeout"}
    return {} if given else {"keepalive": KEEPALIVE}


def settings() -> dict[str, Any]:
    """The settings of nodes, from Dask's configuration."""
    given = dict(dask.config.get("denrei.settings", {}) or {})
    if "max_channels" in given:
        raise ValueError(f"denrei.settings: leave max_channels out: there are {MAX_CHANNELS}, one for each connection")
    return given
