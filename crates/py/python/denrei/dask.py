"""Dask's clusters over denrei: the comm backend `denrei://`.

    from dask.distributed import Client, LocalCluster
    client = Client(LocalCluster(protocol="denrei://"))

Dask opens a connection for each thing it talks about; here each is a channel of the one session that
two processes share, on one UDP port for a listener and one for all that a process connects to.

Inputs → outputs: Dask's messages → frames by Dask's own serialisation → denrei messages. Small
messages travel as one, large frames each as their own, without copies. On channel 0 the connecting
side names the channels that it opens; both sides end one with a CLOSE on it.

Settings of the nodes: `dask.config.set({"denrei.settings": {"key_file": "cluster.key"}})`.
"""

from __future__ import annotations

import asyncio
import struct
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import dask
from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import BaseListener, Comm, CommClosedError, Connector
from distributed.comm.registry import Backend
from distributed.comm.utils import ensure_concrete_host, from_frames, to_frames
from distributed.utils import ensure_ip, get_ip, get_ipv6, nbytes

from denrei._internal import Message, Node, Peer, PeerLost, QueueFull

__all__ = ["DenreiBackend"]

#: Where the connecting side says which channels it opens.
CONTROL = 0

#: Connections between two processes at a time.
MAX_CHANNELS = 60_000

#: Messages up to this many bytes are put together; of larger ones each frame goes by itself.
JOIN_BELOW_BYTES = 64 * 1024

#: How long closing waits for what was written to arrive, seconds.
LINGER = 5.0

CLOSE, JOINED, SEPARATE = range(3)

Handler = Callable[["DenreiComm"], Awaitable[None]]


