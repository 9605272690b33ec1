"""Dask's connections, connectors and listeners over channels."""

from __future__ import annotations

import asyncio
import os
import socket
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import BaseListener, Comm, CommClosedError, Connector
from distributed.comm.registry import Backend
from distributed.comm.utils import ensure_concrete_host, from_frames, to_frames
from distributed.utils import ensure_ip, get_ip, nbytes

from denrei._internal import PeerLost
from denrei.dask import _scatter, _successor
from denrei.dask._hub import LOOK_AGAIN, Channel, Hub, settings

Handler = Callable[["DenreiComm"], Awaitable[None]]


def _is_loopback(ip: str) -> bool:
    return ip.startswith("127.") or ip == "::1"


def _seen_by(address: str, peer: str) -> str:
    """A node's address as a peer sees it: one that is bound to all interfaces has many."""
    host, port = parse_host_port(address)
    if host not in ("0.0.0.0", "::"):
        return address
    remote, _ = parse_host_port(peer)
    if _is_loopback(remote):
        return str(unparse_host_port(remote, port))
    return str(unparse_host_port(_local_ip(remote), port))


def _local_ip(remote: str) -> str:
    """This host's address on the way to another."""
    if ":" not in remote:
        return str(get_ip(remote))
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: the kernel only chooses the route.
        probe.connect((remote, 9))
        return str(probe.getsockname()[0])


def _is_sealed() -> bool:
    """Whether nodes have the cluster's key: by the configuration or, unless that wants none, by the environment."""
    given = settings()
    wants_none = str(given.get("insecure", "off")).lower() in {"on", "true", "yes", "1"}
    return "key_file" in given or (not wants_none and bool(os.environ.get("DENREI_KEY_FILE")))


def _check_encryption(address: str, connection_args: dict[str, Any]) -> None:
    if connection_args.get("require_encryption") and not _is_sealed():
        raise RuntimeError(
            f"Dask's configuration requires encryption, but denrei://{address} would go without: name a key "
            "(made by `denrei keygen`) as key_file in denrei.settings, or by DENREI_KEY_FILE"
        )


class DenreiComm(Comm):
    """One connection: a channel of a session."""

    _local_addr: str
    _peer_addr: str

    def __init__(self, channel: Channel, deserialize: bool = True) -> None:
        super().__init__(deserialize=deserialize)
        self._channel = channel
        peer = channel.peer.address or "unknown"
        self._peer_addr = "denrei://" + peer
        local = channel.hub.node.address
        self._local_addr = "denrei://" + (local if peer == "unknown" else _seen_by(local, peer))
        # One that nobody holds any more is closed as one that was aborted.
        self._finalizer = weakref.finalize(self, _abandon, channel)
        self._finalizer.atexit = False

    @property
    def channel(self) -> int:
        """The channel's number."""
        return self._channel.number

    async def read(self, deserializers: Any = None) -> Any:
        try:
            frames = await self._channel.receive()
            return await from_frames(
                frames,
                deserialize=self.deserialize,
                deserializers=deserializers,
                allow_offload=self.allow_offload,
            )
        except EOFError as error:
            self.abort()
            raise CommClosedError(f"{self!r}: what came was cut short") from error
        except BaseException:
            # Given up half-way, nobody knows what the next message is.
            self.abort()
            raise

    async def write(self, msg: Any, serializers: Any = None, on_error: str = "message") -> int:
        if self.closed():
            raise CommClosedError(f"{self!r} is closed")
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
        try:
            await self._channel.send(frames)
        except BaseException:
            self.abort()
            raise
        return sum(nbytes(frame) for frame in frames)

    async def close(self) -> None:
        async with self._channel.writing:
            self.abort()

    def abort(self) -> None:
        self._finalizer.detach()
        self._channel.end()

    def closed(self) -> bool:
        return self._channel.ended

    async def is_there(self, limit: float) -> bool:
        """Asks the process on the other side for a sign of life; whether there is one within so many seconds."""
        peer, loop = self._channel.peer, asyncio.get_running_loop()
        before, deadline = peer.flow, loop.time() + limit
        try:
            peer.request_status()
        except PeerLost:
            return False
        while before is not None and not self._channel.is_lost and loop.time() < deadline:
            flow = peer.flow
            if flow is not None and flow.packets_received > before.packets_received:
                return True
            await asyncio.sleep(LOOK_AGAIN)
        return False

    @property
    def local_address(self) -> str:
        return self._local_addr

    @property
    def peer_address(self) -> str:
        return self._peer_addr