class _Hub:
    """A Node in an event loop, and the connections that share it."""

    def __init__(self, address: str) -> None:
        settings = dict(dask.config.get("denrei.settings", {}) or {})
        self.node = Node(address, max_channels=MAX_CHANNELS, **settings)
        self.loop = asyncio.get_running_loop()
        self.comms: dict[tuple[Peer, int], DenreiComm] = {}
        self.handler: Handler | None = None
        self._callers: set[Peer] = set()
        self._waiting: set[asyncio.Future[None]] = set()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._fd = self.node.fileno()
        self.loop.add_reader(self._fd, self._take)

    def _take(self) -> None:
        """Something has come."""
        self.node.clear_news()
        while (event := self.node.try_event()) is not None:
            if event.kind == "connected" and event.peer is not None:
                self._callers.add(event.peer)
            elif event.kind == "peer_lost" and event.peer is not None:
                self._accept_from(event.peer)
                self._callers.discard(event.peer)
                for (peer, _), comm in list(self.comms.items()):
                    if peer == event.peer:
                        comm.lost(event.reason or "the peer is gone")
        for peer in list(self._callers):
            self._accept_from(peer)
        for comm in list(self.comms.values()):
            comm.drain()
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _accept_from(self, peer: Peer) -> None:
        """Takes the channels that a peer has opened."""
        if self.handler is None:
            return
        while (message := peer.try_recv(CONTROL)) is not None:
            (channel,) = struct.unpack("<H", bytes(message))
            comm = DenreiComm(self, peer, channel)
            self.start(self.handler(comm))

    def start(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def news(self) -> None:
        """Waits until something has come."""
        future: asyncio.Future[None] = self.loop.create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def open(self, address: str) -> DenreiComm:
        """A new connection to the listener at an address."""
        peer = self.node.connect(address)
        for channel in range(1, MAX_CHANNELS):
            if (peer, channel) not in self.comms:
                break
        else:
            raise OSError(f"there are {MAX_CHANNELS - 1} connections to {address} already")
        comm = DenreiComm(self, peer, channel)
        peer.send(struct.pack("<H", channel), CONTROL)
        return comm

    def forget(self, comm: DenreiComm) -> None:
        """A connection is over on both sides: its channel may be used again."""
        self.comms.pop((comm.peer, comm.channel), None)
        self.close_if_idle()

    def close_if_idle(self) -> None:
        """Lets go of the Node if nobody connects and nobody listens."""
        if not self.comms and self.handler is None and self._fd >= 0:
            self.loop.remove_reader(self._fd)
            self._fd = -1
            peers = self.node.peers()
            if peers:
                self.loop.run_in_executor(None, _flush, self.node, peers)

    @property
    def is_closed(self) -> bool:
        return self._fd < 0


def _flush(node: Node, peers: list[Peer]) -> None:
    """Keeps a Node until what was written has arrived."""
    for peer in peers:
        peer.flush(LINGER)


class DenreiComm(Comm):
    """One connection: a channel of a session."""

    _local_addr: str
    _peer_addr: str

    def __init__(self, hub: _Hub, peer: Peer, channel: int, deserialize: bool = True) -> None:
        super().__init__(deserialize=deserialize)
        self._hub = hub
        self.peer = peer
        self.channel = channel
        self._local_addr = "denrei://" + hub.node.address
        self._peer_addr = "denrei://" + (peer.address or "unknown")
        self._closed = False
        self._lost: str | None = None
        #: Frames of a message under way that are still to come, when nobody reads any more.
        self._skip = 0
        self._writing = asyncio.Lock()
        hub.comms[(peer, channel)] = self

    # ---- reading ----

    async def read(self, deserializers: Any = None) -> Any:
        kind, lengths, rest = self._parse(await self._receive())
        if kind == CLOSE:
            self._end()
            self._hub.forget(self)
            raise CommClosedError(f"{self!r} was closed by the other side")
        frames: list[Any] = []
        if kind == JOINED:
            for length in lengths:
                frames.append(bytearray(rest[:length]))
                rest = rest[length:]
        else:
            self._skip = len(lengths)
            while self._skip:
                frames.append(memoryview(await self._receive()))
                self._skip -= 1
        return await from_frames(frames, deserialize=self.deserialize, deserializers=deserializers)

    async def _receive(self) -> Message:
        while True:
            if self._closed:
                raise CommClosedError(f"{self!r} is closed")
            message = self.peer.try_recv(self.channel)
            if message is not None:
                return message
            if self._lost is not None:
                self._end()
                raise CommClosedError(f"{self!r}: {self._lost}")
            await self._hub.news()

    @staticmethod
    def _parse(message: Message) -> tuple[int, tuple[int, ...], memoryview]:
        view = memoryview(message)
        kind, count = struct.unpack_from("<BI", view)
        lengths = struct.unpack_from(f"<{count}Q", view, 5)
        return kind, lengths, view[5 + 8 * count :]

    def drain(self) -> None:
        """Nobody reads any more: takes what still comes, until the other side has closed too."""
        while self._closed and (message := self.peer.try_recv(self.channel)) is not None:
            if self._skip:
                self._skip -= 1
                continue
            kind, lengths, _ = self._parse(message)
            if kind == SEPARATE:
                self._skip = len(lengths)
            elif kind == CLOSE:
                return self._hub.forget(self)

    # ---- writing ----

    async def write(self, msg: Any, serializers: Any = None, on_error: str = "message") -> int:
        frames = await to_frames(
            msg,
            allow_offload=self.allow_offload,
            serializers=serializers,
            on_error=on_error,
            context={
                "sender": self.local_info,
                "recipient": self.remote_info,
                **self.handshake_options,
            },
        )
        lengths = [nbytes(frame) for frame in frames]
        joined = sum(lengths) <= JOIN_BELOW_BYTES
        head = struct.pack(f"<BI{len(lengths)}Q", JOINED if joined else SEPARATE, len(lengths), *lengths)
        async with self._writing:
            if joined:
                await self._send(b"".join([head, *frames]))
            else:
                await self._send(head)
                for frame in frames:
                    await self._send(frame)
        return sum(lengths)

    async def _send(self, data: Any) -> None:
        while True:
            if self._closed or self._lost is not None:
                raise CommClosedError(f"{self!r} is closed")
            try:
                self.peer.send(data, self.channel, timeout=0)
                return
            except QueueFull:
                await self._hub.loop.run_in_executor(None, self.peer.wait, nbytes(data), 1.0)
            except PeerLost as error:
                self._end()
                raise CommClosedError(f"{self!r}: {error}") from error

    # ---- ending ----

    def lost(self, reason: str) -> None:
        """The peer is gone: what it has sent can be read, no more."""
        self._lost = reason
        if self._closed:
            self._hub.forget(self)

    def _end(self) -> None:
        """This side has closed."""
        if self._closed:
            return
        self._closed = True
        if self._lost is None:
            try:
                self.peer.send(struct.pack("<BI", CLOSE, 0), self.channel, timeout=0)
            except (QueueFull, PeerLost):
                # The other side learns it when this one has gone.
                self._lost = "closed"
        if self._lost is not None:
            self._hub.forget(self)

    async def close(self) -> None:
        async with self._writing:
            self._end()

    def abort(self) -> None:
        self._end()
        self._hub.loop.call_soon(self._hub._take)

    def closed(self) -> bool:
        return self._closed

    @property
    def local_address(self) -> str:
        return self._local_addr

    @property
    def peer_address(self) -> str:
        return self._peer_addr


class DenreiConnector(Connector):
    """Opens connections, all of one event loop through one Node."""

    _hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Hub] = weakref.WeakKeyDictionary()

    async def connect(self, address: str, deserialize: bool = True, **connection_args: Any) -> DenreiComm:
        host, port = parse_host_port(address)
        ip = ensure_ip(host)
        loop = asyncio.get_running_loop()
        hub = self._hubs.get(loop)
        if hub is None or hub.is_closed:
            local = "[::]:0" if ":" in ip else "0.0.0.0:0"
            if ip.startswith("127.") or ip == "::1":
                local = unparse_host_port(ip, 0)
            self._hubs[loop] = hub = _Hub(local)
        comm = hub.open(unparse_host_port(ip, port))
        comm.deserialize = deserialize
        return comm


class DenreiListener(BaseListener):
    """Takes connections on one UDP port."""

    prefix = "denrei://"

    def __init__(self, loc: str, handle_comm: Handler, deserialize: bool = True) -> None:
        super().__init__()
        self._host, self._port = parse_host_port(loc, 0)
        self._handle_comm = handle_comm
        self._deserialize = deserialize
        self._hub: _Hub | None = None

    async def start(self) -> None:
        host = ensure_ip(self._host) if self._host else "0.0.0.0"
        self._hub = _Hub(unparse_host_port(host, self._port))
        self._hub.handler = self._on_comm

    async def _on_comm(self, comm: DenreiComm) -> None:
        comm.deserialize = self._deserialize
        try:
            await self.on_connection(comm)
        except CommClosedError:
            # Gone before it had introduced itself.
            comm.abort()
            return
        await self._handle_comm(comm)

    def stop(self) -> None:
        if self._hub is not None:
            self._hub.handler = None
            self.abort_handshaking_comms()
            self._hub.close_if_idle()

    @property
    def listen_address(self) -> str:
        if self._hub is None:
            raise ValueError("the listener was not started")
        return "denrei://" + self._hub.node.address

    @property
    def contact_address(self) -> str:
        host, port = parse_host_port(self.listen_address.removeprefix("denrei://"))
        return "denrei://" + unparse_host_port(ensure_concrete_host(host), port)


class DenreiBackend(Backend):
    """What Dask finds by the entry point."""

    def get_connector(self) -> DenreiConnector:
        return DenreiConnector()

    def get_listener(
        self, loc: str, handle_comm: Handler, deserialize: bool, **connection_args: Any
    ) -> DenreiListener:
        return DenreiListener(loc, handle_comm, deserialize)

    def get_address_host(self, loc: str) -> str:
        host, _ = parse_host_port(loc)
        return str(host)

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        host, port = parse_host_port(loc)
        return host, port

    def resolve_address(self, loc: str) -> str:
        host, port = parse_host_port(loc)
        return str(unparse_host_port(ensure_ip(host), port))

    def get_local_address_for(self, loc: str) -> str:
        host, port = parse_host_port(loc)
        host = ensure_ip(host)
        local = get_ipv6(host) if ":" in host else get_ip(host)
        return str(unparse_host_port(local, None))