def _abandon(channel: Channel) -> None:
    if not channel.hub.loop.is_closed():
        channel.hub.loop.call_soon_threadsafe(channel.end)


class DenreiConnector(Connector):
    """Opens connections, all of one event loop through one Node for each kind of address."""

    comm_class: ClassVar[type[DenreiComm]] = DenreiComm
    _hubs: ClassVar[dict[tuple[asyncio.AbstractEventLoop, str], Hub]] = {}

    async def connect(self, address: str, deserialize: bool = True, **connection_args: Any) -> DenreiComm:
        _check_encryption(address, connection_args)
        host, port = parse_host_port(address)
        ip = ensure_ip(host)
        channel = await self._hub(ip).open(unparse_host_port(ip, port))
        comm = self.comm_class(channel, deserialize=deserialize)
        comm._peer_addr = "denrei://" + address
        return comm

    @classmethod
    def _hub(cls, ip: str) -> Hub:
        for loop, local in list(cls._hubs):
            if loop.is_closed():
                del cls._hubs[loop, local]
        local = ip if _is_loopback(ip) else "::" if ":" in ip else "0.0.0.0"
        key = (asyncio.get_running_loop(), local)
        hub = cls._hubs.get(key)
        if hub is None or hub.is_closed:
            cls._hubs[key] = hub = Hub(unparse_host_port(local, 0))
        return hub


class DenreiListener(BaseListener):
    """Takes connections on one UDP port."""

    prefix = "denrei://"
    comm_class: ClassVar[type[DenreiComm]] = DenreiComm

    def __init__(
        self,
        address: str,
        comm_handler: Handler,
        deserialize: bool = True,
        allow_offload: bool = True,
        default_host: str | None = None,
        default_port: int = 0,
        **connection_args: Any,
    ) -> None:
        super().__init__()
        _check_encryption(address, connection_args)
        self.ip, self.port = parse_host_port(address, default_port)
        self.default_host = default_host
        self.comm_handler = comm_handler
        self.deserialize = deserialize
        self.allow_offload = allow_offload
        self._hub: Hub | None = None
        self._address = ""

    async def start(self) -> None:
        host = ensure_ip(self.ip) if self.ip else "0.0.0.0"
        hub = await Hub.listening(unparse_host_port(host, self.port))
        hub.accept = lambda channel: hub.start(self._serve(channel))
        self._hub, self._address = hub, hub.node.address
        server = getattr(self.comm_handler, "__self__", None)
        _scatter.install(server, hub)
        _successor.install(server)

    async def _serve(self, channel: Channel) -> None:
        comm = self.comm_class(channel, deserialize=self.deserialize)
        comm.allow_offload = self.allow_offload
        try:
            await self.on_connection(comm)
        except CommClosedError:
            # Gone before it had introduced itself.
            comm.abort()
            return
        await self.comm_handler(comm)

    def stop(self) -> None:
        hub, self._hub = self._hub, None
        if hub is not None:
            hub.stop_listening()

    def get_host_port(self) -> tuple[str, int]:
        """Where it listens."""
        if not self._address:
            raise ValueError("the listener was not started")
        host, port = parse_host_port(self._address)
        return host, port

    @property
    def listen_address(self) -> str:
        return self.prefix + unparse_host_port(*self.get_host_port())

    @property
    def contact_address(self) -> str:
        host, port = self.get_host_port()
        return self.prefix + unparse_host_port(ensure_concrete_host(host, self.default_host), port)


class DenreiBackend(Backend):
    """What Dask finds by the entry point."""

    _connector_class: ClassVar[type[DenreiConnector]] = DenreiConnector
    _listener_class: ClassVar[type[DenreiListener]] = DenreiListener

    def get_connector(self) -> DenreiConnector:
        return self._connector_class()

    def get_listener(
        self, loc: str, handle_comm: Handler, deserialize: bool, **connection_args: Any
    ) -> DenreiListener:
        return self._listener_class(loc, handle_comm, deserialize, **connection_args)

    def get_address_host(self, loc: str) -> str:
        return self.get_address_host_port(loc)[0]

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        host, port = parse_host_port(loc)
        return host, port

    def resolve_address(self, loc: str) -> str:
        host, port = self.get_address_host_port(loc)
        return str(unparse_host_port(ensure_ip(host), port))

    def get_local_address_for(self, loc: str) -> str:
        host = ensure_ip(self.get_address_host(loc))
        return str(unparse_host_port(_local_ip(host), None))
